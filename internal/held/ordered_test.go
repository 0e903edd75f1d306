package held_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs"
)

// Events of an ordered handler are cancelled while their keys run. Each event is either cancelled
// or runs once. The events that run keep the order of their key, and no key stops.
func TestCancelKeepsTheOrderOfRunningKeys(t *testing.T) {
	t.Parallel()
	d := newRig(t)
	d.exec("ALTER TABLE effect ADD n bigint GENERATED ALWAYS AS IDENTITY")
	nc := devtest.NATS(t)
	js := devtest.JetStream(t, nc)
	stream := nats.NewInbox()[len("_INBOX."):]
	if err := natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}}); err != nil {
		t.Fatal(err)
	}
	const keys, each = 10, 20
	publish := func(key, n int) {
		ev := postroom.Event{
			ID: fmt.Sprintf("k%d-%02d", key, n), Source: "/shop", Type: stream + ".placed", Key: fmt.Sprint("k", key), ContentType: "text/plain",
			LoggedAt: time.Now(), Time: time.Now(),
		}
		header := nats.Header(wire.Encode(ev))
		header.Del(wire.MsgID)
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: ev.Type, Header: header}); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	open := false
	in := inbox.New(d.pool, nc, inbox.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), IdlePoll: 5 * time.Millisecond})
	in.Handle(inbox.Subscription{
		Name: "billing", Stream: stream, Types: []string{stream + ".placed"}, Order: inbox.HoldKey, Attempts: 1000, Schedule: postroom.Backoff{time.Millisecond},
	}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		mu.Lock()
		may := open
		mu.Unlock()
		if !may {
			return errors.New("not yet")
		}
		return apply(ctx, tx, "billing", ev)
	}))
	d.run(in)
	for n := range each {
		for key := range keys {
			publish(key, n)
		}
	}
	devtest.Eventually(t, patience, "all to be held", func() bool { return d.text("SELECT count(*)::text FROM postroom.held") == fmt.Sprint(keys*each) })
	set := d.sel(held.Filter{Handler: "billing"})
	devtest.Random(t, 0).Shuffle(len(set.IDs), func(i, j int) { set.IDs[i], set.IDs[j] = set.IDs[j], set.IDs[i] })
	var cancelled int64
	var wg sync.WaitGroup
	mu.Lock()
	open = true
	mu.Unlock()
	for ids := range slices.Chunk(set.IDs, keys*each/4) {
		wg.Go(func() {
			for _, id := range ids {
				r, err := d.store.Cancel(t.Context(), held.Set{IDs: []int64{id}}, d.by, nil)
				if err != nil || r.Events+r.Unchanged[held.Running]+r.Unchanged[held.Gone] != 1 {
					t.Errorf("cancel: %+v, %v", r, err)
				}
				mu.Lock()
				cancelled += r.Events
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for key := range keys {
		publish(key, each) // this event runs, even if events before it were cancelled
	}
	devtest.Eventually(t, patience, "all keys to have run", func() bool {
		return d.text("SELECT count(*)::text FROM effect") == fmt.Sprint(keys*(each+1)-int(cancelled)) && d.text("SELECT count(*)::text FROM postroom.held") == "0"
	})
	d.want("archived", fmt.Sprint(cancelled), "SELECT count(*)::text FROM postroom.archive")
	d.want("run or cancelled", fmt.Sprint(keys*(each+1)), "SELECT count(*)::text FROM (SELECT id FROM effect UNION SELECT event_id FROM postroom.archive) x")
	for key := range keys {
		rows, _ := d.pool.Query(t.Context(), "SELECT id FROM effect WHERE id LIKE $1 ORDER BY n", fmt.Sprintf("k%d-%%", key)) // CollectRows reports the error
		ran, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || !slices.IsSorted(ran) {
			t.Errorf("key %d ran %v, %v", key, ran, err)
		}
	}
	t.Logf("%d cancelled", cancelled)
}
