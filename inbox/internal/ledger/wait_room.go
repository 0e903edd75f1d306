package ledger

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// One statement stores the events of many calls. togetherPatience is how long it waits for another
// transaction with one of these events. mostBlocked is how many calls may wait longer than that at
// the same time, each with its own connection.
const (
	togetherPatience = 50 * time.Millisecond
	mostBlocked      = 2
)

// lockNotAvailable is the SQLSTATE of a statement that waited longer than lock_timeout for a lock.
const lockNotAvailable = "55P03"

func isLockTimeout(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == lockNotAvailable
}

// identity is the identity of an event for a handler.
type identity struct{ handler, key string }

func identityOf(a *delivery.Acceptance) identity { return identity{a.Handler, a.D.Key} }

// waitRoom has the events of the calls that wait in the database for another transaction with the
// same event. A later call with one of these events waits in the waitRoom: it uses no connection
// and delays no other call. The zero value is ready to use.
type waitRoom struct {
	mu      sync.Mutex
	of      map[identity]chan struct{} // closed when the event no longer waits
	waiting chan struct{}              // has an element for each call that waits in the database
}

// find returns the channel of another call that waits with one of the events, or nil.
func (w *waitRoom) find(all acceptances) chan struct{} {
	for _, one := range all {
		if over := w.of[identityOf(one)]; over != nil {
			return over
		}
	}
	return nil
}

// await waits until no other call waits with one of the events.
func (w *waitRoom) await(ctx context.Context, all acceptances) error {
	for {
		w.mu.Lock()
		over := w.find(all)
		w.mu.Unlock()
		if over == nil {
			return nil
		}
		select {
		case <-over:
		case <-ctx.Done():
			return w.gaveUp(ctx)
		}
	}
}

// enter allows a call to wait in the database. The result entered is false if another call already
// waits with one of the same events. While mostBlocked calls wait, enter itself waits. Call the
// result leave when the wait is over.
func (w *waitRoom) enter(ctx context.Context, all acceptances) (leave func(), entered bool, err error) {
	over := make(chan struct{})
	w.mu.Lock()
	if w.of == nil {
		//guard:few-accepts-wait-for-transactions 2.2 = 1000*@
		w.of, w.waiting = make(map[identity]chan struct{}), make(chan struct{}, mostBlocked)
	}
	//guard:one-accept-waits-for-a-transaction 0 true
	if entered = w.find(all) == nil; entered {
		for _, one := range all {
			w.of[identityOf(one)] = over
		}
	}
	w.mu.Unlock()
	if !entered {
		return func() {}, false, nil
	}
	end := func() {
		w.mu.Lock()
		for _, one := range all {
			delete(w.of, identityOf(one))
		}
		w.mu.Unlock()
		close(over)
	}
	select {
	case w.waiting <- struct{}{}:
		return func() {
			<-w.waiting
			end()
		}, true, nil
	case <-ctx.Done():
		end()
		return func() {}, false, w.gaveUp(ctx)
	}
}

var errBlocked = errors.New("another transaction stores the same event and does not end")

// gaveUp returns the error of a call that has waited for too long. Its events are not stored.
func (w *waitRoom) gaveUp(ctx context.Context) error {
	return &delivery.BeginError{Err: errors.Join(errBlocked, context.Cause(ctx))}
}
