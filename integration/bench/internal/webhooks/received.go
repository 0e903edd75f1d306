// Package webhooks has the work that the benchmark of webhooks measures: package webhook with an
// inbox, and the code that a service would have without Postroom.
package webhooks

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/webhook"
)

// Workers is the number of workers that run accepted events or jobs.
const Workers = 8

// secret is the secret with which the sender signs webhooks.
const secret = "bench bench bench bench!"

func scheme() webhook.Scheme {
	return webhook.Standard(base64.StdEncoding.EncodeToString([]byte(secret)))
}

// Received returns an HTTP handler. It receives webhooks with package webhook, and stores them as
// events for an inbox's handler in another process.
func Received(pool *pgxpool.Pool, schema string, log *slog.Logger) http.Handler {
	in := inbox.New(pool, nil, inbox.Config{Schema: schema, Logger: log})
	in.Declare(inbox.Subscription{Name: "bench"})
	return webhook.NewReceiver(in, webhook.ReceiverConfig{Source: "/bench", Handler: "bench", Scheme: scheme(), Logger: log})
}

// Send sends a signed webhook and reads the answer.
func Send(ctx context.Context, client *http.Client, url, id string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if err := webhook.Sign(scheme(), req.Header, webhook.Message{ID: id, Time: time.Now()}, body); err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the answer is %d: %.200s", resp.StatusCode, text)
	}
	return err
}

// Effect does the work of a handler or of a job.
type Effect func(ctx context.Context, tx pgx.Tx) error

// Backlog has accepted events, and the inbox that runs them.
type Backlog struct {
	in     *inbox.Inbox
	events int64
	ran    atomic.Int64 // the number of runs in which the handler returned no error
}

// Accept accepts events for a handler that calls the function effect.
func Accept(ctx context.Context, pool *pgxpool.Pool, schema string, log *slog.Logger, events int, data []byte, effect Effect) (*Backlog, error) {
	b := &Backlog{in: inbox.New(pool, nil, inbox.Config{Schema: schema, Logger: log}), events: int64(events)}
	b.in.Handle(inbox.Subscription{Name: "bench", Workers: Workers}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
		err := effect(ctx, tx)
		if err == nil {
			b.ran.Add(1)
		}
		return err
	}))
	for left := events; left > 0; {
		some := make([]inbox.Acceptance, min(left, 100))
		for i := range some {
			some[i] = inbox.Acceptance{Handler: "bench", Event: postroom.Event{ID: fmt.Sprint(left - i), Source: "/bench", Type: "bench", Data: data}}
		}
		if _, err := b.in.AcceptAll(ctx, some...); err != nil {
			return nil, err
		}
		left -= len(some)
	}
	return b, nil
}

// Handle runs the inbox until the inbox has no more work.
func (b *Backlog) Handle(ctx context.Context) (err error) {
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- b.in.Run(running) }()
	defer func() {
		stop()
		if failed := <-ended; err == nil {
			err = failed
		}
	}()
	for {
		over, err := b.isOver(ctx)
		if over || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// isOver reports whether no event is left. It asks the database only after the handler has run for
// every event, because earlier questions would slow the measured work.
func (b *Backlog) isOver(ctx context.Context) (bool, error) {
	if b.ran.Load() < b.events {
		return false, nil
	}
	left, err := b.in.Lag(ctx)
	return err == nil && left[0].Retrying == 0, err
}
