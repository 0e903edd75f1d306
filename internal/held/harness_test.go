package held_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/held"
)

const patience = 30 * time.Second

// rig is a database with held events, and an held.
type rig struct {
	*testing.T

	pool  *pgxpool.Pool
	store *held.Store
	by    postroom.Audit
}

func newRig(t *testing.T) *rig {
	t.Helper()
	d := &rig{T: t, pool: devtest.Pool(t), by: postroom.Audit{Actor: "ann", Reason: "ordered twice"}}
	d.store = held.NewStore(d.pool, "postroom")
	d.exec("CREATE TABLE effect (handler text, id text)")
	return d
}

func (d *rig) exec(sql string, args ...any) {
	d.Helper()
	if _, err := d.pool.Exec(d.Context(), sql, args...); err != nil {
		d.Fatalf("%s: %v", sql, err)
	}
}

// text returns the text that a query returns.
func (d *rig) text(sql string, args ...any) (text string) {
	d.Helper()
	if err := d.pool.QueryRow(d.Context(), sql, args...).Scan(&text); err != nil {
		d.Fatalf("%s: %v", sql, err)
	}
	return text
}

func (d *rig) want(what, want, sql string, args ...any) {
	d.Helper()
	if got := d.text(sql, args...); got != want {
		d.Errorf("%s: %s, want %s", what, got, want)
	}
}

// hold writes an event in a given state directly into held, and returns its id there. A waiting
// event waits behind the other events of its key.
func (d *rig) hold(handler, id, key, state string) int64 {
	d.Helper()
	var dedupe *string
	if handler != held.Outgoing {
		dedupe = new(string)
		*dedupe = "/shop " + id
		d.exec("INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ($1, $2)", handler, dedupe)
	}
	set := map[string]string{
		"scheduled": "next_at = now() + interval '1 hour'",
		"retrying":  "next_at = now() + interval '1 hour', class = 'error', attempts = 3",
		"due":       "next_at = now() - interval '1 second', class = 'error', attempts = 3",
		"running":   "next_at = now() + interval '1 minute', claimed_by = 'w', attempts = 1",
		"abandoned": "next_at = now() - interval '1 second', claimed_by = 'w', attempts = 1",
		"waiting":   "next_at = NULL",
		"dead":      "next_at = NULL, dead_at = now(), class = 'error', attempts = 8",
	}[state]
	var n int64
	err := pgx.BeginFunc(d.Context(), d.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(d.Context(), `INSERT INTO postroom.held (handler, dedupe_key, pos, chain, next_at, logged_at, source, event_id, type, subject, key, content_type, data)
			VALUES ($1, $2, (SELECT coalesce(max(pos), 0) + 1 FROM postroom.held), nullif($4, ''), CASE WHEN $5 THEN NULL ELSE 'epoch'::timestamptz END, now(), '/shop', $3, 'order.placed', 'order.placed', nullif($4, ''), 'text/plain', 'x')
			RETURNING id`, handler, dedupe, id, key, state == "waiting").Scan(&n)
		if err == nil {
			_, err = tx.Exec(d.Context(), "UPDATE postroom.held SET "+set+" WHERE id = $1", n)
		}
		return err
	})
	if err != nil {
		d.Fatalf("hold %s: %v", id, err)
	}
	return n
}

// dueIn says in how many minutes an event is due, or that it is not held.
func (d *rig) dueIn(id int64) string {
	d.Helper()
	return d.text(`SELECT coalesce((SELECT coalesce(round(extract(epoch FROM next_at - now()) / 60)::text, 'no time') FROM postroom.held WHERE id = $1), 'not held')`, id)
}

func (d *rig) sel(f held.Filter) held.Set {
	d.Helper()
	set, err := d.store.Select(d.Context(), f, 0)
	if err != nil {
		d.Fatal(err)
	}
	return set
}

func (d *rig) wantResult(r held.Result, err error, events int64, unchanged map[held.State]int64) {
	d.Helper()
	if err != nil || r.Events != events || !maps.Equal(r.Unchanged, unchanged) {
		d.Errorf("%+v, %v; want %d events, unchanged %v", r, err, events, unchanged)
	}
}

// inbox returns an inbox that reads no stream.
func (d *rig) inbox() *inbox.Inbox {
	return inbox.New(d.pool, nil, inbox.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), IdlePoll: 5 * time.Millisecond})
}

// run runs an inbox until stop is called, or the test ends.
func (d *rig) run(in *inbox.Inbox) (stop func()) {
	d.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			d.Errorf("inbox: %v", err)
		}
	}
	d.Cleanup(stop)
	return stop
}

func event(n int) postroom.Event {
	return postroom.Event{ID: fmt.Sprint("e", n), Source: "/shop", Type: "order.placed", Key: fmt.Sprint("k", n), Data: []byte("{}")}
}

func (d *rig) accept(in *inbox.Inbox, handler string, ev postroom.Event) inbox.AcceptResult {
	d.Helper()
	got, err := in.Accept(d.Context(), handler, ev)
	if err != nil {
		d.Fatalf("accept %s: %v", ev.ID, err)
	}
	return got
}

// apply is a handler's effect.
func apply(ctx context.Context, tx pgx.Tx, handler string, ev postroom.Event) error {
	_, err := tx.Exec(ctx, "INSERT INTO effect (handler, id) VALUES ($1, $2)", handler, ev.ID)
	return err
}
