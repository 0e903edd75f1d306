//go:build linux || darwin

package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// There is one handler of each kind. Each handler gets every event.
const (
	Moves   = "moves"   // transactional
	Letters = "letters" // external: it calls the vendor
	Books   = "books"   // ordered
	Counts  = "counts"  // in batches

	Vendor = "vendor" // not a handler: here the handler letters has effects outside the database
)

// Handlers returns the names of all handlers.
func Handlers() []string { return []string{Moves, Letters, Books, Counts} }

var errPoison = errors.New("this cannot be handled")

// consumer runs one handler.
type consumer struct {
	*worker

	pool *pgxpool.Pool
}

func runConsumer(ctx context.Context, w *worker) error {
	pool, err := w.connect(ctx, w.Books, 10)
	if err != nil {
		return err
	}
	defer pool.Close()
	nc, err := w.broker()
	if err != nil {
		return err
	}
	defer nc.Close()
	c := &consumer{worker: w, pool: pool}
	in := inbox.New(pool, nc, inbox.Config{
		AckWait: 2 * time.Second, DrainTimeout: 2 * time.Second, IdlePoll: 100 * time.Millisecond,
		Logger: w.log, MeterProvider: w.meters,
	})
	c.register(in)
	return in.Run(ctx)
}

// register registers this process's handler.
func (c *consumer) register(in *inbox.Inbox) {
	sub := inbox.Subscription{
		Name: c.Kind, Stream: Stream, Types: []string{Subject}, Workers: 4,
		Attempts: 3, Schedule: postroom.Backoff{50 * time.Millisecond, 200 * time.Millisecond}, Timeout: 5 * time.Second,
	}
	switch c.Kind {
	case Letters:
		sub.VendorWindow, sub.Workers = time.Hour, 16
		in.HandleExternal(sub, c.send)
		return
	case Books:
		sub.Order = inbox.HoldKey
	case Counts:
		sub.Batch = 20
	}
	in.Handle(sub, postroom.HandlerFunc(c.apply))
}

// apply makes the event's effect in the database.
func (c *consumer) apply(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	b, err := Read(ev.Data)
	if err != nil {
		return err
	}
	if err := c.stand(ctx, tx, ev.ID, b); err != nil {
		return err
	}
	return c.effect(ctx, tx, ev.ID, b)
}

// stand returns an error if this handler cannot handle the event. If an operator has repaired the
// handler for this event, stand returns nil.
func (c *consumer) stand(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, id string, b Body,
) error {
	if b.Poison != c.Kind {
		return nil
	}
	var mended bool
	err := db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM cure WHERE handler = $1 AND event = $2)", c.Kind, id).Scan(&mended)
	if err != nil {
		return err
	}
	if !mended {
		return errPoison
	}
	return nil
}

func (c *consumer) effect(ctx context.Context, tx pgx.Tx, id string, b Body) error {
	_, err := tx.Exec(ctx, "INSERT INTO effect (handler, event, key, n) VALUES ($1, $2, $3, $4)", c.Kind, id, b.Key, b.N)
	return err
}

// send makes the event's effect at the vendor, and then in the database.
func (c *consumer) send(ctx context.Context, attempt *inbox.Attempt) error {
	id := attempt.Event.ID
	b, err := Read(attempt.Event.Data)
	if err != nil {
		return err
	}
	if err := c.stand(ctx, c.pool, id, b); err != nil {
		return err
	}
	_, err = inbox.Step(ctx, attempt, "send", func(ctx context.Context, key string) (struct{}, error) {
		return struct{}{}, c.post(ctx, key, fmt.Sprintf("%s %d %d", id, b.Key, b.N))
	})
	if err != nil {
		return err
	}
	attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return c.effect(ctx, tx, id, b) })
	return nil
}

// post calls the vendor.
func (c *consumer) post(ctx context.Context, key, what string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Vendor, strings.NewReader(what))
	if err != nil {
		return err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // the body was only read
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("vendor: %s", resp.Status)
	}
	return nil
}
