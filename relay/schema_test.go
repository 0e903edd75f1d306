package relay_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/schema"
)

// A relay publishes the events of the schema that its Config names, and no others.
func TestRelayOfASchema(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	if _, err := schema.Migrate(t.Context(), pool, "mail"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "mail"} {
		shop := outbox.New(outbox.Config{Source: "/shop", Schema: name})
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return shop.Write(t.Context(), tx, postroom.NewEvent("order.placed", 1))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	r := relay.New(pool, promptPublisher{}, relay.Config{Schema: "mail"})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	devtest.Eventually(t, 30*time.Second, "the relay to record the event", func() bool {
		lag, err := r.Lag(t.Context())
		return err == nil && lag.Appended == 1 && lag.Events == 0
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	other, err := relay.New(pool, promptPublisher{}, relay.Config{}).Lag(t.Context())
	if err != nil || other.Events != 1 || other.Age <= 0 {
		t.Errorf("the lag of the schema postroom is %+v, %v: want one event", other, err)
	}
	if err := relay.New(pool, promptPublisher{}, relay.Config{Schema: "a b"}).Check(t.Context()); !errors.Is(err, schema.ErrInvalidName) || !errors.Is(err, postroom.ErrUnrecoverable) {
		t.Errorf("Check with an invalid name: %v", err)
	}
}

// Lag counts the outgoing events that are held, by what they wait for.
func TestLagCountsHeldEvents(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	const columns = "handler, pos, chain, next_at, first_failed_at, dead_at, class, logged_at, source, event_id, type, subject, content_type, data"
	for n, values := range []string{
		1: "NULL, now() + interval '1 h', NULL, NULL, NULL",
		2: "'k', now(), now(), NULL, 'x'",
		3: "'k', NULL, NULL, NULL, NULL",
		4: "'k', NULL, NULL, NULL, NULL",
		5: "NULL, NULL, now(), now(), 'x'",
	} {
		if values == "" {
			continue
		}
		_, err := pool.Exec(t.Context(), "INSERT INTO postroom.held ("+columns+") SELECT 'outbox', $1::bigint, "+values+", now(), '/shop', $1::text, 'a.b', 'a.b', 'text/plain', ''", n)
		if err != nil {
			t.Fatal(err)
		}
	}
	lag, err := relay.New(pool, promptPublisher{}, relay.Config{}).Lag(t.Context())
	if want := (relay.Lag{Scheduled: 1, Retrying: 1, Waiting: 2, Dead: 1}); err != nil || lag != want {
		t.Errorf("Lag = %+v, %v: want %+v", lag, err, want)
	}
}
