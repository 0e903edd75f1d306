package republish_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/republish"
)

// A consumer lost its data about an order, so the order's events are published again. The leading
// relay does that. The consumer's inbox recognises events that it still has.
func ExampleStore_Start() {
	servers := devtest.ForExample() // a migrated database
	defer servers.Close()
	ctx, pool := context.Background(), servers.Pool

	shop := outbox.New(outbox.Config{Source: "/shop"})
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		placed := postroom.NewEvent("order.placed", map[string]string{"id": "o-1"})
		placed.Key = "o-1"
		return shop.Write(ctx, tx, placed, postroom.NewEvent("order.placed", map[string]string{"id": "o-2"}))
	})
	fmt.Println("write:", err)

	store := republish.New(pool)
	order := republish.Request{Keys: []string{"o-1"}, Actor: "ann", Reason: "restored from yesterday"}
	_, err = store.Start(ctx, order)
	fmt.Println("nothing is published yet:", errors.Is(err, republish.ErrNoEvents))

	publish(ctx, outbox.NewLog(pool)) // a relay does this
	r, err := store.Start(ctx, order)
	fmt.Println(r.State, r.Events, "event,", err)
	// Output:
	// write: <nil>
	// nothing is published yet: true
	// running 1 event, <nil>
}

// publish does what a relay does if its broker acknowledges everything.
func publish(ctx context.Context, log eventlog.Source) {
	term, err := log.Lead(ctx, "example", time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	page, err := term.Read(ctx, 100, nil)
	var done eventlog.Progress
	for _, ev := range page.Events {
		done.Published = append(done.Published, ev.Seq)
	}
	if err := errors.Join(err, term.Release(ctx, done)); err != nil {
		fmt.Println(err)
	}
}
