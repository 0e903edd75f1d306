package inspect_test

import (
	"testing"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/inspect"
)

// The status counts the late events with which a relay catches up.
func TestTheStatusCountsWhatARelayCatchesUpWith(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for _, sql := range []string{
		"INSERT INTO postroom.outbox (digest, event_id, source, type, subject, data) SELECT decode(repeat('00', 16), 'hex'), n::text, '/shop', 'a', 'a', '' FROM generate_series(1, 3) n",
		"UPDATE postroom.relay SET high = 3, snap = '1:1:', catch_up_snap = pg_current_snapshot(), catch_up_passed = 1",
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	s, err := inspect.New(pool, nil, inspect.Config{}).Status(t.Context())
	if err != nil || s.Relay.EstimatedUnpublished != 2 || s.Relay.OldestUnpublishedAt.IsZero() {
		t.Errorf("%+v, %v; want 2 events that are not published", s.Relay, err)
	}
}
