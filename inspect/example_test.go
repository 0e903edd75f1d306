package inspect_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/inspect"
)

// What is wrong, and what to do about it.
func ExampleInspector_Status() {
	tell := func(ctx context.Context, pool *pgxpool.Pool, nc *nats.Conn) error {
		status, err := inspect.New(pool, nc, inspect.Config{}).Status(ctx)
		if err != nil {
			return err
		}
		for _, f := range status.Findings {
			fmt.Println(f.Text+":", f.Do)
		}
		return nil
	}
	_ = tell
}

// What became of one event.
func ExampleInspector_Event() {
	tell := func(ctx context.Context, pool *pgxpool.Pool, nc *nats.Conn) error {
		journey, err := inspect.New(pool, nc, inspect.Config{}).Event(ctx, "/shop", "order-7")
		if err != nil {
			return err
		}
		for _, m := range journey.Timeline() {
			fmt.Println(m.At, m.Where, m.Text)
		}
		return nil
	}
	_ = tell
}
