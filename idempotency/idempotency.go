package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/idempotency/internal/claim"
	"github.com/postroom/postroom/idempotency/internal/failure"
	"github.com/postroom/postroom/idempotency/internal/watched"
	"github.com/postroom/postroom/internal/clock"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/lent"
	"github.com/postroom/postroom/internal/session"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/schema"
)

// Guard prevents a second effect of an operation. It is safe for concurrent use. Guards in any
// number of processes can use the same database.
type Guard struct {
	store   *store
	cfg     Config
	metrics *metrics
	running atomic.Bool
	recent  recent

	mu     sync.Mutex
	faults []error // of the Config and of routes
}

// New returns a guard that keeps answers in the given database. It does no I/O and cannot fail.
// [Guard.Check] returns the faults of the Config and of routes. Until they are fixed, the guard
// answers requests with 500, and its methods return the faults.
func New(pool *pgxpool.Pool, cfg Config) *Guard {
	cfg = cfg.defaults()
	g := &Guard{cfg: cfg, metrics: newMetrics(cfg)}
	g.store = &store{pool: pool, sessions: session.Of(pool), cfg: &g.cfg}
	if err := cfg.validate(); err != nil {
		g.faults = append(g.faults, err)
	}
	name, _ := schema.Name(cfg.Schema)
	g.store.schema = cmp.Or(name, schema.DefaultName) // if the name is not valid, each method returns the fault
	g.store.sql = load(g.store.schema)
	g.store.claims = &claim.Table{Pool: pool, SQL: claim.Load(g.store.schema), Log: cfg.Logger, Timeout: cfg.StoreTimeout}
	return g
}

// Check returns an error if the guard cannot work. First it looks for faults of the Config and of
// the routes, and returns all of them together. Then it asks the database for the schema's version.
func (g *Guard) Check(ctx context.Context) error {
	if err := g.fault(); err != nil {
		return fmt.Errorf("idempotency: %w", postroom.Unrecoverable(err))
	}
	if err := schema.Require(ctx, g.store.pool, g.cfg.Schema); err != nil {
		return fmt.Errorf("idempotency: %w", g.store.advise(err))
	}
	return nil
}

// outage says how long Run waits after a failed try, before it tries again.
var outage = postroom.Backoff{time.Second, 5 * time.Second, 30 * time.Second}

// purgeAtOnce is the largest number of rows that Run removes with one call of Purge.
const purgeAtOnce = 1000

// Run removes expired rows, once every [Config.PurgeEvery], until ctx ends. It returns an error
// only if it runs already or [Guard.Check] finds a fault. For each database, one process that calls
// Run is enough, but more may call it. The guard serves requests even if Run does not run.
func (g *Guard) Run(ctx context.Context) error {
	if !g.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer g.running.Store(false)

	for failures := 0; ctx.Err() == nil; {
		err := g.Check(ctx)
		if errors.Is(err, postroom.ErrUnrecoverable) {
			return err
		}
		if err == nil {
			err = g.purgeAll(ctx)
		}
		wait := g.cfg.PurgeEvery
		if failures++; err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			wait = outage.Delay(failures)
			g.cfg.Logger.WarnContext(ctx, "expired idempotency keys were not removed", "error", err, "failures", failures)
			g.store.renew(ctx, err)
		}
		sleep.For(ctx, wait)
	}
	return nil
}

func (g *Guard) purgeAll(ctx context.Context) error {
	for {
		n, err := g.Purge(ctx, purgeAtOnce)
		if err != nil || n < purgeAtOnce {
			return err
		}
	}
}

// archiveBytes limits the answers that one call of Archive gets. The answer that reaches the limit
// is the last one of the call.
const archiveBytes = 4 << 20

// Purge removes up to limit expired rows. It returns how many it removed, even if it also returns
// an error. It uses one short transaction, or one transaction for each call of [Config.Archive]. It
// skips rows that an attempt holds. [Guard.Run] calls Purge. Your own job can call it instead.
func (g *Guard) Purge(ctx context.Context, limit int) (int, error) {
	if err := g.fault(); err != nil {
		return 0, fmt.Errorf("idempotency: %w", postroom.Unrecoverable(err))
	}
	if g.cfg.Archive == nil {
		tag, err := g.store.pool.Exec(ctx, g.store.sql.Purge, limit, clock.Latest())
		if err != nil {
			return 0, fmt.Errorf("idempotency: remove expired keys: %w", g.store.advise(err))
		}
		g.metrics.removed(ctx, int(tag.RowsAffected()))
		return int(tag.RowsAffected()), nil
	}
	removed := 0
	for removed < limit {
		n, err := g.archive(ctx, limit-removed)
		if err != nil {
			return removed, fmt.Errorf("idempotency: archive expired keys: %w", err)
		}
		if n == 0 {
			break
		}
		g.metrics.removed(ctx, n)
		removed += n
	}
	return removed, nil
}

// archive gives some rows to Archive and removes them. If the Codec cannot decode an answer,
// Archive gets the stored form. If the Codec ran out of time, the method fails.
func (g *Guard) archive(ctx context.Context, limit int) (int, error) {
	var gone []Record
	what := watched.Of(g.store.sessions)
	err := g.store.lend(ctx, "", what, func(tx *lending) error {
		rows, _ := tx.Query(ctx, g.store.sql.PurgeKept, limit, archiveBytes, clock.Latest()) // CollectRows reports the error
		found, err := pgx.CollectRows(rows, scanRow)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, f := range found {
			rec, err := f.record(ctx, g.cfg.Codec)
			if rec.Undecoded = err != nil; rec.Undecoded {
				//guard:an-odd-answer-holds-up-no-other = @1 != nil || @
				//guard:an-answer-is-decoded-in-time 1 = nil
				if failure.IsInterruption(err) {
					return err
				}
				g.cfg.Logger.WarnContext(ctx, "an expired answer is archived as it is stored", "scope", f.Scope, "key", g.cfg.shown(f.Key), "error", err)
			}
			gone = append(gone, rec)
		}
		_, err = guard.Apart(0, func() (struct{}, error) {
			return struct{}{}, g.cfg.Archive(ctx, tx.loan, gone)
		})
		if used := tx.back(lent.Grace(0)); used != nil {
			return errors.Join(used, guard.Seal(err))
		}
		return guard.Seal(err)
	})
	return len(gone), err
}

// Get returns the record of a key. It returns [ErrNotFound] if the key has no row or has expired.
func (g *Guard) Get(ctx context.Context, k Key) (Record, error) {
	if err := g.fault(); err != nil {
		return Record{}, fmt.Errorf("idempotency: %w", postroom.Unrecoverable(err))
	}
	k, other := k.stored(g.cfg.HashPrincipal)
	f, err := g.store.look(ctx, k, other)
	if err != nil {
		return Record{}, fmt.Errorf("idempotency: look up key: %w", g.store.advise(err))
	}
	if f == nil || !f.counts() {
		return Record{}, fmt.Errorf("idempotency: %w", ErrNotFound)
	}
	rec, err := f.record(ctx, g.cfg.Codec)
	if err != nil {
		return Record{}, fmt.Errorf("idempotency: %w", g.store.advise(err))
	}
	return rec, nil
}

// Delete removes a key and its answer, for instance because a person's data must be deleted.
// Afterwards the same request has an effect again. Delete returns [ErrNotFound] if the key does not
// exist or an attempt holds it.
func (g *Guard) Delete(ctx context.Context, k Key) error {
	//guard:delete-of-a-faulty-guard-deletes-nothing false
	if err := g.fault(); err != nil {
		return fmt.Errorf("idempotency: %w", postroom.Unrecoverable(err))
	}
	k, other := k.stored(g.cfg.HashPrincipal)
	tag, err := g.store.pool.Exec(ctx, g.store.sql.Delete, k.Scope, k.Principal, k.Value, clock.Latest(), other)
	if err != nil {
		return fmt.Errorf("idempotency: forget key: %w", g.store.advise(err))
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("idempotency: %w", ErrNotFound)
	}
	return nil
}
