package integration

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/internal/reconcile"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

const person = "Ada Lovelace"

// tablesWith returns the tables of Postroom whose rows contain a text.
func (d *depot) tablesWith(text string) (found []string) {
	d.Helper()
	rows, _ := d.pool.Query(d.Context(), "SELECT tablename FROM pg_tables WHERE schemaname = 'postroom' ORDER BY 1") // CollectRows reports the error
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		d.Fatal(err)
	}
	for _, table := range tables { // a body is shown as hexadecimal digits
		if d.number("SELECT count(*) FROM postroom."+table+" AS r WHERE strpos(r::text, $1) > 0 OR strpos(r::text, encode(convert_to($1, 'UTF8'), 'hex')) > 0", text) > 0 {
			found = append(found, table)
		}
	}
	return found
}

// The documentation has a statement that deletes an event. After it, no table has the content of
// the event. No handler runs again if the stream delivers the event again, and later events flow.
func TestDocumentedDeletionOfAnEvent(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/howto/delete-personal-data.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```sql\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/howto/delete-personal-data.md has no SQL")
	}
	d := openDepot(t)
	consumer := d.instance(inbox.Config{}, nil)
	var mails atomic.Int64
	sub := inbox.Subscription{Name: "mail.send", Stream: d.stream, Types: []string{d.typed("placed")}, Attempts: 3, Schedule: postroom.Backoff{time.Millisecond}}
	consumer.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if mails.Add(1) == 1 {
			return errors.New("no address of " + person)
		}
		postroom.SetResult(ctx, "mail to "+person)
		return note(ctx, tx, "mail.send", ev)
	}))
	sub.Name = "billing.charge"
	consumer.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		_, err := inbox.Step(ctx, attempt, "charge", func(context.Context, string) (string, error) { return "charged " + person, nil })
		if err == nil && attempt.Event.ID == "order-7" {
			err = postroom.Permanent(errors.New("no account of " + person))
		}
		attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return note(ctx, tx, "billing.charge", attempt.Event) })
		return err
	})
	consumer.start()
	log := pglog.New(d.pool)
	publisher := natsjs.NewPublisher(d.js.Conn())
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- relay.New(d.pool, publisher, relay.Config{Logger: quiet}).Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	order := func(id string) postroom.Event {
		ev := postroom.NewEvent(d.typed("placed"), map[string]string{"customer": person})
		ev.ID = id
		return ev
	}
	write := func(ev postroom.Event) {
		t.Helper()
		shop := outbox.New(outbox.Config{Source: "/shop"})
		if err := pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, ev) }); err != nil {
			t.Fatal(err)
		}
	}
	effects := func(id string) int { return d.number("SELECT count(*) FROM effect WHERE event = $1", id) }

	write(order("order-7"))
	devtest.Eventually(t, depotPatience, "the mail, and a dead event", func() bool {
		return effects("order-7") == 1 && d.number("SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL") == 1
	})
	letters, by := deadletter.New(d.pool, deadletter.Config{}), postroom.Audit{Actor: "ann", Reason: "asked to be forgotten"}
	replay, err := letters.CreateReplay(t.Context(), deadletter.Filter{All: true}, deadletter.ReplayOptions{StopAt: new(1.0)}, by)
	if err == nil {
		_, err = letters.RunReplay(t.Context(), replay.ID, deadletter.RunOptions{})
	}
	if err == nil {
		_, err = letters.Edit(t.Context(), int64(d.number("SELECT id FROM postroom.held")), deadletter.Edit{Data: []byte(`"` + person + `"`), ContentType: "application/json"}, by)
	}
	if err == nil {
		_, err = letters.Discard(t.Context(), deadletter.Filter{EventID: "order-7"}, deadletter.ChangeOptions{}, by)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.exec("INSERT INTO postroom.refused SELECT seq, jsonb_build_array(jsonb_build_object('text', $1::text)) FROM postroom.outbox", "refused for "+person)
	// At another handler, the event was edited and then took effect. Its original is still there.
	d.exec(`WITH other AS (
			INSERT INTO postroom.replay_event (replay, n, through, held, handler, source, event_id, dead_at, outcome, ended_at)
			SELECT replay, 100, 100, held + 1000, 'mail.send', source, event_id, dead_at, 'succeeded', now() FROM postroom.replay_event
			RETURNING held
		)
		INSERT INTO postroom.revision (held, revision, audit, event_id, content_type, data)
		SELECT other.held, 0, r.audit, r.event_id, r.content_type, r.data FROM other, postroom.revision r`)
	want := []string{"archive", "inbox", "outbox", "receipt", "refused", "replay_event", "revision"}
	if found := d.tablesWith(person); !slices.Equal(found, want) {
		t.Fatalf("before, the tables with the person's name are %v, want %v", found, want)
	}

	devtest.Eventually(t, depotPatience, "the event to be forgotten", func() bool { // when the relay has recorded that it is published
		_, err := d.pool.Exec(t.Context(), string(block[1]))
		return err == nil
	})
	if found := d.tablesWith(person); len(found) > 0 {
		t.Errorf("afterwards, these tables have the person's name: %s", strings.Join(found, ", "))
	}
	repeated := order("order-7")
	repeated.Source = "/shop"
	d.publish(repeated)
	write(order("order-8"))
	devtest.Eventually(t, depotPatience, "the effects of the next event", func() bool { return effects("order-8") == 2 })
	d.waitUntilIdle("mail.send", "billing.charge")
	if n := effects("order-7"); n != 1 || mails.Load() != 3 {
		t.Errorf("order-7 has %d effects, and the handler ran %d times, want 1 and 3", n, mails.Load())
	}
	devtest.Eventually(t, depotPatience, "order-8 to be compared", func() bool { // when the relay has recorded that it is published
		found, err := reconcile.Compare(t.Context(), log, publisher, reconcile.Config{})
		if err != nil || len(found) != 1 || found[0].Err != nil || len(found[0].Missing) > 0 {
			t.Fatalf("Compare = %+v, %v; want no missing event", found, err)
		}
		return found[0].Compared == 1
	})
}
