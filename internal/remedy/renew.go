package remedy

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// renewPatience limits the time that Renew takes.
const renewPatience = 3 * time.Second

// renewEvery is the shortest time between two calls of Renew by a Renewer.
const renewEvery = 5 * time.Second

// A Renewer calls Renew at most every few seconds, because each call opens a connection and many
// goroutines may meet the same error. The zero value is ready to use.
type Renewer struct {
	mu   sync.Mutex
	last time.Time
}

// Renew does what the function Renew does, unless the last call was only a few seconds ago.
func (r *Renewer) Renew(ctx context.Context, pool *pgxpool.Pool, err error) {
	if !isReadOnlyError(err) {
		return
	}
	r.mu.Lock()
	due := time.Since(r.last) >= renewEvery
	if due {
		r.last = time.Now()
	}
	r.mu.Unlock()
	if due {
		Renew(ctx, pool, err)
	}
}

func isReadOnlyError(err error) bool {
	var server interface{ SQLState() string }
	return errors.As(err, &server) && server.SQLState() == readOnlyTransaction
}

// Renew resets a pool whose connections take no writes, if new connections do, and reports whether it
// reset the pool. Call it after a statement on the pool failed with err: for any error that is not of
// a read-only transaction, Renew does nothing.
//
// After a failover, the connections of a pool may still lead to the previous primary server, which is
// a standby now. They work, so the pool keeps them, and each write fails. If the new connections take
// no writes either, a reset would not help: there is no primary server yet, or the operator of the
// database allows no writes at the moment.
func Renew(ctx context.Context, pool *pgxpool.Pool, err error) bool {
	if pool == nil || !isReadOnlyError(err) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewPatience)
	defer cancel()
	//guard:a-pool-that-takes-writes-is-kept false
	if readOnly, err := isReadOnly(ctx, pool); err != nil || !readOnly { // the user's code may have begun a read-only transaction
		return false
	}
	cfg := pool.Config() // with the pool's hooks
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = 1, 0, 0
	fresh, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return false
	}
	defer fresh.Close()
	//guard:a-pool-is-reset-only-for-a-server-that-takes-writes false
	if readOnly, err := isReadOnly(ctx, fresh); err != nil || readOnly {
		return false
	}
	pool.Reset()
	return true
}

// isReadOnly reports whether a transaction on a connection of the pool is read-only by default.
func isReadOnly(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	var setting string
	err := pool.QueryRow(ctx, "SHOW transaction_read_only", pgx.QueryExecModeExec).Scan(&setting) // this setting is on in a standby too
	return setting == "on", err
}
