package inbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/propagation"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/wire"
)

// maxRounds is how often one delivery is run again, at once, after a fault that
// is nobody's: a serialization failure, a deadlock, a commit whose answer was
// lost.
const maxRounds = 10

// shortestWait keeps RetryAfter(0, err) from running a handler without a pause.
const shortestWait = 10 * time.Millisecond

var (
	// errDuplicate says that the event is decided already: nothing is to be done.
	errDuplicate = errors.New("duplicate")

	// errConflict says that another event was decided under the same identity.
	errConflict = errors.New("another event was decided under this identity")
)

// delivery is one event on its way into a handler.
type delivery struct {
	ev      postroom.Event
	key     string // the dedupe key
	digest  []byte
	attempt int // counts the broker's deliveries, from 1
}

// deliver brings one message to its end: acknowledged, after its effect is
// committed or was before; or returned to the broker, to come again later.
// ctx ends when the process is to stop, work when it may not wait any longer.
func (c *consumer) deliver(ctx, work context.Context, msg jetstream.Msg) {
	d, err := c.read(msg)
	if err != nil {
		c.log.ErrorContext(work, "message is no event and stays in the stream", "error", err, "subject", msg.Subject())
		c.settle(work, msg.NakWithDelay(lastWait(c.sub.Schedule)), "nak")
		c.metrics.ended(work, undecodable, time.Time{})
		return
	}
	if len(c.sub.Types) > 0 && !slices.Contains(c.sub.Types, msg.Subject()) {
		// A newer process of this handler asked for it: it is that one's to handle.
		c.settle(work, msg.NakWithDelay(lastWait(c.sub.Schedule)), "nak")
		c.metrics.ended(work, released, time.Time{})
		return
	}
	if len(c.sub.Types) > 0 && !slices.Contains(c.sub.Types, d.ev.Type) {
		c.settle(work, msg.Ack(), "ack")
		c.metrics.ended(work, skipped, time.Time{})
		return
	}

	err = c.decide(ctx, work, d)
	switch {
	case err == nil:
		c.settle(work, msg.Ack(), "ack")
		c.metrics.ended(work, done, d.ev.LoggedAt)
	case errors.Is(err, errDuplicate):
		c.settle(work, msg.Ack(), "ack")
		c.metrics.ended(work, duplicate, time.Time{})
	case work.Err() != nil || ctx.Err() != nil && isOutage(err):
		c.settle(work, msg.Nak(), "nak") // no attempt: the process stops
		c.metrics.ended(work, released, time.Time{})
	default:
		c.postpone(work, msg, d, err)
	}
}

// postpone gives a failed event back to the broker until its next attempt.
func (c *consumer) postpone(ctx context.Context, msg jetstream.Msg, d delivery, err error) {
	wait, asked := postroom.RetryDelay(err)
	ended := failed
	switch {
	case errors.Is(err, errConflict):
		ended, wait = conflict, lastWait(c.sub.Schedule)
	case errors.Is(err, postroom.ErrPermanent):
		wait = lastWait(c.sub.Schedule)
	case !asked:
		wait = c.sub.Schedule.Delay(d.attempt)
	}
	log := c.log
	var panicked *panicError
	if errors.As(err, &panicked) {
		log = log.With("stack", string(panicked.stack))
	}
	log.WarnContext(ctx, "event not handled, will be delivered again", "event_id", d.ev.ID, "type", d.ev.Type,
		"dedupe_key", d.key, "correlation_id", d.ev.CorrelationID, "attempt", d.attempt, "retry_in", wait, "error", err)
	c.settle(ctx, msg.NakWithDelay(max(wait, shortestWait)), "nak")
	c.metrics.ended(ctx, ended, time.Time{})
}

func lastWait(schedule postroom.Backoff) time.Duration { return schedule.Delay(len(schedule)) }

// read decodes a message and derives the event's identity.
func (c *consumer) read(msg jetstream.Msg) (delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return delivery{}, fmt.Errorf("read metadata: %w", err)
	}
	ev, err := wire.Decode(msg.Subject(), msg.Headers(), msg.Data())
	if err != nil {
		return delivery{}, err
	}
	if ev.ID == "" {
		// A stream that was deleted and made again counts from 1 again.
		ev.ID = c.sub.Stream + "@" + c.streamCreated.UTC().Format(time.RFC3339Nano) + "#" + strconv.FormatUint(meta.Sequence.Stream, 10)
	}
	if ev.LoggedAt.IsZero() {
		ev.LoggedAt = meta.Timestamp
	}
	return delivery{
		ev: ev, key: dedupeKey(ev), digest: digest(ev),
		attempt: int(min(meta.NumDelivered, 1<<20)), //nolint:gosec // bounded just here
	}, nil
}

// dedupeKey is source and id. A source of ours has no white space in it; one
// that has must not be taken for another that ends earlier.
func dedupeKey(ev postroom.Event) string {
	return strings.ReplaceAll(ev.Source, " ", "%20") + " " + ev.ID
}

// digest is the first 16 bytes of SHA-256 over type and data.
func digest(ev postroom.Event) []byte {
	h := sha256.New()
	h.Write([]byte(ev.Type))
	h.Write([]byte{0}) // no type has it in it
	h.Write(ev.Data)
	return h.Sum(nil)[:16]
}

// decide applies an event, again where what went wrong was no fault of the
// event's: contention up to maxRounds times, an outage for as long as it lasts,
// unless the process is to stop.
func (c *consumer) decide(ctx, work context.Context, d delivery) error {
	carrier := propagation.MapCarrier{"traceparent": d.ev.TraceParent, "tracestate": d.ev.TraceState}
	traced := propagation.TraceContext{}.Extract(work, carrier)
	rounds, failures := 0, 0
	for {
		err := c.apply(traced, d)
		switch {
		case isOutage(err) && ctx.Err() == nil:
			failures++
			c.log.WarnContext(work, "database out of reach, waiting", "error", err, "failures", failures)
			sleep(ctx, outage.Delay(failures))
		case isContention(err) && work.Err() == nil && rounds+1 < maxRounds:
			rounds++
		default:
			return err
		}
	}
}

// apply is one transaction: the ledger row, the handler, the commit.
func (c *consumer) apply(ctx context.Context, d delivery) error {
	tx, err := c.inbox.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: c.inbox.sql.begin})
	if err != nil {
		return &beginError{err}
	}
	if err := c.run(ctx, tx, d); err != nil {
		err = lost(tx, err)
		c.rollback(ctx, tx)
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return &commitError{err}
	}
	return nil
}

// run is what happens inside the transaction of a delivery.
func (c *consumer) run(ctx context.Context, tx pgx.Tx, d delivery) error {
	tag, err := tx.Exec(ctx, c.inbox.sql.decide, c.sub.Name, d.key, d.digest)
	if err != nil {
		return &ledgerError{err}
	}
	if tag.RowsAffected() == 0 {
		var same bool
		if err := tx.QueryRow(ctx, c.inbox.sql.decided, c.sub.Name, d.key, d.digest).Scan(&same); err != nil {
			return fmt.Errorf("compare ledger row: %w", err)
		}
		if !same {
			return errConflict
		}
		return errDuplicate
	}
	if err := c.call(ctx, tx, d.ev); err != nil {
		return &postroom.EventError{Op: "handle", ID: d.ev.ID, Type: d.ev.Type, Err: err}
	}
	return nil
}

// rollback ends a transaction that did not commit. Its context may have ended;
// the connection should still be given back in order.
func (c *consumer) rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		c.log.DebugContext(ctx, "rollback not answered; the server rolls back by itself", "error", err)
	}
}

// errGoexit says that a handler ended its goroutine, as t.FailNow does.
var errGoexit = errors.New("the handler ended its goroutine with runtime.Goexit")

// call runs the handler, in a goroutine of its own: one that ends with
// runtime.Goexit takes no worker with it. A panic is an error like any other,
// with its stack.
func (c *consumer) call(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	done := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() {
			if p := recover(); p != nil {
				err = &panicError{value: p, stack: debug.Stack()}
			}
			done <- err
		}()
		err = c.handler.Handle(ctx, tx, ev)
	}()
	return <-done
}
