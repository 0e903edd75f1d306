package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// Events died because their handler had a fault. The operator looks for the common cause, corrects
// the handler and replays the events. The handler takes effect once for each event.
func ExampleStore_CreateReplay() {
	servers := devtest.ForExample() // a migrated database
	defer servers.Close()
	ctx, pool := context.Background(), servers.Pool
	for i := range 3 {
		die(ctx, pool, fmt.Sprintf("o-%d", i))
	}

	store := deadletter.New(pool, deadletter.Config{})
	list, err := store.Groups(ctx, deadletter.Filter{Handler: "billing.charge"})
	for _, g := range list.Groups {
		fmt.Println(g.Events, "of", g.Types, "died of a", g.Class, "failure") // and g.Error
	}
	fmt.Println(err)

	job, err := store.CreateReplay(ctx, deadletter.Filter{Handler: "billing.charge"},
		deadletter.ReplayOptions{Canary: 1}, // one event first; the others follow if it succeeds
		postroom.Audit{Actor: "ada", Reason: "the prices are back"})
	fmt.Println(job.Events, "to replay:", err)
	run(ctx, pool, nil, func(ctx context.Context) { // processes with the corrected handler run
		job, err = store.RunReplay(ctx, job.ID, deadletter.RunOptions{})
	})
	fmt.Println(job.State, job.Succeeded, "succeeded:", err)
	// Output:
	// 3 of [order.placed] died of a permanent failure
	// <nil>
	// 3 to replay: <nil>
	// done 3 succeeded: <nil>
}

// A customer took an order back. Its dead event is discarded, and kept with the reason.
func ExampleStore_Discard() {
	servers := devtest.ForExample()
	defer servers.Close()
	ctx, pool := context.Background(), servers.Pool
	die(ctx, pool, "o-1")

	store := deadletter.New(pool, deadletter.Config{})
	n, err := store.Discard(ctx, deadletter.Filter{Key: "o-1"}, deadletter.ChangeOptions{}, postroom.Audit{Actor: "ada", Reason: "the order was taken back"})
	fmt.Println(n, "discarded:", err)
	letters, _, err := store.List(ctx, deadletter.Filter{Discarded: true}, postroom.Page{})
	for _, l := range letters {
		fmt.Println(l.Key, "is", l.State)
	}
	fmt.Println(err)
	// Output:
	// 1 discarded: <nil>
	// o-1 is discarded
	// <nil>
}

// die makes a dead event for billing.charge.
func die(ctx context.Context, pool *pgxpool.Pool, key string) {
	run(ctx, pool, postroom.Permanent(errors.New("no price")), func(ctx context.Context) {
		in := billing(pool, nil)
		ev := postroom.NewEvent("order.placed", nil)
		ev.Source, ev.Key = "/shop", key
		if _, err := in.Accept(ctx, "billing.charge", ev); err != nil {
			fmt.Println("accept:", err)
		}
		for n := int64(0); n == 0 && ctx.Err() == nil; {
			n, _, _ = deadletter.New(pool, deadletter.Config{}).Count(ctx, deadletter.Filter{Key: key})
		}
	})
}

// run runs billing.charge, which returns the given error for each event, while f runs.
func run(ctx context.Context, pool *pgxpool.Pool, result error, f func(ctx context.Context)) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	in := billing(pool, result)
	done := make(chan error)
	go func() { done <- in.Run(ctx) }()
	f(ctx)
	stop()
	if err := <-done; err != nil {
		fmt.Println("run:", err)
	}
}

// billing returns an inbox whose handler billing.charge returns the given error.
func billing(pool *pgxpool.Pool, result error) *inbox.Inbox {
	in := inbox.New(pool, nil, inbox.Config{Logger: slog.New(slog.DiscardHandler)})
	in.Handle(inbox.Subscription{Name: "billing.charge"},
		postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error { return result }))
	return in
}
