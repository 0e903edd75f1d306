package ledger

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Group writes for many at once: whoever comes while a statement is under way is
// served by the next, together with all who came meanwhile. So a hundred workers
// cost the database a few statements, and one alone waits for nobody.
type Group[T any] struct {
	// write runs one statement for some items, and leaves in each what became of it.
	Write func(ctx context.Context, items []T) error

	mu      sync.Mutex
	waiting []*served[T]
	writing bool
}

// served is an item and whoever waits for it.
type served[T any] struct {
	item T
	done chan error
}

// most is how many items one statement serves.
const most = 200

// Do has an item written, and returns when it is. It does not end with a context:
// who gave up would not know whether it was written. It takes writePatience twice at
// the most, and twice more where the statement fails for one of the items.
func (g *Group[T]) Do(item T) error {
	s := &served[T]{item: item, done: make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, s)
	begin := !g.writing
	g.writing = true
	g.mu.Unlock()
	if begin {
		go g.serve() // until nobody waits
	}
	return <-s.done
}

// serve writes until nobody waits.
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

func (g *Group[T]) serveBatch(batch []*served[T]) {
	items := make([]T, len(batch))
	for i, s := range batch {
		items[i] = s.item
	}
	err := g.patiently(items)
	var pg *pgconn.PgError
	alone := len(batch) > 1 && errors.As(err, &pg) // it may be the fault of one of them
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
