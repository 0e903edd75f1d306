package ledger

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Group writes items of many callers together. While a statement is under way, new items
// wait, and the next statement writes all of them. So a hundred workers cost the database
// few statements, and a single caller does not wait.
type Group[T any] struct {
	// Write runs one statement for some items, and stores in each item its result.
	Write func(ctx context.Context, items []T) error

	mu      sync.Mutex
	waiting []*request[T]
	writing bool
}

// request is an item and the channel on which its caller waits.
type request[T any] struct {
	item T
	done chan error
}

// most is how many items one statement serves.
const most = 200

// Do writes an item, together with others, and returns when it is written. It takes no
// context, because a caller that gave up would not know whether the item was written. It
// takes at most twice WritePatience, or four times if the statement fails because of one
// of the items.
func (g *Group[T]) Do(item T) error {
	s := &request[T]{item: item, done: make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, s)
	begin := !g.writing
	g.writing = true
	g.mu.Unlock()
	if begin {
		go g.serve() // until no caller waits
	}
	return <-s.done
}

// serve writes until no caller waits.
func (g *Group[T]) serve() {
	for {
		g.mu.Lock()
		n := min(len(g.waiting), most)
		batch := g.waiting[:n:n]
		g.waiting = g.waiting[n:]
		g.writing = n > 0
		g.mu.Unlock()
		if n == 0 {
			return
		}
		g.serveBatch(batch)
	}
}

func (g *Group[T]) serveBatch(batch []*request[T]) {
	items := make([]T, len(batch))
	for i, s := range batch {
		items[i] = s.item
	}
	err := g.patiently(items)
	var pg *pgconn.PgError
	alone := len(batch) > 1 && errors.As(err, &pg) // one of the items may be the cause
	for i, s := range batch {
		if alone {
			err = g.patiently(items[i : i+1])
		}
		s.done <- err
	}
}

func (g *Group[T]) patiently(items []T) error {
	ctx, cancel := context.WithTimeout(context.Background(), WritePatience)
	defer cancel()
	return delivery.Written(g.Write(ctx, items))
}
