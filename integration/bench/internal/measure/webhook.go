package measure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom/integration/bench/internal/webhooks"
)

// webhookPart is the divisor of Config.Events that gives the number of accepted events.
const webhookPart = 20

// ackTrial measures how many webhooks the handler that handle returns acknowledges per second.
func ackTrial(handle func(e *endpoint) http.Handler) trial {
	return receiveTrial(handle, throughput)
}

// answerTrial measures how long the answers to webhooks take while all clients send webhooks.
func answerTrial(handle func(e *endpoint) http.Handler) trial {
	return receiveTrial(handle, func(ctx context.Context, b *bench, do func(ctx context.Context) error) (sample, error) {
		var mu sync.Mutex
		var took []float64                        // in milliseconds
		settled := time.Now().Add(b.cfg.Span / 5) // before this time the clients connect and prepare statements
		_, err := throughput(ctx, b, func(ctx context.Context) error {
			began := time.Now()
			err := do(ctx)
			if began.After(settled) {
				mu.Lock()
				defer mu.Unlock()
				took = append(took, float64(time.Since(began))/float64(time.Millisecond))
			}
			return err
		})
		if err == nil && len(took) == 0 {
			err = errors.New("no request ended in the time")
		}
		if err != nil {
			return sample{}, err
		}
		slices.Sort(took)
		return sample{value: percentile(took, 99), p50: percentile(took, 50)}, nil
	})
}

// receiveTrial returns a trial in which clients send webhooks.
func receiveTrial(handle func(e *endpoint) http.Handler, measure func(ctx context.Context, b *bench, do func(ctx context.Context) error) (sample, error)) trial {
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
		return measure(ctx, b, func(ctx context.Context) error {
			return webhooks.Send(ctx, e.client, e.url+"/orders", fmt.Sprint("msg_", e.serial.Add(1)), e.data)
		})
	}
}

func receivedWebhooks(e *endpoint) http.Handler {
	return webhooks.Received(e.pool, e.schema, e.log)
}

func handWebhooks(e *endpoint) http.Handler { return webhooks.ByHand(e.pool, e.schema) }

// effectTrial measures how many webhooks take effect per second. The function prepare stores n
// webhooks, and returns the function that handles them.
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
		var took time.Duration
		err = b.timed(func() error {
			began := time.Now()
			defer func() { took = time.Since(began) }()
			return handle()
		})
		return sample{value: float64(n) / took.Seconds()}, err
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
