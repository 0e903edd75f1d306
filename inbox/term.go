package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// errTermOver says that another process reads the stream.
var errTermOver = errors.New("another process reads the stream for this handler now")

// noteEvery is how often a reader notes its floor while it moves.
const noteEvery = time.Second

// term is the time for which this process reads the stream of an ordered handler.
// Only one does at a time; what one that stood still goes on with meets the ledger,
// and can note nothing.
type term struct {
	c      *consumer
	number int64 // tells it from earlier ones
	base   int64
	high   int64 // the last place of a key in which an event was held at the beginning
	stream jetstream.Stream

	taken time.Time // before the statement that took the lease was sent

	subjects []string // every one that any process asked for until the term began

	floor floor
	noted mark // the floor, as the database has it

	left atomic.Int32 // how many events that it reads are suspects

	over   chan struct{} // closed when what was read is not to be begun any more
	cause  atomic.Pointer[error]
	kept   chan struct{} // closed when the lease is no longer looked after
	unkeep context.CancelFunc
}

// IsOver reports whether what was read in this term is not to be begun any more: it
// will be read again.
func (t *term) IsOver() bool {
	return t.cause.Load() != nil
}

// end ends the term, for the given reason.
func (t *term) end(err error) {
	if t.cause.CompareAndSwap(nil, &err) {
		close(t.over)
	}
}

// Suspects reports whether what is read now may be what ends processes.
func (t *term) Suspects() bool { return t.left.Load() > 0 }

// Epoch tells this term from earlier ones.
func (t *term) Epoch() int64 { return t.number }

// Ack notes that a delivery needs no more reading.
func (t *term) Ack(_ context.Context, d *delivery.Delivery) { t.floor.decided(d.Place.Seq) }

// HandBack ends the term: a reader cannot return a message, and what it read is read again.
func (t *term) HandBack(context.Context, *delivery.Delivery) { t.end(errHandedBack) }

// Delay ends the term, as handBack does.
func (t *term) Delay(_ context.Context, _ *delivery.Delivery, err error) { t.end(err) }

var errHandedBack = errors.New("an event was handed back; reading begins again before it")

// keep looks after the lease until ctx ends or the lease is lost. It has a connection
// of its own: handlers may have all others.
func (t *term) keep(ctx context.Context) {
	defer close(t.kept)
	lease := t.c.inbox.cfg.AckWait
	var conn *pgxpool.Conn
	defer func() {
		if conn != nil {
			conn.Release()
		}
	}()
	kept := t.taken
	for ; ctx.Err() == nil && !t.IsOver(); sleep(ctx, min(noteEvery, lease/3)) {
		if t.floor.now() == t.noted && time.Since(kept) < lease/3 {
			continue
		}
		began := time.Now()
		before, cancel := context.WithDeadline(ctx, kept.Add(lease)) // what hangs is not waited for beyond it
		err := t.note(before, &conn, &lease)
		cancel()
		switch {
		case err == nil:
			kept = began
		case errors.Is(err, errTermOver):
			t.end(err)
		case time.Since(kept) >= lease:
			t.end(fmt.Errorf("%w, as far as can be told: %w", errTermOver, err))
		case ctx.Err() == nil:
			t.c.log.DebugContext(ctx, "the reader's lease could not be renewed", "error", err)
		}
	}
}

// note writes the floor, and renews the lease, or gives it up where it is nil.
func (t *term) note(ctx context.Context, conn **pgxpool.Conn, lease *time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	if *conn == nil {
		if *conn, err = t.c.inbox.pool.Acquire(ctx); err != nil {
			return fmt.Errorf("note floor: %w", err)
		}
	}
	m := t.floor.now()
	tag, err := (*conn).Exec(ctx, t.c.inbox.sql.keep, t.c.sub.Name, t.number, lease, m.seq, optional(m.id), optional(m.stored))
	switch {
	case err != nil:
		(*conn).Release() // which closes one that is broken
		*conn = nil
		return fmt.Errorf("note floor: %w", err)
	case tag.RowsAffected() == 0:
		return errTermOver
	}
	t.noted = m
	return nil
}

// leave ends the term and gives the lease up, with the floor as it stands: another
// process may go on at once. What still runs here is decided, or read again.
func (t *term) leave(ctx context.Context) {
	t.end(errTermOver)
	t.unkeep()
	<-t.kept
	var conn *pgxpool.Conn
	if err := t.note(context.WithoutCancel(ctx), &conn, nil); err != nil && !errors.Is(err, errTermOver) {
		t.c.log.WarnContext(ctx, "the reader's lease could not be given up and will run out", "error", err)
	}
	if conn != nil {
		conn.Release()
	}
}

// Held notes that a suspect is held: from there it runs alone.
func (t *term) Held(h delivery.Holding) {
	if h.Solitary && t.left.Add(-1) == 0 {
		t.c.log.Info("the events that were read when readers ended are held, reading goes on", "stream", t.c.sub.Stream) //nolint:sloglint // no context says more
	}
}

// is reports whether two messages are the same one, as far as the database can tell.
func (m mark) is(other mark) bool {
	return m.id == other.id && m.stored.Truncate(time.Microsecond).Equal(other.stored.Truncate(time.Microsecond))
}
