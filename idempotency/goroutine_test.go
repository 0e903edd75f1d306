package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
)

// A http.TimeoutHandler inside a protected route answers while its handler still works with the
// transaction. Nothing panics, nothing that the late handler wrote is committed, and all connections
// come back.
func TestATimeoutHandlerInsideARoute(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"statements": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO ledger DEFAULT VALUES")
			return err
		},
		"rows": func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "SELECT n FROM generate_series(1, $1::int) n", 1000)
			if err != nil {
				return err
			}
			_, err = pgx.CollectRows(rows, pgx.RowTo[int])
			return err
		},
		"savepoints": func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SELECT 1")
				return err
			})
		},
		"a statement that does not end": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT pg_sleep(600)")
			return err
		},
	} {
		for _, ignores := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ignores its context %v", name, ignores), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.withPool(4, pgx.QueryExecModeCacheStatement)
				var late sync.WaitGroup
				inner := http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					late.Add(1)
					defer late.Done()
					tx, ctx := idempotency.Tx(req.Context()), req.Context()
					if ignores {
						ctx = context.WithoutCancel(ctx)
					}
					for use(ctx, tx) == nil { // until it fails
					}
					w.WriteHeader(http.StatusCreated)
				}), 20*time.Millisecond, "too slow")
				path := r.mount(idempotency.Route{Timeout: time.Second}, inner.ServeHTTP)
				for i := range 8 { // more than there are connections
					r.want(r.post(path, fmt.Sprint("k", i)), http.StatusServiceUnavailable, "")
				}
				late.Wait()
				devtest.Eventually(t, patience, "all connections to be back", func() bool { return r.pool.Stat().AcquiredConns() == 0 })
				if n := r.effects(); n != 0 {
					t.Errorf("%d effects of handlers that were too late", n)
				}
			})
		}
	}
}

// A goroutine of the handler goes on with the transaction after the handler answered.
func TestAGoroutineThatKeepsTheTransactionDoesNoHarm(t *testing.T) {
	t.Parallel()
	for _, route := range []idempotency.Route{{}, {Mode: idempotency.LeaseMode}} {
		t.Run(fmt.Sprint(route.Mode), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.withPool(4, pgx.QueryExecModeCacheStatement)
			var late sync.WaitGroup
			leave := func(tx pgx.Tx) {
				begun := make(chan struct{})
				late.Go(func() {
					_, err := tx.Exec(context.Background(), "INSERT INTO ledger DEFAULT VALUES")
					close(begun)
					for err == nil {
						_, err = tx.Exec(context.Background(), "SELECT 1")
					}
				})
				<-begun
			}
			path := r.mount(route, func(w http.ResponseWriter, req *http.Request) {
				if route.Mode != idempotency.LeaseMode {
					leave(idempotency.Tx(req.Context()))
				} else if _, err := idempotency.Phase(req.Context(), "p", func(_ context.Context, tx pgx.Tx) (int, error) {
					leave(tx)
					return 1, nil
				}); err != nil {
					t.Error(err)
				}
				w.WriteHeader(http.StatusCreated)
			})
			for i := range 20 {
				r.want(r.post(path, fmt.Sprint("k", i)), http.StatusCreated, "")
			}
			late.Wait()
			devtest.Eventually(t, patience, "all connections to be back", func() bool { return r.pool.Stat().AcquiredConns() == 0 })
			if n := r.effects(); n != 20 {
				t.Errorf("%d effects of 20 requests", n)
			}
		})
	}
}

// A handler answers with success while a goroutine still waits in a statement. The guard waits for
// it for a time, takes the connection away, and says that nothing was committed.
func TestAGoroutineInAStatementIsNotCommitted(t *testing.T) {
	t.Parallel()
	for _, route := range []idempotency.Route{{}, {Mode: idempotency.LeaseMode}} {
		t.Run(fmt.Sprint(route.Mode), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.withPool(3, pgx.QueryExecModeCacheStatement)
			var late sync.WaitGroup
			sleep := func(tx pgx.Tx) {
				var pid int
				if err := tx.QueryRow(t.Context(), "INSERT INTO ledger DEFAULT VALUES RETURNING pg_backend_pid()").Scan(&pid); err != nil {
					t.Error(err)
				}
				late.Go(func() {
					if _, err := tx.Exec(context.Background(), "SELECT pg_sleep(600)"); err == nil {
						t.Error("the statement ended")
					}
					_, _ = r.pool.Exec(context.Background(), "SELECT pg_terminate_backend($1)", pid) // it does not notice that its client has gone
				})
				devtest.Eventually(t, patience, "the statement to begin", func() bool {
					return one[int](r, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'", pid) == 1
				})
			}
			route.Timeout = time.Second
			path := r.mount(route, func(w http.ResponseWriter, req *http.Request) {
				if route.Mode != idempotency.LeaseMode {
					sleep(idempotency.Tx(req.Context()))
				} else if _, err := idempotency.Phase(req.Context(), "p", func(_ context.Context, tx pgx.Tx) (int, error) {
					sleep(tx)
					return 1, nil
				}); errors.Is(err, idempotency.ErrNotCommitted) {
					fmt.Fprint(r.log, err)
					http.Error(w, "not committed", http.StatusInternalServerError)
					return
				}
				w.WriteHeader(http.StatusCreated)
			})
			for i := range 4 { // more than there are connections
				r.want(r.post(path, fmt.Sprint("k", i)), http.StatusInternalServerError, "")
			}
			late.Wait()
			devtest.Eventually(t, patience, "all connections to be back", func() bool { return r.pool.Stat().AcquiredConns() == 0 })
			if n := r.effects(); n != 0 {
				t.Errorf("%d effects", n)
			}
			if n := strings.Count(r.log.String(), "goroutine of the handler"); n < 4 {
				t.Errorf("%d of 4 requests say what was wrong: %s", n, r.log)
			}
		})
	}
}

// Nobody sees what a handler does with the connection itself, or when it stops. So the connection
// serves no other transaction.
func TestAConnectionThatAHandlerGotIsClosed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var pid int
	path := r.mount(idempotency.Route{}, func(w http.ResponseWriter, req *http.Request) {
		if err := idempotency.Tx(req.Context()).Conn().QueryRow(req.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusCreated)
	})
	r.want(r.post(path, "k"), http.StatusCreated, "")
	devtest.Eventually(t, patience, "the end of the connection", func() bool {
		return one[int](r, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) == 0
	})
}
