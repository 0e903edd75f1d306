package operator_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/outbox"
)

// A consumer lost its data about an order, so the order's events are published again. The leading
// relay does that. The consumer's inbox recognises events that it still has.
func ExampleStore_Republish() {
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

	store := operator.New(pool, operator.Config{})
	order := operator.RepublishRequest{Keys: []string{"o-1"}}
	_, err = store.Republish(ctx, order, postroom.Audit{Actor: "ann", Reason: "restored from yesterday"})
	fmt.Println("nothing is published yet:", errors.Is(err, operator.ErrNoEvents))

	publish(ctx, pglog.New(pool)) // a relay does this
	r, err := store.Republish(ctx, order, postroom.Audit{Actor: "ann", Reason: "restored from yesterday"})
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
