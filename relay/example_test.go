package relay_test

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

// A relay publishes what committed, until ctx ends. Several may run: one leads, and the
// others wait to take its place.
func ExampleNew() {
	publish := func(ctx context.Context, pool *pgxpool.Pool, url string) error {
		nc, err := nats.Connect(url, natsjs.ConnectOptions()...)
		if err != nil {
			return err
		}
		defer nc.Close()
		r := relay.New(outbox.NewLog(pool), natsjs.NewPublisher(nc), relay.Config{})
		if err := r.Check(ctx); err != nil { // says what is missing, before events wait for it
			return err
		}
		return r.Run(ctx)
	}
	_ = publish
}
