package pglog_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
)

// stormWriter runs one transaction after the other. If a crash hides how one ended, it looks
// afterwards.
type stormWriter struct {
	*storm
	name string
	rng  *rand.Rand
	n    int            // transactions so far
	last postroom.Event // committed, and written again now and then
}

// stormTransaction is the record of what one transaction wrote.
type stormTransaction struct {
	gid     string            // the name under which it is prepared
	resolve string            // COMMIT or ROLLBACK: how it ends if it is prepared
	changes map[string]change // by event id
	events  []postroom.Event
	undone  map[string]change // rolled back with a savepoint
}

func (w *stormWriter) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if w.backlog() > stormBacklog {
			pause(ctx, time.Millisecond)
			continue
		}
		since := w.serverState()
		w.n++
		x := &stormTransaction{
			gid:     fmt.Sprint(w.name, " ", w.n),
			resolve: []string{"COMMIT", "ROLLBACK"}[w.rng.IntN(2)],
			changes: map[string]change{}, undone: map[string]change{},
		}
		committed, err := w.transact(ctx, x)
		if err != nil && !w.excused(since) {
			return err
		}
		if err != nil {
			if committed, err = w.lookAfterwards(ctx, x); err != nil {
				return err
			}
		}
		w.settle(x, committed)
	}
	return nil
}

// settle notes how a transaction ended.
func (w *stormWriter) settle(x *stormTransaction, committed bool) {
	if committed && len(x.events) > 0 {
		w.last = x.events[w.rng.IntN(len(x.events))]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.Copy(w.rolledBack, x.undone)
	if committed {
		maps.Copy(w.committed, x.changes)
	} else {
		maps.Copy(w.rolledBack, x.changes)
	}
}

var errPrepared = errors.New("prepared")

// transact runs a transaction to its end, and reports whether it committed. An error means
// that this is unknown.
func (w *stormWriter) transact(ctx context.Context, x *stormTransaction) (committed bool, err error) {
	background := context.WithoutCancel(ctx)
	err = pgx.BeginFunc(background, w.pool, func(tx pgx.Tx) error { return w.fill(ctx, tx, x) })
	switch {
	case errors.Is(err, errOnPurpose):
		return false, nil
	case !errors.Is(err, errPrepared):
		return err == nil, err
	}
	pause(ctx, time.Duration(w.rng.IntN(40))*time.Millisecond)
	_, err = w.pool.Exec(background, x.resolve+" PREPARED '"+x.gid+"'")
	return x.resolve == "COMMIT", err
}

// fill writes the events of a transaction. It returns errOnPurpose if the transaction must roll
// back, and errPrepared if it is prepared.
func (w *stormWriter) fill(ctx context.Context, tx pgx.Tx, x *stormTransaction) error {
	background := context.WithoutCancel(ctx)
	if w.rng.IntN(3) == 0 { // the id is older than everything that this transaction writes
		if _, err := tx.Exec(background, "SELECT pg_current_xact_id()"); err != nil {
			return err
		}
		pause(ctx, time.Duration(w.rng.IntN(30))*time.Millisecond)
	}
	accounts := w.rng.Perm(stormAccounts)[:1+w.rng.IntN(3)]
	slices.Sort(accounts) // locks are taken in one order
	for _, account := range accounts {
		if err := w.changes(background, tx, x, account); err != nil {
			return err
		}
	}
	if err := w.repeat(background, tx, x); err != nil {
		return err
	}
	switch n := w.rng.IntN(100); {
	case n < 15:
		return errOnPurpose
	case n < 30:
		if _, err := tx.Exec(background, "PREPARE TRANSACTION '"+x.gid+"'"); err != nil {
			return err
		}
		w.mu.Lock()
		w.prepared++
		w.mu.Unlock()
		return errPrepared // the ROLLBACK that follows has no effect on the prepared transaction
	case n < 33:
		pause(ctx, time.Duration(w.rng.IntN(500))*time.Millisecond)
	case n < 50:
		pause(ctx, time.Duration(w.rng.IntN(20))*time.Millisecond)
	}
	return nil
}

// changes locks an account and writes events of it.
func (w *stormWriter) changes(ctx context.Context, tx pgx.Tx, x *stormTransaction, account int) error {
	if w.rng.IntN(4) == 0 {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			ev, c, err := changedBy(ctx, tx, account)
			if err != nil {
				return err
			}
			x.undone[ev.ID] = c
			if err := shop.Write(ctx, tx, ev); err != nil {
				return err
			}
			return errOnPurpose
		})
		if !errors.Is(err, errOnPurpose) {
			return err
		}
	}
	var events []postroom.Event
	for range 1 + w.rng.IntN(3) {
		ev, c, err := changedBy(ctx, tx, account)
		if err != nil {
			return err
		}
		x.changes[ev.ID] = c
		events = append(events, ev)
	}
	x.events = append(x.events, events...)
	if w.rng.IntN(3) == 0 {
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return shop.Write(ctx, tx, events...) })
	}
	return shop.Write(ctx, tx, events...)
}

// repeat writes events again: the events of this transaction, or an event that was committed
// before.
func (w *stormWriter) repeat(ctx context.Context, tx pgx.Tx, x *stormTransaction) error {
	var again []postroom.Event
	if w.rng.IntN(5) == 0 {
		again = append(again, x.events...)
	}
	if w.last.ID != "" && w.rng.IntN(5) == 0 {
		again = append(again, w.last)
	}
	if len(again) == 0 {
		return nil
	}
	w.mu.Lock()
	w.repeated += len(again)
	w.mu.Unlock()
	return shop.Write(ctx, tx, again...)
}

// changedBy locks an account, increments its count and returns an event with the new count.
func changedBy(ctx context.Context, tx pgx.Tx, account int) (postroom.Event, change, error) {
	c := change{Account: account}
	err := tx.QueryRow(ctx, "UPDATE account SET n = n + 1 WHERE id = $1 RETURNING n", account).Scan(&c.N)
	ev := postroom.NewEvent("account.changed", c)
	ev.Key = strconv.Itoa(account)
	return ev, c, err
}

// lookAfterwards finds out how a transaction ended. It waits until the server answers again,
// because then no process of the killed server is left. If it finds the transaction prepared,
// it ends it.
func (w *stormWriter) lookAfterwards(ctx context.Context, x *stormTransaction) (committed bool, err error) {
	w.mu.Lock()
	w.unknown++
	w.mu.Unlock()
	background, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for {
		since := w.serverState()
		committed, err = w.look(background, x)
		if err == nil || !w.excused(since) || background.Err() != nil {
			return committed, err
		}
		pause(background, 10*time.Millisecond)
	}
}

func (w *stormWriter) look(ctx context.Context, x *stormTransaction) (committed bool, err error) {
	var prepared bool
	if err := w.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_prepared_xacts WHERE gid = $1)", x.gid).Scan(&prepared); err != nil {
		return false, err
	}
	if prepared {
		if _, err := w.pool.Exec(ctx, x.resolve+" PREPARED '"+x.gid+"'"); err != nil {
			return false, err
		}
	}
	var n int
	ids := slices.Collect(maps.Keys(x.changes))
	if err := w.pool.QueryRow(ctx, "SELECT count(*) FROM postroom.outbox WHERE event_id = ANY ($1)", ids).Scan(&n); err != nil {
		return false, err
	}
	if n != 0 && n != len(ids) {
		return false, fmt.Errorf("%d of the %d events of one transaction are in the log", n, len(ids))
	}
	return n > 0, nil
}
