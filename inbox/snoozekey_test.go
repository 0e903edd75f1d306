package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

// ofKey returns an event to accept that has a key.
func ofKey(key, id string) inbox.Acceptance {
	a := accepted("h", id, "1")
	a.Event.Key = key
	return a
}

// If a handler snoozes a key, the events of the key that are due wait as well and do not run.
// Events of other keys, and events without a key, run.
func TestSnoozeKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const busy = 3000
	var all []inbox.Acceptance
	for i := range busy {
		all = append(all, ofKey("busy", fmt.Sprint("busy", i)))
	}
	b.in.Handle(inbox.Subscription{Name: "h", Workers: 2}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.Key == "busy" {
			return postroom.SnoozeKey(time.Hour, time.Second, errors.New("the account is at its limit"))
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	for _, some := range [][]inbox.Acceptance{all, {ofKey("free", "a"), ofKey("", "b")}} {
		if _, err := b.in.AcceptAll(t.Context(), some...); err != nil {
			t.Fatal(err)
		}
	}
	b.run()
	b.eventually("the other effects", func() bool { return len(b.effects("h")) == 2 })
	b.wantOnce("h", "a", "b")
	var claims, attempts, due int
	if err := b.pool.QueryRow(t.Context(), "SELECT sum(epoch), sum(attempts), count(*) FILTER (WHERE next_at < now() + interval '59 minutes') FROM postroom.held WHERE key = 'busy' AND claimed_by IS NULL").
		Scan(&claims, &attempts, &due); err != nil {
		t.Fatal(err)
	}
	if claims > busy/20 || attempts != 0 || due != 0 {
		t.Errorf("events of the key: %d claims, %d attempts, %d due soon; want %d claims at most and nothing else", claims, attempts, due, busy/20)
	}
}

// postpone.sql changes only events that are due, have one of the keys, are not claimed, and do not
// have to run alone. The events of a key come back in their order, one after each pace.
func TestPostponedEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, row := range []struct{ handler, id, key, next, also string }{
		{"h", "second", "k", "-1 s", ""},
		{"h", "first", "k", "-2 s", ""},
		{"h", "of another", "other", "-3 s", ""},
		{"h", "of none", "", "-4 s", ""},
		{"h", "later", "k", "1 h", ""},
		{"h", "claimed", "k", "-5 s", "claimed_by = 'p'"},
		{"h", "alone", "k", "-6 s", "solitary = true"},
		{"g", "of another handler", "k", "-7 s", ""},
		{"h", "last", "l", "-8 s", ""},
	} {
		b.exec("INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ($1, $2)", row.handler, row.id)
		b.exec(`INSERT INTO postroom.held (handler, dedupe_key, next_at, logged_at, source, event_id, type, subject, key, content_type, data)
			VALUES ($1, $2, now() + $4::interval, now(), '/shop', $2, 'a.b', 'a.b', nullif($3, ''), 'text/plain', '')`, row.handler, row.id, row.key, row.next)
		if row.also != "" {
			b.exec("UPDATE postroom.held SET "+row.also+" WHERE dedupe_key = $1", row.id)
		}
	}
	due := func() map[string]int { // in minutes
		rows, _ := b.pool.Query(t.Context(), "SELECT dedupe_key, round(extract(epoch FROM next_at - now()) / 60)::int FROM postroom.held")
		got, id, n := make(map[string]int), "", 0
		if _, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error {
			got[id] = n
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := map[string]int{"first": 0, "second": 0, "of another": 0, "of none": 0, "later": 60, "claimed": 0, "alone": 0, "of another handler": 0, "last": 0}
	postpone := func(most int, since time.Duration, moved map[string]int) {
		t.Helper()
		how := delivery.Postponement{
			Keys: []string{"k", "l"}, First: []time.Duration{10 * time.Minute, 20 * time.Minute}, Pace: []time.Duration{2 * time.Minute, time.Minute},
			Since: []time.Duration{since, since},
		}
		got, err := ledger.Claims{DB: ledger.New(b.pool, "postroom", nil)}.Postpone(t.Context(), "h", how, most)
		if err != nil || !maps.Equal(got, moved) {
			t.Errorf("Postpone of %d = %v, %v, want %v", most, got, err, moved)
		}
	}
	postpone(3, 0, map[string]int{"l": 1})
	want["last"] = 20 // the statement looked at it and at two of other keys
	if got := due(); !maps.Equal(got, want) {
		t.Errorf("after the first statement they are due in %v minutes, want %v", got, want)
	}
	postpone(100, time.Hour, nil) // all are due since then
	postpone(100, 0, map[string]int{"k": 2})
	want["first"], want["second"] = 10, 12
	if got := due(); !maps.Equal(got, want) {
		t.Errorf("after the second statement they are due in %v minutes, want %v", got, want)
	}
}
