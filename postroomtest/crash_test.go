package postroomtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/postroomtest"
)

// recorder is a testing.TB that records errors and log lines.
type recorder struct {
	testing.TB

	mu     sync.Mutex
	errors []string
	logs   []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Logf(format string, args ...any) {
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
	r.TB.Logf(format, args...)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

// crash runs Crash, and returns what it reports.
func crash(t *testing.T, s postroomtest.Scenario, check func(context.Context, *pgxpool.Pool) error) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	func() {
		defer func() {
			if v := recover(); v != nil && v != r {
				panic(v)
			}
		}()
		postroomtest.Crash(r, s, check)
	}()
	return r
}

// service has the tables, the queue and the vendor that these scenarios use. They survive a crash.
type service struct {
	queue   []postroom.Event // the broker's events: it delivers the first one until that is acknowledged
	charges map[string]int   // at the vendor
}

func (s *service) setup(ctx context.Context, pool *pgxpool.Pool) error {
	ev := postroom.NewEvent("order.placed", "o-1")
	ev.ID = "e-1"
	s.queue, s.charges = []postroom.Event{ev}, map[string]int{}
	_, err := pool.Exec(ctx, `CREATE TABLE charge (order_id text); CREATE TABLE processed (event_id text PRIMARY KEY);
		CREATE TABLE shop_order (id text PRIMARY KEY)`)
	return err
}

// consume delivers each event of the queue, and then acknowledges it.
func (s *service) consume(deliver func(ctx context.Context, pool *pgxpool.Pool, ev postroom.Event) error) func(context.Context, *pgxpool.Pool) error {
	return func(ctx context.Context, pool *pgxpool.Pool) error {
		for len(s.queue) > 0 {
			if err := deliver(ctx, pool, s.queue[0]); err != nil {
				return err
			}
			s.queue = s.queue[1:]
		}
		return nil
	}
}

// once returns a check that fails unless a query returns 1.
func once(what, sql string) func(context.Context, *pgxpool.Pool) error {
	return func(ctx context.Context, pool *pgxpool.Pool) error {
		var n int
		if err := pool.QueryRow(ctx, sql).Scan(&n); err != nil {
			return err
		}
		if n != 1 {
			return fmt.Errorf("%d %s, want 1", n, what)
		}
		return nil
	}
}

func insertCharge(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
	_, err := tx.Exec(ctx, "INSERT INTO charge VALUES ($1)", "o-1")
	return err
}

var shop = outbox.New(outbox.Config{Source: "/shop"})

// placeOrder writes an order and its event.
func placeOrder(ctx context.Context, pool *pgxpool.Pool, id string, ev postroom.Event) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO shop_order VALUES ($1) ON CONFLICT DO NOTHING", id); err != nil {
			return err
		}
		return shop.Write(ctx, tx, ev)
	})
}

// Crash finds each of these bugs, and finds nothing in the same code without the bug.
func TestCrashFindsPlantedBugs(t *testing.T) {
	s := new(service)
	apply := func(h func(ctx context.Context, pool *pgxpool.Pool, tx pgx.Tx, ev postroom.Event) error) func(context.Context, *pgxpool.Pool, postroom.Event) error {
		return func(ctx context.Context, pool *pgxpool.Pool, ev postroom.Event) error {
			return postroomtest.Deliver(ctx, pool, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				return h(ctx, pool, tx, ev)
			}), ev)
		}
	}
	inTx := apply(func(ctx context.Context, _ *pgxpool.Pool, tx pgx.Tx, ev postroom.Event) error {
		return insertCharge(ctx, tx, ev)
	})
	for _, tt := range []struct {
		name       string
		bug, fixed func(ctx context.Context, pool *pgxpool.Pool) error
		check      func(ctx context.Context, pool *pgxpool.Pool) error
	}{
		{
			name: "effect before the row",
			bug: s.consume(func(ctx context.Context, pool *pgxpool.Pool, ev postroom.Event) error {
				var known bool
				if err := pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM processed WHERE event_id = $1)", ev.ID).Scan(&known); err != nil || known {
					return err
				}
				if _, err := pool.Exec(ctx, "INSERT INTO charge VALUES ($1)", "o-1"); err != nil {
					return err
				}
				_, err := pool.Exec(ctx, "INSERT INTO processed VALUES ($1)", ev.ID)
				return err
			}),
			fixed: s.consume(func(ctx context.Context, pool *pgxpool.Pool, ev postroom.Event) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					tag, err := tx.Exec(ctx, "INSERT INTO processed VALUES ($1) ON CONFLICT DO NOTHING", ev.ID)
					if err != nil || tag.RowsAffected() == 0 {
						return err
					}
					return insertCharge(ctx, tx, ev)
				})
			}),
			check: once("charges", "SELECT count(*) FROM charge"),
		},
		{
			name: "write outside the transaction",
			bug: s.consume(apply(func(ctx context.Context, pool *pgxpool.Pool, _ pgx.Tx, _ postroom.Event) error {
				_, err := pool.Exec(ctx, "INSERT INTO charge VALUES ($1)", "o-1")
				return err
			})),
			fixed: s.consume(inTx),
			check: once("charges", "SELECT count(*) FROM charge"),
		},
		{
			name: "swallowed error",
			bug: s.consume(func(ctx context.Context, pool *pgxpool.Pool, ev postroom.Event) error {
				_ = inTx(ctx, pool, ev) // the bug: the error is ignored
				return nil
			}),
			fixed: s.consume(inTx),
			check: once("charges", "SELECT count(*) FROM charge"),
		},
		{
			name: "ack before commit",
			bug: func(ctx context.Context, pool *pgxpool.Pool) error {
				for len(s.queue) > 0 {
					ev := s.queue[0]
					s.queue = s.queue[1:]
					if err := inTx(ctx, pool, ev); err != nil {
						return err
					}
				}
				return nil
			},
			fixed: s.consume(inTx),
			check: once("charges", "SELECT count(*) FROM charge"),
		},
		{
			name: "retry that is not idempotent",
			bug: func(ctx context.Context, pool *pgxpool.Pool) error {
				return placeOrder(ctx, pool, "o-1", postroom.NewEvent("order.placed", "o-1")) // another id each time
			},
			fixed: func(ctx context.Context, pool *pgxpool.Pool) error {
				ev := postroom.NewEvent("order.placed", "o-1")
				ev.ID = "order-o-1"
				return placeOrder(ctx, pool, "o-1", ev)
			},
			check: once("events", "SELECT count(*) FROM postroom.outbox"),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			devtest.Postgres(t) // skipped if there is none
			if r := crash(t, postroomtest.Scenario{Setup: s.setup, Run: tt.bug}, tt.check); len(r.errors) == 0 {
				t.Errorf("the bug is not found")
			} else {
				t.Log(strings.Join(r.errors, "\n"))
			}
			if r := crash(t, postroomtest.Scenario{Setup: s.setup, Run: tt.fixed}, tt.check); len(r.errors) > 0 {
				t.Errorf("without the bug:\n%s", strings.Join(r.errors, "\n"))
			}
		})
	}
}

// Four orders are written and handled, with more than 60 cuts. The test logs how long these take.
func TestCrashAtSixtyBoundaries(t *testing.T) {
	devtest.Postgres(t)
	const orders = 4
	s := new(service)
	began := time.Now()
	r := crash(t, postroomtest.Scenario{
		Setup: s.setup,
		Run: func(ctx context.Context, pool *pgxpool.Pool) error {
			for i := range orders {
				ev := postroom.NewEvent("order.placed", i)
				ev.ID = fmt.Sprint("e-", i)
				if err := placeOrder(ctx, pool, fmt.Sprint("o-", i), ev); err != nil {
					return err
				}
				if err := postroomtest.Deliver(ctx, pool, postroom.HandlerFunc(insertCharge), ev); err != nil {
					return err
				}
			}
			return nil
		},
	}, func(ctx context.Context, pool *pgxpool.Pool) error {
		var events, charges int
		err := pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM postroom.outbox), (SELECT count(*) FROM charge)").Scan(&events, &charges)
		if err == nil && (events != orders || charges != orders) {
			err = fmt.Errorf("%d events and %d charges, want %d", events, charges, orders)
		}
		return err
	})
	took := time.Since(began)
	if len(r.errors) > 0 {
		t.Error(strings.Join(r.errors, "\n"))
	}
	var statements, cuts int
	if _, err := fmt.Sscanf(strings.Join(r.logs, ""), "postroomtest: Crash: %d statements, %d cuts", &statements, &cuts); err != nil || cuts < 60 {
		t.Errorf("%d cuts (%v), want 60 at least: %q", cuts, err, r.logs)
	}
	t.Logf("%d cuts in %s: 60 take %s", cuts, took, (took * 60 / time.Duration(max(cuts, 1))).Round(time.Millisecond))
}

// Each statement of a batch can be the last that is executed.
func TestCrashCutsWithinABatch(t *testing.T) {
	devtest.Postgres(t)
	seen := map[int]bool{}
	runs := 0
	r := crash(t, postroomtest.Scenario{
		Setup: func(ctx context.Context, pool *pgxpool.Pool) error {
			runs = 0
			_, err := pool.Exec(ctx, "CREATE TABLE line (n int)")
			return err
		},
		Run: func(ctx context.Context, pool *pgxpool.Pool) error {
			if runs++; runs > 1 {
				return nil
			}
			var batch pgx.Batch
			for i := range 3 {
				batch.Queue("BEGIN")
				batch.Queue("INSERT INTO line VALUES ($1)", i)
				batch.Queue("COMMIT")
			}
			return pool.SendBatch(ctx, &batch).Close()
		},
	}, func(ctx context.Context, pool *pgxpool.Pool) error {
		var n int
		err := pool.QueryRow(ctx, "SELECT count(*) FROM line").Scan(&n)
		seen[n] = true
		return err
	})
	if len(r.errors) > 0 || len(seen) != 4 {
		t.Errorf("outcomes %v, want 0 to 3 lines\n%s", seen, strings.Join(r.errors, "\n"))
	}
}

func TestCrashTellsWhatIsWrongWithAScenario(t *testing.T) {
	devtest.Postgres(t)
	nothing := func(context.Context, *pgxpool.Pool) error { return nil }
	for _, tt := range []struct {
		name     string
		scenario postroomtest.Scenario
		check    func(context.Context, *pgxpool.Pool) error
		want     string
	}{
		{"Setup fails", postroomtest.Scenario{Setup: func(context.Context, *pgxpool.Pool) error { return errors.New("no disk") }, Run: nothing}, nothing, "run the scenario's Setup: no disk"},
		{"Run fails", postroomtest.Scenario{Run: func(context.Context, *pgxpool.Pool) error { return errors.New("no luck") }}, nothing, "even without a cut: run the scenario: no luck"},
		{"no statement", postroomtest.Scenario{Run: nothing}, nothing, "no statement"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := crash(t, tt.scenario, tt.check)
			if len(r.errors) != 1 || !strings.Contains(r.errors[0], tt.want) {
				t.Errorf("it says %q, want %q", r.errors, tt.want)
			}
		})
	}
}
