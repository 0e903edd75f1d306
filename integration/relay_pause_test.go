package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

// obeyed is the time within which relays and handlers obey an operator who pauses them.
const obeyed = 2 * time.Second

var operatorsReason = postroom.Audit{Actor: "ann", Reason: "maintenance"}

// An operator pauses the relays while clients write. All relays obey within two seconds, and
// give the lease back. A relay that starts meanwhile obeys, too. After the resume everything
// takes effect once, in order.
func TestAnOperatorPausesTheRelays(t *testing.T) {
	t.Parallel()
	for name, atomic := range map[string]string{"single publishes": "", "atomic batches": "yes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, devtest.NATS(t), 100*time.Millisecond)
			noteHeartbeats(t, s.pool)
			store := operator.New(s.pool, operator.Config{})
			terms := map[*process]int{}
			begin := func() {
				terms[startRelay(t, fmt.Sprint("relay ", len(terms)), s.url, devtest.NATSURL(t), atomicVar+"="+atomic)] = 0
			}
			begin()
			begin()
			for range 2 {
				leaderOf(t, terms)
				s.grow(50)
				s.hurry(100)
				if err := store.PauseRelay(t.Context(), 0, operatorsReason); err != nil {
					t.Fatal(err)
				}
				begin()
				s.grow(50)
				s.wantNothingStoredInAPause()
				if err := store.ResumeRelay(t.Context(), operatorsReason); err != nil {
					t.Fatal(err)
				}
			}
			leaderOf(t, terms)
			s.grow(50)
			s.waitUntilIdle()
		})
	}
}

// wantNothingStoredInAPause waits until no relay leads. It fails if the stream got a message
// more than two seconds after the pause began, plus the time for which the machine stalled. The
// broker and the database have the same clock here.
func (s *shop) wantNothingStoredInAPause() {
	s.Helper()
	devtest.Eventually(s.T, 30*time.Second, "the lease to be given back, and two seconds to be over", func() (is bool) {
		err := s.pool.QueryRow(s.Context(), `SELECT r.owner IS NULL AND clock_timestamp() > p.paused_at + $1
			FROM postroom.relay r, postroom.pause p WHERE p.handler = 'outbox'`, obeyed+time.Second).Scan(&is)
		return err == nil && is
	})
	var since time.Time
	if err := s.pool.QueryRow(s.Context(), "SELECT paused_at FROM postroom.pause WHERE handler = 'outbox'").Scan(&since); err != nil {
		s.Fatal(err)
	}
	stream, _ := s.reader()
	info, err := stream.Info(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	var stalled time.Duration
	if err := s.pool.QueryRow(s.Context(), "SELECT stalled($1::timestamptz, $2::timestamptz)", since, info.State.LastTime).Scan(&stalled); err != nil {
		s.Fatal(err)
	}
	if late := info.State.LastTime.Sub(since); late > obeyed+stalled {
		s.Errorf("a message was stored %s after the pause began, want at most %s, and the machine stalled for %s", late, obeyed, stalled)
	}
	var waiting int
	if err := s.pool.QueryRow(s.Context(), "SELECT count(*) FROM postroom.outbox WHERE created_at > $1::timestamptz + $2", since, obeyed).Scan(&waiting); err != nil || waiting == 0 {
		s.Errorf("%d events were written in the pause, %v, want some: producers go on", waiting, err)
	}
}

// If a scheduled event becomes due in a pause, it waits until the pause ends.
func TestScheduledEventWaitsForTheEndOfAPause(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	s := openShop(t, nc, 2*time.Minute)
	s.stopClients()
	store := operator.New(s.pool, operator.Config{})
	if err := store.PauseRelay(t.Context(), 0, operatorsReason); err != nil {
		t.Fatal(err)
	}
	r := relay.New(s.pool, natsjs.NewPublisher(nc), relay.Config{})
	s.background(func(ctx context.Context) {
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	devtest.Eventually(t, 30*time.Second, "the relay to obey", func() bool { return r.Health().State == relay.Paused })
	ev := postroom.NewEvent(s.stream+".changed", change{})
	ev.NotBefore = time.Now().Add(time.Second)
	err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		return outbox.New(outbox.Config{Source: "/shop"}).Write(t.Context(), tx, ev)
	})
	if err != nil {
		t.Fatal(err)
	}
	effects := func() (n int) {
		if err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM effect WHERE event = $1", ev.ID).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	devtest.Eventually(t, 30*time.Second, "it to be due for a second", func() bool { return time.Since(ev.NotBefore) > time.Second })
	if n := effects(); n > 0 {
		t.Errorf("it has %d effects in the pause", n)
	}
	if err := store.ResumeRelay(t.Context(), operatorsReason); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, 30*time.Second, "its effects", func() bool { return effects() == handlers })
}
