package postroomtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postroomtest/servers"
)

// Scenario is work that must have the right outcome even if it loses its connection to the database
// at any moment.
type Scenario struct {
	// Setup prepares a fresh database, and everything else that a run needs: tables, rows, the
	// contents of a queue. [Crash] does not cut its connection. Setup may be nil.
	Setup func(ctx context.Context, pool *pgxpool.Pool) error

	// Run does the work. It returns nil when the work is done. If it returns an error, [Crash]
	// calls it again, as a process is started again after a failure. Crash calls it at most ten
	// times. Variables outside of Run keep their values between these calls, like systems that
	// survive the process: a queue, a vendor.
	Run func(ctx context.Context, pool *pgxpool.Pool) error
}

// Limits of a scenario.
const (
	mostRuns    = 10          // calls of Run after one cut
	runPatience = time.Minute // for Setup, Run and check together; then their context ends
)

// Crash tests whether a scenario has the right outcome if it loses its connection at any statement.
// The function check returns nil if the outcome is right.
//
// Crash runs the scenario once and records its statements. Then it runs the scenario twice for each
// statement, each time on a fresh database. The first time it cuts the connection before the
// statement reaches the server. The second time it cuts the connection after the server has
// executed the statement, so that only the answer is lost. The scenario cannot tell the two cases
// apart. After the cut, the scenario continues: its other connections still work, the pool opens
// new connections, and Crash calls Run again if Run returns an error. At the end of each run Crash
// calls check.
//
// BEGIN, COMMIT and ROLLBACK are statements too, and so is each statement of a batch. Crash
// recognises a statement by its text, and by how many times the scenario has sent that text before.
// The order of different statements may differ in each run, so a scenario may do several things at
// once. If a later run does not reach a statement, Crash does not cut the connection in that run.
//
// Package servers provides the databases. Run and the function check run on the test's goroutine.
func Crash(t testing.TB, scenario Scenario, check func(ctx context.Context, pool *pgxpool.Pool) error) {
	t.Helper()
	servers.PostgresURL(t) // this ends the test if there is no server
	fresh := newDatabases(t)
	defer fresh.end()
	counted, err := run(t, fresh, scenario, check, nil)
	if err != nil {
		t.Fatalf("postroomtest: Crash: the scenario fails even without a cut: %v", err)
	}
	statements := counted.statements()
	if len(statements) == 0 {
		t.Fatalf("postroomtest: Crash: the scenario sent no statement through the pool that it was given")
	}
	cuts, wrong := 0, 0
	for i, s := range statements {
		for _, after := range []bool{false, true} {
			c := &cut{statement: s, after: after}
			if _, err := run(t, fresh, scenario, check, c); err != nil {
				wrong++
				t.Errorf("postroomtest: Crash: connection cut %s statement %d of %d, %s: %v", c.when(), i+1, len(statements), s, err)
			}
			if c.made.Load() {
				cuts++
			}
		}
	}
	if cuts == 0 {
		t.Errorf("postroomtest: Crash: no connection was cut: the scenario sends other statements each time")
	}
	t.Logf("postroomtest: Crash: %d statements, %d cuts, wrong outcomes: %d", len(statements), cuts, wrong)
}

// run runs a scenario on a fresh database, with a cut or without one.
func run(t testing.TB, fresh *databases, scenario Scenario, check func(ctx context.Context, pool *pgxpool.Pool) error, c *cut) (_ *watcher, err error) {
	t.Helper()
	db, err := fresh.next()
	if err != nil {
		t.Fatalf("postroomtest: Crash: make a database: %v", err)
	}
	defer fresh.drop(db)
	ctx, cancel := context.WithTimeout(t.Context(), runPatience)
	defer cancel()
	plain, err := pgxpool.New(ctx, db.url)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	if scenario.Setup != nil {
		if err := scenario.Setup(ctx, plain); err != nil {
			return nil, fmt.Errorf("run the scenario's Setup: %w", err)
		}
	}
	w := &watcher{cut: c}
	if err := runWatched(ctx, db.url, w, scenario.Run); err != nil {
		return w, err
	}
	return w, check(ctx, plain)
}

// runWatched calls f, a scenario's Run, until f returns nil. f gets a pool whose connections w
// watches.
func runWatched(ctx context.Context, url string, w *watcher, f func(ctx context.Context, pool *pgxpool.Pool) error) error {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	cfg.MaxConns = 20
	cfg.ConnConfig.AfterNetConnect = w.watch
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	var faults []error
	for range mostRuns {
		err := f(ctx, pool)
		if err == nil {
			return nil
		}
		faults = append(faults, err)
		if ctx.Err() != nil {
			return fmt.Errorf("the scenario's Run was not done within %s: %w", runPatience, err)
		}
		if w.cut == nil {
			return fmt.Errorf("run the scenario: %w", err)
		}
	}
	return fmt.Errorf("the scenario's Run failed %d times: %w", mostRuns, errors.Join(faults...))
}

// databases makes fresh databases. It takes longer to make a database than to run most scenarios.
// So it makes the next database, and drops used databases, while a scenario runs.
type databases struct {
	t      testing.TB
	ready  chan database
	stop   context.CancelFunc
	making sync.WaitGroup
	drops  sync.WaitGroup
}

type database struct {
	url  string
	drop func() error
	err  error
}

func newDatabases(t testing.TB) *databases {
	ctx, stop := context.WithCancel(t.Context())
	d := &databases{t: t, ready: make(chan database), stop: stop}
	d.making.Go(func() {
		for {
			url, drop, err := devtest.NewDatabase(ctx)
			db := database{url, drop, err}
			select {
			case d.ready <- db:
			case <-ctx.Done():
				d.drop(db)
				return
			}
		}
	})
	return d
}

func (d *databases) next() (database, error) {
	db := <-d.ready
	return db, db.err
}

// drop begins to drop a used database, and does not wait for the end.
func (d *databases) drop(db database) {
	if db.err != nil {
		return
	}
	d.drops.Go(func() {
		if err := db.drop(); err != nil {
			d.t.Errorf("postroomtest: Crash: %v", err)
		}
	})
}

// end drops the database that no run has used, and waits until all are dropped.
func (d *databases) end() {
	d.stop()
	d.making.Wait()
	d.drops.Wait()
}

// statement is a statement that a scenario sends. It is the nth statement with this text.
type statement struct {
	text string
	nth  int
}

func (s statement) String() string {
	lines := slices.DeleteFunc(strings.Split(s.text, "\n"), func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "--") })
	text := fmt.Sprintf("%q", strings.Join(strings.Fields(strings.Join(lines, " ")), " "))
	const most = 120
	if len(text) > most {
		text = text[:most] + `…"`
	}
	if s.nth > 1 {
		text = fmt.Sprintf("%s (time %d)", text, s.nth)
	}
	return text
}
