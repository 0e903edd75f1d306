package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// externalJob is the job of a process with an external handler.
type externalJob struct {
	Stream  string
	Vendor  string // its URL
	Handler string
	Steps   []string
	Workers int
	AckWait time.Duration
	Timeout time.Duration
}

// runErrands is the process with an external handler.
func runExternalJob() error {
	var e externalJob
	ctx, pool, nc, err := connect(&e, func(cfg *pgxpool.Config, _ *nats.Conn) { cfg.MaxConns = 8 })
	if err != nil {
		return err
	}
	defer nc.Close()
	defer pool.Close()
	in := inbox.New(pool, nc, inbox.Config{AckWait: e.AckWait, IdlePoll: 50 * time.Millisecond, Logger: toParent})
	in.HandleExternal(inbox.Subscription{
		Name: e.Handler, Stream: e.Stream, Types: []string{e.Stream + ".placed"}, Workers: e.Workers, Timeout: e.Timeout,
		VendorWindow: time.Hour, Attempts: 20, Schedule: postroom.Backoff{20 * time.Millisecond},
	}, e.handle)
	return in.Run(ctx)
}

// handle makes the calls of one event, and records the event in the transaction that finishes it.
func (e *externalJob) handle(ctx context.Context, attempt *inbox.Attempt) error {
	for _, name := range e.Steps {
		result, err := inbox.Step(ctx, attempt, name, func(ctx context.Context, key string) (string, error) {
			return e.call(ctx, key, attempt.Event.ID+" "+name)
		})
		if err != nil {
			return err
		}
		if want := "done " + attempt.Event.ID + " " + name; result != want {
			return postroom.Permanent(fmt.Errorf("the step returned %q, want %q", result, want))
		}
	}
	attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return note(ctx, tx, e.Handler, attempt.Event) })
	return nil
}

// call asks the vendor for one thing.
func (e *externalJob) call(ctx context.Context, key, what string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.Vendor, strings.NewReader(what))
	if err != nil {
		return "", err
	}
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Process", strconv.Itoa(os.Getpid()))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("vendor: %s", resp.Status)
	}
	return string(body), err
}
