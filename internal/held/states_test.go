package held_test

import (
	"testing"

	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// All packages that show held events agree on the state of an event, although some distinguish
// fewer states.
func TestStatesAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	const outgoing = "outbox"
	tests := []struct {
		id, handler     string
		columns, values string
		want            held.State
		letter          deadletter.State
	}{
		{"dead", "a", "dead_at, class", "now(), 'error'", held.Dead, deadletter.Dead},
		{"due", "b", "next_at", "now() - interval '1 s'", held.Due, deadletter.Retrying},
		{"new, and due later", "c", "next_at", "now() + interval '1 h'", held.Scheduled, deadletter.Retrying},
		{"failed, and due later", "d", "next_at, class", "now() + interval '1 h', 'error'", held.Retrying, deadletter.Retrying},
		{"claimed", "e", "next_at, claimed_by", "now() + interval '1 h', 'p'", held.Running, deadletter.Running},
		{"claimed by who is gone", "f", "next_at, claimed_by", "now() - interval '1 s', 'p'", held.Abandoned, deadletter.Running},
		{"behind another", "g", "chain, pos", "'k', 2", held.Waiting, deadletter.Waiting},
		{"out later", outgoing, "pos, next_at", "1, now() + interval '1 h'", held.Scheduled, deadletter.Scheduled},
		{"out now", outgoing, "pos, next_at", "2, now() - interval '1 s'", held.Due, deadletter.Scheduled},
		{"out again later", outgoing, "pos, next_at, class", "3, now() + interval '1 h', 'error'", held.Retrying, deadletter.Retrying},
	}
	pool := devtest.Pool(t)
	store, inspector, reader := deadletter.New(pool, deadletter.Config{}), inspect.New(pool, nil, inspect.Config{}), held.NewReader("postroom")
	for _, tt := range tests {
		var dedupeKey *string // an outgoing event has none
		if tt.handler != outgoing {
			dedupeKey = &tt.id
			if _, err := pool.Exec(t.Context(), "INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ($1, $2)", tt.handler, tt.id); err != nil {
				t.Fatal(err)
			}
		}
		var id int64
		err := pool.QueryRow(t.Context(), `INSERT INTO postroom.held (handler, dedupe_key, logged_at, source, event_id, type, subject, content_type, data, `+tt.columns+`)
			VALUES ($1, $2, now(), '/shop', $3, 'a.b', 'a.b', 'text/plain', 'x', `+tt.values+`) RETURNING id`, tt.handler, dedupeKey, tt.id).Scan(&id)
		if err != nil {
			t.Fatalf("%s: %v", tt.id, err)
		}
		rows, discarded, err := reader.OfEvent(t.Context(), pool, "", tt.id)
		if err != nil || len(rows) != 1 || rows[0].State != tt.want || rows[0].ID != id || len(discarded) != 0 {
			t.Errorf("%s: OfEvent = %+v, %v, %v; want %s", tt.id, rows, discarded, err, tt.want)
		}
		if whole, err := store.Get(t.Context(), id); err != nil || whole.State != tt.letter {
			t.Errorf("%s: deadletter says %s, %v; want %s", tt.id, whole.State, err, tt.letter)
		}
		if j, err := inspector.Event(t.Context(), "/shop", tt.id); err != nil || len(j.Held) != 1 || j.Held[0].State != tt.want {
			t.Errorf("%s: inspect says %+v, %v; want %s", tt.id, j, err, tt.want)
		}
	}
	status, err := inspector.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		for _, h := range status.Held {
			if h.Handler == tt.handler && h.Events(tt.want) != 1 {
				t.Errorf("%s: status says %+v, want one that is %s", tt.id, h.States, tt.want)
			}
		}
	}
}
