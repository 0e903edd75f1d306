package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/clock"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/wire"
)

// publishAged sends an event that was logged some time ago.
func (b *bench) publishAged(id string, age time.Duration) {
	b.Helper()
	at := time.Now().Add(-age)
	header := nats.Header(wire.Encode(postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".placed", LoggedAt: at, Time: at}))
	header.Del(wire.MsgID)
	b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: header})
}

// remembering is an inbox with a handler that has its own DedupeWindow.
func (b *bench) remembering(name string, window time.Duration) *inbox.Inbox {
	in := inbox.New(b.pool, b.nc, b.config())
	sub := b.subscription(name)
	sub.DedupeWindow = window
	in.Handle(sub, effect(name))
	return in
}

// decided writes a row of inbox of some age.
func (b *bench) decided(handler, key string, age time.Duration) {
	b.Helper()
	b.exec(`INSERT INTO postroom.inbox (handler, dedupe_key, digest, at) VALUES ($1, $2, '\x00112233445566778899aabbccddeeff', now() - $3::interval)`,
		handler, key, age)
}

func (b *bench) expiredBefore(handler string) (age time.Duration) {
	b.Helper()
	err := b.pool.QueryRow(b.Context(), "SELECT coalesce(now() - expired_before, '0') FROM postroom.dedupe_window WHERE handler = $1", handler).Scan(&age)
	if err != nil {
		b.Fatal(err)
	}
	return age.Truncate(time.Minute)
}

// Two handlers of one process: one forgets after two hours, the other after 30 days.
func TestEachHandlerHasItsDedupeWindow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in = b.remembering("short", 2*time.Hour)
	b.in.Handle(b.subscription("long"), effect("long"))
	for _, handler := range []string{"short", "long"} {
		b.decided(handler, "/shop young", 90*time.Minute)
		b.decided(handler, "/shop old", 3*time.Hour)
		b.decided(handler, "/shop ancient", 31*24*time.Hour)
	}
	if removed, err := inbox.SweepOverridingDueAt(t.Context(), b.in); err != nil || removed != 3 {
		t.Errorf("%d rows removed, %v; want 3", removed, err)
	}
	if short, long := b.ledger("short"), b.ledger("long"); short != 1 || long != 2 {
		t.Errorf("%d and %d rows are left, want 1 and 2", short, long)
	}
	if short, long := b.expiredBefore("short"), b.expiredBefore("long"); short != 3*time.Hour || long != 31*24*time.Hour {
		t.Errorf("rows from before %s and %s ago are removed", short, long)
	}
	var longest time.Duration
	if err := b.pool.QueryRow(t.Context(), "SELECT longest_window FROM postroom.node").Scan(&longest); err != nil || longest != 30*24*time.Hour {
		t.Errorf("the longest window is %s, %v", longest, err)
	}

	b.run()
	b.publish("first")
	b.eventually("both to read", func() bool { return len(b.effects("short")) == 1 && len(b.effects("long")) == 1 })
	b.publishAged("fresh", 115*time.Minute)
	b.publishAged("stale", 118*time.Minute)
	b.publishAged("week", 7*24*time.Hour)
	b.publishAged("month", 29*24*time.Hour+time.Hour)
	b.eventually("the effects and the deaths", func() bool {
		return len(b.effects("short")) == 2 && b.dead("short") == 3 && len(b.effects("long")) == 4 && b.dead("long") == 1
	})
	b.wantOnce("short", "first", "fresh")
	b.wantOnce("long", "first", "fresh", "stale", "week")
	if got := b.held("short")["/shop stale"]; got.Class != "too_old" {
		t.Errorf("held: %+v", got)
	}
}

// The process that sweeps needs rows for an hour. Rows that other processes need stay.
func TestSweepKeepsRowsThatOthersNeed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const node = "INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window, seen_at) VALUES (gen_random_uuid(), $1, $2, $3, $3, $4, now() - $5::interval)"
	hours := func(n ...int) (all []time.Duration) {
		for _, n := range n {
			all = append(all, time.Duration(n)*time.Hour)
		}
		return all
	}
	b.exec(node, "lives", []string{"shared", "others"}, hours(3, 3), 3*time.Hour, time.Duration(0))
	b.exec(node, "stalled", []string{"stalled"}, hours(3), 3*time.Hour, 50*time.Minute)
	b.exec(node, "needs little", []string{"others"}, hours(1), time.Hour, time.Duration(0))
	b.exec("INSERT INTO postroom.dedupe_window (handler, kept) VALUES ('without-process', '3 h')")

	handlers := []string{"own", "shared", "others", "stalled", "without-process", "unknown"}
	for _, handler := range handlers {
		b.decided(handler, "young", 59*time.Minute)
		b.decided(handler, "old", 2*time.Hour)
	}
	b.in = inbox.New(b.pool, b.nc, b.config())
	for _, name := range []string{"own", "shared"} {
		sub := b.subscription(name)
		sub.DedupeWindow = time.Hour
		b.in.Handle(sub, effect(name))
	}
	// The Config's 30 days apply to handlers of this process without a time of their own, and
	// it has none. A handler that no process has told about gets the longest known time.
	if _, err := inbox.SweepOverridingDueAt(t.Context(), b.in); err != nil {
		t.Fatal(err)
	}
	for _, handler := range handlers {
		want := 2
		if handler == "own" {
			want = 1
		}
		if got := b.ledger(handler); got != want {
			t.Errorf("%s has %d rows, want %d", handler, got, want)
		}
	}

	b.exec("UPDATE postroom.inbox SET at = now() - interval '4 h' WHERE dedupe_key = 'old'")
	b.exec("UPDATE postroom.inbox SET at = now() - interval '31 d' WHERE handler = 'unknown' AND dedupe_key = 'old'")
	if _, err := inbox.SweepOverridingDueAt(t.Context(), b.in); err != nil {
		t.Fatal(err)
	}
	for _, handler := range handlers {
		want := 4 * time.Hour // when the youngest row that was removed was decided
		switch handler {
		case "own":
			want = 2 * time.Hour
		case "unknown":
			want = 31 * 24 * time.Hour
		}
		if got, at := b.ledger(handler), b.expiredBefore(handler); got != 1 || at != want {
			t.Errorf("%s has %d rows, and lacks those from before %s ago; want 1 and %s", handler, got, at, want)
		}
	}
}

// When the process that needed rows for longer has gone, the shorter time counts.
func TestTheLongerDedupeWindowCounts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in = b.remembering("h", 3*time.Hour)
	stop := b.run()
	b.publish("a")
	b.eventually("its effect", func() bool { return len(b.effects("h")) == 1 })
	b.decided("h", "old", 2*time.Hour)
	short := b.remembering("h", time.Hour)
	for _, want := range []int{2, 1} {
		if _, err := inbox.SweepOverridingDueAt(t.Context(), short); err != nil {
			t.Fatal(err)
		}
		if got := b.ledger("h"); got != want {
			t.Errorf("%d rows are left, want %d", got, want)
		}
		stop()
	}
}

// firstLine returns the first line of a statement of the inbox. The server and the driver see it
// with the statement, so a test can tell the statement from others.
func firstLine(t testing.TB, statement string) string {
	t.Helper()
	line, _, _ := strings.Cut(devtest.SQL(t, "internal/ledger/sql/"+statement+".sql"), "\n")
	return line
}

// waits returns a condition: a session of this database waits for a lock in the statement.
func (b *bench) waits(statement string) func() bool {
	line := firstLine(b, statement)
	return func() bool {
		var waits bool
		err := b.pool.QueryRow(b.Context(), `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE NOT l.granted AND a.datname = current_database() AND position($1 IN a.query) > 0)`, line).Scan(&waits)
		return err == nil && waits
	}
}

// An event is settled while a sweep waits for its old row. It counts as decided now, so its
// row stays.
func TestASweepMeetsASettledEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.decided("h", "settled", 3*time.Hour)
	b.decided("h", "old", 3*time.Hour)
	updating, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer updating.Rollback(t.Context()) //nolint:errcheck // it is over, or of no use
	if _, err := updating.Exec(t.Context(), "UPDATE postroom.inbox SET at = now() WHERE dedupe_key = 'settled'"); err != nil {
		t.Fatal(err)
	}
	sweepErr := make(chan error, 1)
	go func() {
		removed, err := inbox.SweepOverridingDueAt(t.Context(), b.remembering("h", 2*time.Hour))
		if err == nil && removed != 1 {
			err = fmt.Errorf("%d rows removed, want 1", removed)
		}
		sweepErr <- err
	}()
	b.eventually("the sweep to wait for the row", b.waits("expire"))
	if err := errors.Join(updating.Commit(t.Context()), <-sweepErr); err != nil {
		t.Fatal(err)
	}
}

// A process that registers while rows are removed learns that they are gone before it runs
// anything.
func TestAProcessRegistersBesideASweep(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.decided("h", "removed", 3*time.Hour)
	// Its connection has prepared the statement, so that only the execution waits.
	cfg := b.pool.Config()
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := inbox.Register(t.Context(), inbox.New(pool, b.nc, b.config())); err != nil {
		t.Fatal(err)
	}
	long, sub := inbox.New(pool, b.nc, b.config()), b.subscription("h")
	sub.DedupeWindow = 48 * time.Hour
	long.Handle(sub, effect("h"))

	held, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback(t.Context()) //nolint:errcheck // it is over, or of no use
	if _, err := held.Exec(t.Context(), "SELECT FROM postroom.inbox FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	sweepErr, registered := make(chan error, 1), make(chan error, 1)
	go func() {
		removed, err := inbox.SweepOverridingDueAt(t.Context(), b.remembering("h", 2*time.Hour))
		if err == nil && removed != 1 {
			err = fmt.Errorf("%d rows removed, want 1", removed)
		}
		sweepErr <- err
	}()
	b.eventually("the sweep to wait for the row", b.waits("expire"))
	go func() { registered <- inbox.Register(t.Context(), long) }()
	b.eventually("the process to wait for the sweep", b.waits("node"))
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-sweepErr, <-registered); err != nil {
		t.Fatal(err)
	}
	if age := time.Since(inbox.TrustsFrom(long, "h")); age > 3*time.Hour {
		t.Errorf("it relies on all rows of the last %s, and the row of three hours ago is removed", age)
	}
}

// stall is a process that stalls after a statement.
type stall struct {
	line            string // the first of the statement
	stalls, resumes chan struct{}
}

type statement struct{}

func (s *stall) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, statement{}, data.SQL)
}

func (s *stall) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, _ := ctx.Value(statement{}).(string); strings.Contains(sql, s.line) {
		close(s.stalls)
		<-s.resumes
	}
}

// A process that stalls while it sweeps keeps others from registering for two seconds at most:
// the server ends its transaction.
func TestAProcessStallsInASweep(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := &stall{firstLine(t, "windows"), make(chan struct{}), make(chan struct{})}
	cfg := b.pool.Config()
	cfg.ConnConfig.Tracer = s
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	stalled, sweepErr := inbox.New(pool, b.nc, b.config()), make(chan error, 1)
	stalled.Handle(b.subscription("h"), effect("h"))
	go func() {
		_, err := inbox.SweepOverridingDueAt(t.Context(), stalled)
		sweepErr <- err
	}()
	<-s.stalls
	if err := inbox.Register(t.Context(), b.remembering("h", time.Hour)); err != nil {
		t.Errorf("Register = %v", err)
	}
	close(s.resumes)
	if err := <-sweepErr; err == nil {
		t.Error("the stalled sweep continued")
	}
}

// If processes differ about a handler, each says so when it starts. If they run different
// handlers, there is nothing to say.
func TestProcessReportsThatAnotherHasAnotherWindow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in = b.remembering("h", 10*24*time.Hour)
	b.run()
	b.publish("a")
	b.eventually("the effect", func() bool { return len(b.effects("h")) == 1 })
	for _, tt := range []struct {
		handler string
		window  time.Duration
		differs bool
	}{
		{"h", 10 * 24 * time.Hour, false},
		{"h", 9 * 24 * time.Hour, true},
		{"h", 365 * 24 * time.Hour, true},
		{"h", 0, true}, // the Config's
		{"other", time.Hour, false},
	} {
		var log lines
		cfg := b.config()
		cfg.Logger = log.logger()
		other := inbox.New(b.pool, b.nc, cfg)
		sub := b.subscription(tt.handler)
		sub.DedupeWindow = tt.window
		other.Handle(sub, effect(tt.handler))
		if err := other.Check(t.Context()); err != nil {
			t.Errorf("%s, %s: Check = %v", tt.handler, tt.window, err)
		}
		if differs := log.has("a different DedupeWindow") && log.has("its_dedupe_window=240h0m0s"); differs != tt.differs {
			t.Errorf("%s, %s: Check warns: %t, want %t", tt.handler, tt.window, differs, tt.differs)
		}
	}
}

// Until the handlers of a stopping process have ended, the sweep keeps the rows that it needs.
func TestAStoppingProcessStaysRegistered(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var log lines
	cfg := b.config()
	cfg.Logger = log.logger()
	b.in = inbox.New(b.pool, b.nc, cfg)
	runs, end := make(chan struct{}), make(chan struct{})
	b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
		close(runs)
		<-end
		return nil
	}))
	stop := b.run()
	b.publish("a")
	<-runs
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop()
	}()
	registered := func() (n int) {
		if err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.node").Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	b.eventually("the stop to begin", func() bool { return log.has("inbox stopping, waiting for running handlers") })
	for range 1000 { // leaving takes one statement
		if registered() != 1 {
			t.Fatal("the process ended while its handler ran")
		}
	}
	close(end)
	<-ended
	if registered() != 0 {
		t.Error("the process ended and stays registered")
	}
}

// A clock that is 40 days ahead for a moment removes no row, and no event becomes too old. This
// test is not parallel, because it changes the clock of the process.
func TestDatabaseClockThatIsAheadRemovesNoRows(t *testing.T) {
	defer clock.OverrideLatest(40 * 24 * time.Hour)()
	b := newBench(t)
	b.in = b.remembering("h", 30*24*time.Hour)
	b.decided("h", "/shop a", 31*24*time.Hour)
	b.decided("h", "/shop b", 39*24*time.Hour)
	b.decided("unknown", "/shop a", 39*24*time.Hour)
	if removed, err := inbox.SweepOverridingDueAt(t.Context(), b.in); err != nil || removed != 0 {
		t.Errorf("%d rows removed, %v; want none", removed, err)
	}
	clock.OverrideLatest(0)
	b.decided("h", "/shop young", time.Hour)
	if removed, err := inbox.SweepOverridingDueAt(t.Context(), b.in); err != nil || removed != 3 {
		t.Errorf("%d rows removed, %v; want 3", removed, err)
	}
	if expired := b.expiredBefore("h"); expired != 31*24*time.Hour {
		t.Errorf("rows from before %s ago count as removed, and the youngest was decided 31 days ago", expired)
	}
}

// A turn to sweep that a wrong clock made due in 40 days is due now.
func TestATurnThatIsDueTooLateIsDueNow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("UPDATE postroom.sweep SET due_at = now() + interval '40 days'")
	b.in = b.remembering("h", 2*time.Hour)
	b.run()
	b.eventually("a turn", func() bool {
		var due bool
		if err := b.pool.QueryRow(t.Context(), "SELECT due_at < now() + interval '2 hours' FROM postroom.sweep").Scan(&due); err != nil {
			t.Fatal(err)
		}
		return due
	})
}
