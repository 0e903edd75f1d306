package inbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// The server lacks resources for some events and not for others: for instance temporary files, or
// room for locks. These events stop no others, however many they are. They cost no attempt,
// because the server may lack them for all.
func TestEventsForWhichTheServerLacksResources(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(sub *inbox.Subscription){
		"plain":   func(*inbox.Subscription) {},
		"batch":   func(sub *inbox.Subscription) { sub.Batch = 10 },
		"ordered": func(sub *inbox.Subscription) { sub.Order = inbox.HoldKey },
	} {
		for _, code := range []string{"53200", "53400"} {
			t.Run(name+" "+code, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				sub := b.subscription("h")
				sub.Workers = 2
				change(&sub)
				b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
					if strings.HasPrefix(ev.ID, "bad") {
						_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE SQLSTATE '"+code+"'; END $$")
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
