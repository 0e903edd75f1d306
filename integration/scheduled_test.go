package integration

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

// A scheduled event takes effect once, when it is due and not before. Other events pass it.
func TestScheduledEventTakesEffectWhenItIsDue(t *testing.T) {
	t.Parallel()
	nc := devtest.NATS(t)
	s := openShop(t, nc, 2*time.Minute)
	r := relay.New(s.pool, natsjs.NewPublisher(nc), relay.Config{})
	s.background(func(ctx context.Context) {
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	s.grow(100)
	s.stopClients()
	due := time.Now().Add(2 * time.Second)
	ev := postroom.NewEvent(s.stream+".changed", change{})
	ev.NotBefore = due
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
	devtest.Eventually(t, 30*time.Second, "the scheduled event's effects", func() bool { return effects() == handlers })
	if early := time.Until(due); early > 0 {
		t.Errorf("it took effect %s before it was due", early)
	}
	var held int
	devtest.Eventually(t, 10*time.Second, "nothing to be held", func() bool {
		return s.pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.held").Scan(&held) == nil && held == 0
	})
	if n := effects(); n != handlers {
		t.Errorf("%d effects at %d handlers", n, handlers)
	}
}
