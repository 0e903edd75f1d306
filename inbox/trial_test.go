package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// A dry run reports what the handler would change, not earlier changes on its connection: the
// server adds those to its statistics a second later.
func TestDryRunReportsOnlyItsOwnChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config()
	cfg.IdlePoll = 5 * time.Millisecond
	b.in = inbox.New(b.pool, b.nc, cfg)
	var mended atomic.Bool
	works := effect("billing")
	b.in.Handle(b.subscription("billing"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID == "broken" && !mended.Load() {
			return postroom.Permanent(errors.New("on purpose"))
		}
		return works.Handle(ctx, tx, ev)
	}))
	b.run()
	b.publish("broken", "e1", "e2", "e3", "e4", "e5")
	b.eventually("one to be dead, and the others done", func() bool { return b.dead("billing") == 1 && len(b.effects("billing")) == 5 })
	mended.Store(true)
	for range 10 {
		var id int64
		err := b.pool.QueryRow(t.Context(), "INSERT INTO postroom.dry_run (handler, held) SELECT handler, id FROM postroom.held RETURNING id").Scan(&id)
		if err != nil {
			t.Fatal(err)
		}
		var told []byte
		b.eventually("an answer", func() bool {
			if err := b.pool.QueryRow(t.Context(), "SELECT outcome FROM postroom.dry_run WHERE id = $1", id).Scan(&told); err != nil {
				t.Fatal(err)
			}
			return told != nil
		})
		var outcome struct {
			Verdict string
			Changes []struct {
				Name     string
				Inserted int64
			}
		}
		if err := json.Unmarshal(told, &outcome); err != nil {
			t.Fatal(err)
		}
		if c := outcome.Changes; outcome.Verdict != "passes" || len(c) != 1 || c[0].Name != "public.effect" || c[0].Inserted != 1 {
			t.Fatalf("the dry run reports %s, want only one row in public.effect", told)
		}
	}
	if n := len(b.effects("billing")); n != 5 {
		t.Errorf("%d events took effect, want 5: a dry run has no effect", n)
	}
}
