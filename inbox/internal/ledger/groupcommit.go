package ledger

import (
	"context"
	"slices"
	"sync"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Group writes items of many callers together. While a statement is running, new items wait, and
// the next statement writes all of them. So a hundred workers need only few statements, and a
// single caller does not wait. If many items wait, two statements run at the same time.
type Group[T any] struct {
	// Write runs one statement for some items, and stores the result of each item in the item.
	Write func(ctx context.Context, items []T) error

	// Joint reports whether an item would fail too, because the item other failed with err. Joint
	// may be nil.
	Joint func(item, other T, err error) bool

	// Bytes returns the size of an item. If Bytes is not nil, it limits how many items one
	// statement writes.
	Bytes func(T) int

	// Enough is how many items must wait before a second statement begins while one is running. A
	// second statement with fewer items would cost more than it saves. 0 means that there is never
	// a second statement.
	Enough int

	mu      sync.Mutex
	waiting []*request[T]
	writing int // the number of running statements
}

// request is an item and the channel on which its caller waits.
type request[T any] struct {
	item T
	done chan error
}

// The constant most is the largest number of items that one statement writes, and mostBytes is the
// largest number of bytes. A statement may exceed mostBytes, but only by its last item.
const (
	most      = 200
	mostBytes = 4 << 20
)

// Do writes an item, together with others, and returns when the item is written. It has no context
// parameter, because a caller that gave up would not know whether the item was written. Usually Do
// returns within twice WritePatience. Do may need longer if one item makes a statement fail: then
// each item is written by a statement of its own.
func (g *Group[T]) Do(item T) error {
	return <-g.begin(item).done
}

// DoUntil is Do for a caller that may give up. If ctx ends before a statement has begun to
// write the item, the item is not written. If ctx ends later, it is not known whether the
// item is written.
func (g *Group[T]) DoUntil(ctx context.Context, item T) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := g.begin(item)
	select {
	case err := <-s.done:
		return err
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	//guard:an-accept-that-is-given-up-is-not-written remove
	g.waiting = slices.DeleteFunc(g.waiting, func(other *request[T]) bool { return other == s })
	return context.Cause(ctx)
}

// begin queues an item.
func (g *Group[T]) begin(item T) *request[T] {
	s := &request[T]{item: item, done: make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, s)
	begin := g.writing == 0 || g.writing == 1 && g.hasEnough()
	if begin {
		g.writing++
	}
	g.mu.Unlock()
	if begin {
		go g.serve() // ends when no caller waits
	}
	return s
}

// hasEnough reports whether enough items wait for a second statement.
func (g *Group[T]) hasEnough() bool { return g.Enough > 0 && len(g.waiting) >= g.Enough }

// serve writes until no caller waits. If two goroutines serve, one ends when few callers wait.
func (g *Group[T]) serve() {
	for {
		batch := g.take()
		if len(batch) == 0 {
			return
		}
		g.serveBatch(batch)
	}
}

// take returns the items for one statement.
func (g *Group[T]) take() []*request[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.writing > 1 && !g.hasEnough() {
		g.writing--
		return nil
	}
	n, bytes := 0, 0
	for n < min(len(g.waiting), most) && bytes < mostBytes {
		if g.Bytes != nil {
			bytes += g.Bytes(g.waiting[n].item)
		}
		n++
	}
	batch := slices.Clone(g.waiting[:n]) // a copy, because a caller that gives up moves the other items in waiting
	g.waiting = slices.Delete(g.waiting, 0, n)
	if n == 0 {
		g.writing--
	}
	return batch
}

func (g *Group[T]) serveBatch(batch []*request[T]) {
	items := make([]T, len(batch))
	for i, s := range batch {
		items[i] = s.item
	}
	err := g.patiently(items)
	//guard:a-statement-that-may-have-committed-is-not-repeated = err != nil
	if len(batch) > 1 && delivery.IsRefused(err) { // one of the items may be the cause
		g.serveEach(batch, items)
		return
	}
	for _, s := range batch {
		s.done <- err
	}
}

// serveEach writes items one by one. It does not try items that would fail with the same error as
// an earlier item.
func (g *Group[T]) serveEach(batch []*request[T], items []T) {
	errs := make([]error, len(items))
	for i, s := range batch {
		for j := 0; j < i && errs[i] == nil && g.Joint != nil; j++ {
			//guard:accepts-that-wait-together-are-tried-once 2 false
			if errs[j] != nil && g.Joint(items[i], items[j], errs[j]) {
				errs[i] = errs[j]
			}
		}
		if errs[i] == nil {
			errs[i] = g.patiently(items[i : i+1])
		}
		s.done <- errs[i]
	}
}

func (g *Group[T]) patiently(items []T) error {
	ctx, cancel := context.WithTimeout(context.Background(), WritePatience)
	defer cancel()
	return delivery.Written(g.Write(ctx, items))
}
