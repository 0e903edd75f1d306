package stream

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/pause"
)

// noteEvery is how often a reader notes its floor while it moves.
const noteEvery = time.Second

// lease is this process's right to read the stream for an ordered handler. Only one has
// it at a time; what one that stood still goes on with meets the ledger, and can note
// nothing.
type lease struct {
	epoch int64     // tells it from earlier ones
	taken time.Time // before the statement that took it was sent

	noted  delivery.Position // the floor, as the database has it
	over   chan struct{}     // closed when what was read is not to be begun any more
	cause  atomic.Pointer[error]
	kept   chan struct{} // closed when the lease is no longer looked after
	unkeep context.CancelFunc
}

// IsOver reports whether what was read under the lease is not to be begun any more: it
// will be read again.
func (l *lease) IsOver() bool { return l.cause.Load() != nil }

// end has what was read under the lease not be begun any more, for the given reason.
func (l *lease) end(err error) {
	if l.cause.CompareAndSwap(nil, &err) {
		close(l.over)
	}
}

// Epoch tells this lease from earlier ones.
func (l *lease) Epoch() int64 { return l.epoch }

// keep looks after the lease until ctx ends or the lease is lost.
func (t *term) keep(ctx context.Context) {
	defer close(t.kept)
	lease := t.reader.AckWait
	keep, done := t.reader.records.Keep(t.epoch)
	defer done()
	kept := t.taken
	for ; ctx.Err() == nil && !t.IsOver(); pause.For(ctx, min(noteEvery, lease/3)) {
		if t.floor.now() == t.noted && time.Since(kept) < lease/3 {
			continue
		}
		began := time.Now()
		before, cancel := context.WithDeadline(ctx, kept.Add(lease)) // what hangs is not waited for beyond it
		floor := t.floor.now()
		err := keep(before, &lease, floor)
		cancel()
		switch {
		case err == nil:
			kept, t.noted = began, floor
		case errors.Is(err, delivery.ErrTermOver):
			t.end(err)
		case time.Since(kept) >= lease:
			t.end(fmt.Errorf("%w, as far as can be told: %w", delivery.ErrTermOver, err))
		case ctx.Err() == nil:
			t.reader.Log.DebugContext(ctx, "the reader's lease could not be renewed", "error", err)
		}
	}
}

// leave ends the term and gives the lease up, with the floor as it stands: another
// process may go on at once. What still runs here is decided, or read again.
func (t *term) leave(ctx context.Context) {
	t.end(delivery.ErrTermOver)
	t.unkeep()
	<-t.kept
	keep, done := t.reader.records.Keep(t.epoch)
	defer done()
	if err := keep(context.WithoutCancel(ctx), nil, t.floor.now()); err != nil && !errors.Is(err, delivery.ErrTermOver) {
		t.reader.Log.WarnContext(ctx, "the reader's lease could not be given up and will run out", "error", err)
	}
}
