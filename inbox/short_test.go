package inbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// The server lacks resources for some events and not for others: for instance temporary files, or
// room for locks. Or a pooler keeps no prepared statements. These events stop no others, however many
// they are. They cost no attempt, because the same may happen to all.
func TestEventsForWhichTheServerLacksResources(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(sub *inbox.Subscription){
		"plain":   func(*inbox.Subscription) {},
		"batch":   func(sub *inbox.Subscription) { sub.Batch = 10 },
		"ordered": func(sub *inbox.Subscription) { sub.Order = inbox.HoldKey },
	} {
		for _, code := range []string{"53200", "53400", "42P05", "26000"} {
			t.Run(name+" "+code, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				sub := b.subscription("h")
				sub.Workers = 2
				change(&sub)
				b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
					if strings.HasPrefix(ev.ID, "bad") {
						_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE SQLSTATE '"+code+"' USING MESSAGE = 'prepared statement \"stmtcache_0a\"'; END $$")
						return fmt.Errorf("sort: %w", err)
					}
					return effect("h").Handle(ctx, tx, ev)
				}))
				b.publish("bad0", "bad1", "bad2")
				b.publish(ids("good", 5)...)
				b.run()
				b.eventually("the good ones, and the bad ones to wait", func() bool { return len(b.effects("h")) == 5 && len(b.held("h")) == 3 })
				b.wantOnce("h", ids("good", 5)...)
				for key, o := range b.held("h") {
					if o.State != "due" || o.Attempts != 0 || o.Class != code {
						t.Errorf("%s: %+v, want due, without an attempt, of class %s", key, o, code)
					}
				}
			})
		}
	}
}

// An event for which the server lacked resources three times in a row runs again half a minute later,
// by the clock, and that costs no attempt.
func TestServerThatLacksResourcesIsLeftAloneForHalfAMinute(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	runs := make(chan time.Time, 10)
	n := 0
	sub := b.subscription("h")
	sub.Attempts = 1
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		var now time.Time
		if err := tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
			return err
		}
		runs <- now
		if n++; n <= 3 {
			_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE SQLSTATE '53200'; END $$")
			return err
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	b.publish("a")
	b.run()
	var at [4]time.Time
	for i := range at {
		at[i] = devtest.Receive(t, time.Minute, fmt.Sprint("run ", i+1), runs)
	}
	if after := at[3].Sub(at[2]); after < 30*time.Second {
		t.Errorf("the event ran again after %s, want half a minute", after)
	}
	b.eventually("the effect", func() bool { return len(b.effects("h")) == 1 })
}
