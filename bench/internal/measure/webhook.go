package measure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/postroom/postroom/bench/internal/webhooks"
)

// webhookPart is the part of Config.Events that are accepted events.
const webhookPart = 20

// ackTrial measures how many webhooks are acknowledged in a second by what handle returns.
func ackTrial(handle func(e *endpoint) http.Handler) trial {
	return func(ctx context.Context, b *bench) (_ sample, err error) {
		e, err := openEndpoint(ctx, b)
		if err != nil {
			return sample{}, err
		}
		stop, err := e.serve(handle(e))
		if err != nil {
			return sample{}, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		return throughput(ctx, b, func(ctx context.Context) error {
			return webhooks.Send(ctx, e.client, e.url+"/orders", fmt.Sprint("msg_", e.serial.Add(1)), e.data)
		})
	}
}

func receivedWebhooks(e *endpoint) http.Handler {
	return webhooks.Received(e.pool, e.schema, e.log)
}

func handWebhooks(e *endpoint) http.Handler { return webhooks.ByHand(e.pool, e.schema) }

// effectTrial measures how many webhooks take effect in a second. prepare stores so many, and
// returns what handles them.
func effectTrial(prepare func(ctx context.Context, e *endpoint, n int) (handle func() error, err error)) trial {
	return func(ctx context.Context, b *bench) (sample, error) {
		e, err := openEndpoint(ctx, b)
		if err != nil {
			return sample{}, err
		}
		n := max(b.cfg.Events/webhookPart, 1)
		handle, err := prepare(ctx, e, n)
		if err == nil {
			err = b.rest(ctx)
		}
		if err != nil {
			return sample{}, err
		}
		began := time.Now()
		err = b.timed(handle)
		return sample{value: float64(n) / time.Since(began).Seconds()}, err
	}
}

func acceptedEvents(ctx context.Context, e *endpoint, n int) (func() error, error) {
	backlog, err := webhooks.Accept(ctx, e.pool, e.schema, e.log, n, e.data, e.place)
	return func() error { return backlog.Handle(ctx) }, err
}

func jobsByHand(ctx context.Context, e *endpoint, n int) (func() error, error) {
	err := webhooks.Keep(ctx, e.pool, e.schema, n, e.data)
	return func() error { return webhooks.Work(ctx, e.pool, e.schema, n, e.place) }, err
}
