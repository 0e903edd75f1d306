package reconcile_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/relay"
)

// lossy is a log whose relay has published the events e1, e2 and e3, and a stream that can lose them.
// e2 and e3 have one key. The relay has made its only checkpoint after e1.
type lossy struct {
	*testing.T

	pool   *pgxpool.Pool
	stream jetstream.Stream
	name   string
	relay  *relay.Relay
}

func openLossy(t *testing.T) *lossy {
	t.Helper()
	l := &lossy{T: t, pool: devtest.Pool(t), name: nats.NewInbox()[len("_INBOX."):]}
	nc := devtest.NATS(t)
	var err error
	l.stream, err = devtest.JetStream(t, nc).CreateStream(t.Context(), jetstream.StreamConfig{Name: l.name, Subjects: []string{l.name + ".>"}, Discard: jetstream.DiscardNew})
	if err != nil {
		t.Fatal(err)
	}
	l.relay = relay.New(l.pool, natsjs.NewPublisher(nc), relay.Config{CheckEvery: time.Second})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- l.relay.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	for n := 1; n <= 3; n++ {
		if _, err := l.pool.Exec(t.Context(), "SELECT postroom.write('/shop', $1, '{}', id => $2, key => CASE WHEN $2 <> 'e1' THEN 'k' END)", l.name+".a", fmt.Sprint("e", n)); err != nil {
			t.Fatal(err)
		}
		devtest.Eventually(t, time.Minute, "the event to be recorded as published, and when the stream was made", func() (is bool) {
			err := l.pool.QueryRow(t.Context(), "SELECT (streams -> $1 ->> 'seq')::int = $2 AND (streams -> $1 ->> 'created')::timestamptz > '2000-01-01' FROM postroom.relay", l.name, n).Scan(&is)
			return err == nil && is
		})
	}
	return l
}

// loses deletes messages, and waits until the relay has repaired the loss of the end.
func (l *lossy) loses(seqs ...uint64) relay.Loss {
	l.Helper()
	for _, seq := range seqs {
		if err := l.stream.DeleteMsg(l.Context(), seq); err != nil {
			l.Fatal(err)
		}
	}
	devtest.Eventually(l.T, time.Minute, "the relay to repair the loss", func() bool {
		losses := l.relay.Health().Losses
		return len(losses) > 0 && !losses[0].RepairedAt.IsZero()
	})
	return l.relay.Health().Losses[0]
}

// wantLastBack deletes the last message, and waits until the relay has published its event again.
func (l *lossy) wantLastBack() {
	l.Helper()
	if loss := l.loses(3); loss.Events != 1 || loss.OutOfOrder != 0 {
		l.Fatalf("%+v, want that one event was missing", loss)
	}
	devtest.Eventually(l.T, 5*time.Second, "e3 to be published again, in its order", func() bool {
		m, err := l.stream.GetLastMsgForSubject(l.Context(), l.name+".a")
		return err == nil && m.Header.Get("ce-id") == "e3" && m.Header.Get("postroom-republish") == ""
	})
}

// A stream that has dropped its first messages, for instance because of their age, loses its end. It had
// all events that were published after the checkpoint, whenever they were written: they may have waited
// for longer than the stream keeps messages.
func TestAStreamThatDroppedItsStartLosesItsEnd(t *testing.T) {
	t.Parallel()
	l := openLossy(t)
	if err := l.stream.Purge(t.Context(), jetstream.WithPurgeSequence(2)); err != nil {
		t.Fatal(err)
	}
	l.wantLastBack()
}

// A stream loses its end while a republish runs that will bring a copy. The relay does not wait for the
// copy: ordered handlers would hold it as late, and an operator may cancel the republish.
func TestALossBesideARepublishIsRepaired(t *testing.T) {
	t.Parallel()
	l := openLossy(t)
	slow := operator.RepublishRequest{All: true, Rate: 0.001}
	if _, err := operator.New(l.pool, operator.Config{}).Republish(t.Context(), slow, postroom.Audit{Actor: "ann"}); err != nil {
		t.Fatal(err)
	}
	l.wantLastBack()
}

// A copy that came after later events of its key is lost, with these. It is late again: ordered handlers
// may have had the later events.
func TestALateCopyThatIsLostIsLateAgain(t *testing.T) {
	t.Parallel()
	l := openLossy(t)
	if err := l.stream.DeleteMsg(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	store := operator.New(l.pool, operator.Config{})
	made, err := store.RepublishSeqs(t.Context(), []int64{2}, 1000, postroom.Audit{Actor: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, time.Minute, "the copy of e2 to be recorded", func() bool {
		now, err := store.FindRepublish(t.Context(), made[0].ID)
		return err == nil && now.State == operator.RepublishDone
	})
	if loss := l.loses(4, 3); loss.Events != 2 || loss.OutOfOrder != 1 {
		t.Fatalf("%+v, want that e2 and e3 were missing, and e2 out of order", loss)
	}
	devtest.Eventually(t, 5*time.Second, "a copy of e2 to be published after e3", func() bool {
		m, err := l.stream.GetLastMsgForSubject(t.Context(), l.name+".a")
		return err == nil && m.Header.Get("ce-id") == "e2" && m.Header.Get("postroom-republish") != ""
	})
}
