package doctor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/doctor"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs"
)

// The newest messages of a stream are read first, because they nearly always have the newest
// events. If an event is not among them, the search begins at its time.
func TestTheEndOfAStreamIsReadFirst(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		before, after int // how many messages of other services come before and after
		looks         int
	}{
		{"at the end", 2500, 0, 1},
		{"before others", 0, 2500, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, nc := devtest.Pool(t), devtest.NATS(t)
			name := nats.NewInbox()[len("_INBOX."):]
			kind := name + ".placed"
			err := natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}})
			if err != nil {
				t.Fatal(err)
			}
			exec(t, pool, "SELECT postroom.write(source => '/shop', type => $1, data => '{}', id => 'e' || n) FROM generate_series(1, 3) n", kind)
			exec(t, pool, "UPDATE postroom.relay SET high = 3, snap = pg_current_snapshot()")
			total := 0
			publish := func(n int, source string) {
				for i := range n {
					ev := postroom.Event{ID: fmt.Sprint("e", i+1), Source: source, Type: kind, Time: time.Now(), LoggedAt: time.Now(), ContentType: "application/json"}
					if err := nc.PublishMsg(&nats.Msg{Subject: kind, Header: wire.Encode(ev), Data: []byte("{}")}); err != nil {
						t.Fatal(err)
					}
				}
				total += n
			}
			publish(tt.before, "/other")
			publish(3, "/shop")
			publish(tt.after, "/other")
			js := devtest.JetStream(t, nc)
			devtest.Eventually(t, 30*time.Second, "all messages", func() bool {
				s, err := js.Stream(t.Context(), name)
				return err == nil && s.CachedInfo().State.Msgs == uint64(total)
			})
			looks, err := nc.SubscribeSync("$JS.API.CONSUMER.CREATE." + name + ".>")
			if err != nil {
				t.Fatal(err)
			}
			losses, err := doctor.New(pool, nc, doctor.Config{}).Losses(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if s := losses.Streams; len(s) != 1 || s[0].Compared != 3 || len(s[0].Missing) != 0 || s[0].Note != "" {
				t.Errorf("streams: %+v, want one that has all three", s)
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			if n, _, err := looks.Pending(); n != tt.looks || err != nil {
				t.Errorf("%d consumers were made to look with, want %d (%v)", n, tt.looks, err)
			}
			first, err := looks.NextMsg(time.Second)
			if err != nil || !strings.Contains(string(first.Data), `"by_start_sequence"`) {
				t.Errorf("the first look is %s, want one from a sequence on (%v)", first.Data, err)
			}
		})
	}
}

// A clock that was two hours ahead while events were written makes no event count as lost.
func TestEventsFromTheFutureAreNotLost(t *testing.T) {
	t.Parallel()
	pool, nc := devtest.Pool(t), devtest.NATS(t)
	name := nats.NewInbox()[len("_INBOX."):]
	kind := name + ".placed"
	if err := natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "SELECT postroom.write(source => '/shop', type => $1, data => '{}', id => 'e' || n) FROM generate_series(1, 3) n", kind)
	exec(t, pool, "UPDATE postroom.relay SET high = 3, snap = pg_current_snapshot()")
	js := devtest.JetStream(t, nc)
	for i := range 3 {
		ev := postroom.Event{ID: fmt.Sprint("e", i+1), Source: "/shop", Type: kind, Time: time.Now(), LoggedAt: time.Now(), ContentType: "application/json"}
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: kind, Header: wire.Encode(ev), Data: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	for _, sql := range []string{
		"UPDATE postroom.outbox SET created_at = created_at + interval '2 hours' WHERE event_id <> 'e3'", // the clock is right again
		"UPDATE postroom.outbox SET created_at = created_at + interval '2 hours' WHERE event_id = 'e3'",  // it is not
	} {
		exec(t, pool, sql)
		losses, err := doctor.New(pool, nc, doctor.Config{}).Losses(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s := losses.Streams; len(s) != 1 || s[0].Compared != 3 || len(s[0].Missing) != 0 {
			t.Errorf("streams: %+v, want one that has all three", s)
		}
	}
}

// An event that a stream lost is lost, even if a mirror of the stream still has it: the handlers read the
// stream.
func TestACopyOfALostEventDoesNotCount(t *testing.T) {
	t.Parallel()
	pool, nc := devtest.Pool(t), devtest.NATS(t)
	js, name := devtest.JetStream(t, nc), nats.NewInbox()[len("_INBOX."):]
	kind := name + ".placed"
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{kind}})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "SELECT postroom.write(source => '/shop', type => $1, data => '{}', id => 'e1')", kind)
	exec(t, pool, "UPDATE postroom.relay SET high = 1, snap = pg_current_snapshot()")
	ev := postroom.Event{ID: "e1", Source: "/shop", Type: kind, Time: time.Now(), LoggedAt: time.Now(), ContentType: "application/json"}
	stored, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: kind, Header: wire.Encode(ev), Data: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	mirror, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name + "-COPY", Mirror: &jetstream.StreamSource{Name: name}})
	if err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, 30*time.Second, "the mirror to have it", func() bool {
		info, err := mirror.Info(t.Context())
		return err == nil && info.State.Msgs == 1
	})
	if err := s.DeleteMsg(t.Context(), stored.Sequence); err != nil {
		t.Fatal(err)
	}
	losses, err := doctor.New(pool, nc, doctor.Config{}).Losses(t.Context())
	if s := losses.Streams; err != nil || len(s) != 1 || len(s[0].Missing) != 1 || s[0].Note != "" {
		t.Errorf("streams: %+v, %v; want one that lacks the event", s, err)
	}
}
