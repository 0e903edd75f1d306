//go:build linux || darwin

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/outbox"
)

const producers = 8

// producer makes transactions with an event each. It commits most of them, and rolls some back.
type producer struct {
	db    *stage.Database
	keys  int     // the number of keys, each with a row in the table account; zero: every event has a key of its own
	rate  float64 // transactions a second
	total int     // transactions to commit; zero: until the context ends
	slow  bool    // some transactions stay open for a while

	committed func(key, n int, id string, at time.Time)
	undone    func(id string) // gets the id of each event that is rolled back (with its transaction, or to a savepoint)

	out   *outbox.Outbox
	turns atomic.Int64
	done  atomic.Int64
}

// prepare makes the tables that transactions change.
func (p *producer) prepare(ctx context.Context) error {
	p.out = outbox.New(outbox.Config{Source: stage.Source})
	err := p.db.Exec(ctx, "CREATE TABLE account (id int PRIMARY KEY, n int NOT NULL DEFAULT 0) WITH (fillfactor = 50)")
	if err != nil {
		return err
	}
	if err := p.db.Exec(ctx, "INSERT INTO account (id) SELECT generate_series(0, $1::int - 1)", max(p.keys, 1)); err != nil {
		return err
	}
	return p.db.Exec(ctx, "CREATE TABLE change (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text)")
}

// run produces until ctx ends or all is committed.
func (p *producer) run(ctx context.Context) error {
	began := time.Now()
	return stage.Together(ctx, producers, func(ctx context.Context, _ int) error {
		for {
			turn := p.turns.Add(1) // there are more turns than commits, because some transactions roll back
			if p.total > 0 && p.done.Load() >= int64(p.total) {
				return nil
			}
			at := began.Add(time.Duration(float64(turn) / p.rate * float64(time.Second)))
			if !childproc.Sleep(ctx, time.Until(at)) {
				return nil
			}
			if err := p.one(ctx, turn); err != nil {
				return fmt.Errorf("producer: %w", err)
			}
		}
	})
}

var errOnPurpose = errors.New("rolled back on purpose")

// one makes the transaction of a turn. In every hundred turns, a transaction rolls back to a
// savepoint, and another transaction rolls back as a whole. These two are fifty turns apart, so
// that a short run on a slow machine has both. A begun transaction is finished even if ctx ends.
func (p *producer) one(ctx context.Context, turn int64) error {
	work := context.WithoutCancel(ctx)
	key, n, ev := rand.IntN(max(p.keys, 1)), 0, postroom.NewEvent(stage.Subject, nil)
	err := pgx.BeginFunc(work, p.db.Pool, func(tx pgx.Tx) (err error) {
		if n, err = p.change(work, tx, key); err != nil {
			return err
		}
		ev.Data, ev.Key = stage.Body(key, n), strconv.Itoa(key)
		if p.keys == 0 {
			ev.Key = ev.ID
		}
		if turn%100 == 20 {
			if err := p.savepoint(work, tx, ev); err != nil {
				return err
			}
		}
		if err := p.out.Write(work, tx, ev); err != nil {
			return err
		}
		switch {
		case turn%100 == 70:
			return errOnPurpose
		case p.slow && turn%1000 == 99:
			childproc.Sleep(ctx, 200*time.Millisecond)
		}
		return nil
	})
	switch {
	case errors.Is(err, errOnPurpose):
		p.undone(ev.ID)
		return nil
	case err != nil:
		return err
	}
	p.committed(key, n, ev.ID, time.Now())
	p.done.Add(1)
	return nil
}

// change makes the change that the event is about. If p.keys is not zero, the transaction then
// holds the lock of the key's row.
func (p *producer) change(ctx context.Context, tx pgx.Tx, key int) (n int, err error) {
	if p.keys == 0 {
		_, err = tx.Exec(ctx, "INSERT INTO change (what) VALUES ('something')")
		return 1, err
	}
	err = tx.QueryRow(ctx, "UPDATE account SET n = n + 1 WHERE id = $1 RETURNING n", key).Scan(&n)
	return n, err
}

// savepoint writes another event of the key, and rolls back to a savepoint before it.
func (p *producer) savepoint(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	ev.ID += "-undone"
	p.undone(ev.ID)
	err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
		if err := p.out.Write(ctx, inner, ev); err != nil {
			return err
		}
		return errOnPurpose
	})
	if !errors.Is(err, errOnPurpose) {
		return fmt.Errorf("savepoint: %w", err)
	}
	return nil
}
