package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

// unprepared is the option for a pooler that keeps no prepared statements.
const unprepared = "&default_query_exec_mode=exec"

// rounds is how often each other client asks or writes.
const rounds = 15

// All parts but the relay work through a pooler. It gives each transaction, and each statement
// outside of one, another of a few connections, so no part may leave something on a connection
// for its next statement. There are more clients than connections.
func TestThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	url, nc := devtest.DatabaseURL(t), devtest.NATS(t)
	through := devtest.PoolerURL(t, url, devstack.PoolerConfig{Size: 4}) + unprepared
	s := openShopThrough(t, nc, url, through, jetstream.StreamConfig{Duplicates: 2 * time.Minute, DenyDelete: true})
	leaderOf(t, map[*process]int{startRelay(t, "relay", url, devtest.NATSURL(t)): 0})
	stop := s.handleInOtherWays()

	var beside sync.WaitGroup
	for name, do := range map[string]func(context.Context, int) error{
		"ask about the log": s.askLog, "ask the inspector": s.askInspector, "look at dead events": s.lookAtDead,
		"write by other ways": s.writer(through), "do once": s.doOnce(),
	} {
		for range 2 {
			beside.Go(func() {
				for n := range rounds {
					if err := do(t.Context(), n); err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
				}
			})
		}
	}
	s.grow(200)
	beside.Wait()
	s.stopClients()
	s.wantOtherWays()
	stop()
	s.waitUntilIdle()
}

// handleInOtherWays handles the events of a stream of their own, so that they do not count as
// the shop's. Each must have one effect at each of three handlers.
func (s *shop) handleInOtherWays() (stop func()) {
	s.exec("CREATE TABLE beside (handler text NOT NULL, event text NOT NULL)")
	name := s.stream + "-beside"
	if _, err := s.js.CreateStream(s.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}, DenyDelete: true}); err != nil {
		s.Fatal(err)
	}
	in := inbox.New(s.pool, s.nc, inbox.Config{})
	sub := func(handler string) inbox.Subscription {
		return inbox.Subscription{Name: handler, Stream: name, Types: []string{name}, Workers: 3}
	}
	effect := func(handler string) postroom.HandlerFunc {
		return func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			_, err := tx.Exec(ctx, "INSERT INTO beside VALUES ($1, $2)", handler, ev.ID)
			return err
		}
	}
	ordered, batched := sub("ordered"), sub("batched")
	ordered.Order, batched.Batch = inbox.HoldKey, 10
	in.Handle(ordered, effect(ordered.Name))
	in.Handle(batched, effect(batched.Name))
	in.HandleExternal(sub("external"), func(ctx context.Context, attempt *inbox.Attempt) error {
		_, err := inbox.Step(ctx, attempt, "note", func(ctx context.Context, _ string) (struct{}, error) {
			_, err := s.pool.Exec(ctx, "INSERT INTO beside VALUES ('external', $1)", attempt.Event.ID)
			return struct{}{}, err
		})
		return err
	})
	return s.background(func(ctx context.Context) {
		if err := in.Run(ctx); err != nil {
			s.Errorf("inbox: %v", err)
		}
	})
}

// wantOtherWays waits for the effects of the events that were written beside the shop's own.
func (s *shop) wantOtherWays() {
	s.Helper()
	const written = 2 * rounds * 2 // two of these writers, each in two ways
	var effects, kinds int
	devtest.Eventually(s.T, s.patience, "the events of the other writers to take effect", func() bool {
		err := s.pool.QueryRow(s.Context(), "SELECT count(*), count(DISTINCT (handler, event)) FROM beside").Scan(&effects, &kinds)
		return err == nil && kinds >= 3*written
	})
	if effects != 3*written || kinds != effects {
		s.Errorf("%d effects of which %d differ, want %d of %d events at three handlers", effects, kinds, 3*written, written)
	}
}

func (s *shop) besideEvent(key int) postroom.Event {
	ev := postroom.NewEvent(s.stream+"-beside", key)
	ev.Key = fmt.Sprint("beside-", key%5)
	return ev
}

// writer writes one event in the caller's batch, and one with database/sql.
func (s *shop) writer(through string) func(ctx context.Context, n int) error {
	out := outbox.New(outbox.Config{Source: "/beside"})
	db, err := sql.Open("pgx", through)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = db.Close() }) // it is done with
	return func(ctx context.Context, n int) error {
		if err := out.Check(ctx, s.pool); err != nil {
			return err
		}
		var batch pgx.Batch
		batch.Queue("SELECT 1")
		if err := out.Queue(&batch, s.besideEvent(n)); err != nil {
			return err
		}
		if err := s.pool.SendBatch(ctx, &batch).Close(); err != nil {
			return fmt.Errorf("batch: %w", err)
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		return errors.Join(out.WriteSQL(ctx, tx, s.besideEvent(n)), tx.Commit())
	}
}

// doOnce does something once under a key that two clients share, in both modes.
func (s *shop) doOnce() func(ctx context.Context, n int) error {
	guard := idempotency.New(s.pool, idempotency.Config{})
	return func(ctx context.Context, n int) error {
		op := idempotency.Operation{Scope: "pooler", Key: fmt.Sprint("tx-", n), Input: n, Wait: 10 * time.Second}
		got, _, err := idempotency.Do(ctx, guard, op, func(ctx context.Context, tx pgx.Tx) (int, error) {
			var backend int
			err := tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend)
			return n, err
		})
		if err != nil || got != n {
			return fmt.Errorf("in a transaction: %d, %w", got, err)
		}
		op.Key = fmt.Sprint("lease-", n)
		got, _, err = idempotency.DoLease(ctx, guard, op, func(context.Context) (int, error) { return n, nil })
		if err != nil || got != n {
			return fmt.Errorf("under a lease: %d, %w", got, err)
		}
		return nil
	}
}

// askLog asks an operator's questions about the log, requests a republish at the end, and
// cancels it.
func (s *shop) askLog(ctx context.Context, n int) error {
	log, republishes := pglog.New(s.pool), operator.New(s.pool, operator.Config{})
	if err := log.Check(ctx); err != nil {
		return fmt.Errorf("check: %w", err)
	}
	_, errBacklog := log.Lag(ctx)
	_, errSizes := log.Sizes(ctx)
	_, errLed := republishes.HasLeader(ctx)
	_, _, errRepublishes := republishes.Republishes(ctx, postroom.Page{Limit: 5})
	_, errPreview := republishes.PreviewRepublish(ctx, operator.RepublishRequest{Since: time.Now().Add(-time.Hour), Until: time.Now(), Keys: []string{"1", "2"}})
	if err := errors.Join(errBacklog, errSizes, errLed, errRepublishes, errPreview); err != nil || n < rounds-1 {
		return err
	}
	r, err := republishes.Republish(ctx, operator.RepublishRequest{Types: []string{s.stream + ".changed"}, Rate: 10}, postroom.Audit{Actor: "ada", Reason: "a try"})
	if err == nil {
		_, err = republishes.FindRepublish(ctx, r.ID)
	}
	if err == nil {
		_, err = republishes.CancelRepublish(ctx, r.ID, postroom.Audit{Actor: "ada", Reason: "enough"})
	}
	if errors.Is(err, operator.ErrNoRepublish) || errors.Is(err, operator.ErrRepublishRunning) {
		return nil // it has ended, or the other client has cancelled it; or that of the other client runs, and was ordered before the last events
	}
	return err
}

func (s *shop) askInspector(ctx context.Context, _ int) error {
	i := inspect.New(s.pool, s.nc, inspect.Config{})
	_, errStatus := i.Status(ctx)
	_, errHandlers := i.Handlers(ctx)
	_, errKeys := i.Keys(ctx, inspect.KeyFilter{})
	_, errTables := i.Tables(ctx)
	_, errAudit := i.Audit(ctx, inspect.AuditFilter{})
	return errors.Join(errStatus, errHandlers, errKeys, errTables, errAudit)
}

func (s *shop) lookAtDead(ctx context.Context, _ int) error {
	store := deadletter.New(s.pool, deadletter.Config{})
	_, errGroups := store.Groups(ctx, deadletter.Filter{})
	_, _, errList := store.List(ctx, deadletter.Filter{}, postroom.Page{})
	_, _, errJobs := store.Replays(ctx, deadletter.ReplayFilter{}, postroom.Page{})
	return errors.Join(store.Check(ctx), errGroups, errList, errJobs)
}

// If a pooler gives the relay's statements to several connections, the relay says so at once.
// It changes no setting on any of them, because other clients get these connections next: for
// instance, that commits do not wait for the disk.
func TestARelayRefusesATransactionPooler(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, mode string
		others     int
	}{
		{"no other client", unprepared, 0},
		{"others are at work", unprepared, 6},
		{"with prepared statements", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const size = 3
			through := devtest.PoolerURL(t, devtest.DatabaseURL(t), devstack.PoolerConfig{Size: size})
			ctx, cancel := context.WithTimeout(t.Context(), devtest.Patience(t, time.Minute))
			defer cancel()
			defer keepBusy(t, through+unprepared, tt.others)()
			for range 2 { // the second one finds the first one's prepared statement
				pool, err := pgxpool.New(ctx, through+tt.mode)
				if err != nil {
					t.Fatal(err)
				}
				defer pool.Close()
				err = relay.New(pool, natsjs.NewPublisher(devtest.NATS(t)), relay.Config{}).Run(ctx)
				if !errors.Is(err, relay.ErrPooled) {
					t.Errorf("Run = %v, want ErrPooled", err)
				}
			}
			wantUntouched(t, through+unprepared, size)
		})
	}
}

// keepBusy makes the given number of clients ask one question after the other, until the returned
// function is called.
func keepBusy(t *testing.T, url string, clients int) (stop func()) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	for range clients {
		busy.Go(func() {
			for ctx.Err() == nil {
				if _, err := pool.Exec(ctx, "SELECT pg_sleep(0.0005)"); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	return func() { cancel(); busy.Wait(); pool.Close() }
}

// wantUntouched checks all of a pooler's connections, with as many transactions at once.
func wantUntouched(t *testing.T, url string, size int) {
	t.Helper()
	pids := map[int]bool{}
	for range size {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }() // it ends its transaction
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var pid int
		var scans string
		if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid(), current_setting('enable_seqscan')").Scan(&pid, &scans); err != nil {
			t.Fatal(err)
		}
		if pids[pid] = true; scans != "on" {
			t.Errorf("a connection of the pool has settings of a relay: enable_seqscan is %s", scans)
		}
	}
	if len(pids) != size {
		t.Errorf("%d connections looked at, want %d", len(pids), size)
	}
}

// A pooler that gives each client its own connection does not disturb a relay.
func TestARelayThroughASessionPooler(t *testing.T) {
	t.Parallel()
	url, nc := devtest.DatabaseURL(t), devtest.NATS(t)
	through := devtest.PoolerURL(t, url, devstack.PoolerConfig{Session: true})
	s := openShopThrough(t, nc, through, url, jetstream.StreamConfig{Duplicates: 2 * time.Minute, DenyDelete: true})
	terms := map[*process]int{startRelay(t, "relay", through, devtest.NATSURL(t)): 0, startRelay(t, "stand-by", through, devtest.NATSURL(t)): 0}
	leader := leaderOf(t, terms)
	s.grow(100)
	leader.kill()
	leaderOf(t, terms)
	s.grow(100)
	s.waitUntilIdle()
}
