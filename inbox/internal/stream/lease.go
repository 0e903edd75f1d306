package stream

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/sleep"
)

// noteEvery is how often a reader records its floor while the floor moves.
const noteEvery = time.Second

// A lease is this process's right to read the stream for an ordered handler. One process at a time
// has the lease. If a stalled process resumes after it lost the lease, the inbox rows prevent a
// second effect, and the process cannot record its floor.
type lease struct {
	epoch int64     // a number that no earlier lease had
	taken time.Time // just before this process sent the statement that took the lease

	noted        delivery.Position // the floor in the database
	over         chan struct{}     // closed when the lease has ended, and no delivery may begin any more
	cause        atomic.Pointer[error]
	renewalEnded chan struct{} // closed when this process no longer renews the lease
	stopRenewing context.CancelFunc

	record func(ctx context.Context, lease *time.Duration, floor delivery.Position) error // see Records.Keep
	done   func()
}

// IsOver reports whether the lease has ended. If so, deliveries that were read with this lease must
// not begin any more, because they will be read again.
func (l *lease) IsOver() bool { return l.cause.Load() != nil }

// end ends the lease for the given reason.
func (l *lease) end(err error) {
	if l.cause.CompareAndSwap(nil, &err) {
		close(l.over)
	}
}

// Epoch returns a number that no earlier lease had.
func (l *lease) Epoch() int64 { return l.epoch }

// keep renews the lease and records the floor, until ctx ends or the lease is lost.
func (t *term) keep(ctx context.Context) {
	defer close(t.renewalEnded)
	lease := t.reader.AckWait
	t.record, t.done = t.reader.records.Keep(t.epoch)
	kept := t.taken
	for ; ctx.Err() == nil && !t.IsOver(); sleep.For(ctx, min(noteEvery, lease/3)) {
		if t.floor.now() == t.noted && time.Since(kept) < lease/3 {
			continue
		}
		began := time.Now()
		before, cancel := context.WithDeadline(ctx, kept.Add(lease)) // a statement that hangs must not wait longer than the lease lasts
		floor := t.floor.now()
		err := t.record(before, &lease, floor)
		cancel()
		switch {
		case err == nil:
			kept, t.noted = began, floor
		case errors.Is(err, delivery.ErrTermOver):
			t.end(err)
		case time.Since(kept) >= lease:
			t.end(fmt.Errorf("%w, as far as can be told: %w", delivery.ErrTermOver, err))
		case ctx.Err() == nil:
			t.reader.Log.DebugContext(ctx, "reader's lease not renewed", "error", err)
		}
	}
}

// leave ends the term, records the floor and gives up the lease, so that another process can go on
// at once. If an event still runs here, the next reader reads it again. The inbox row prevents a
// second effect.
func (t *term) leave(ctx context.Context) {
	t.end(delivery.ErrTermOver)
	t.stopRenewing()
	<-t.renewalEnded
	defer t.done()
	if err := t.record(context.WithoutCancel(ctx), nil, t.floor.now()); err != nil && !errors.Is(err, delivery.ErrTermOver) {
		t.reader.Log.WarnContext(ctx, "reader's lease not given up, it will expire", "error", err)
	}
}
