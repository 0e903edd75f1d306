package inbox_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postroom/postroom/inbox"
)

// lines are the lines of a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), part)
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// If a handler was renamed, its old name may still have events that no process runs. The inbox
// says so at each start.
func TestHandlersWithoutAProcessAreListed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holdOne("renamed")
	var log lines
	cfg := b.config()
	cfg.Logger = log.logger()
	b.in = inbox.New(b.pool, b.nc, cfg)
	b.in.Handle(b.subscription("now"), effect("now"))
	stop := b.run()
	b.eventually("the warning", func() bool { return log.has("no process runs this handler") && log.has("handler=renamed held=1") })

	// This inbox does not list its own handlers, nor those of a live process.
	var other lines
	cfg = b.config()
	cfg.Logger = other.logger()
	second := inbox.New(b.pool, b.nc, cfg)
	second.Handle(b.subscription("other"), effect("other"))
	if err := second.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.publish("a")
	b.eventually("the effect", func() bool { return len(b.effects("now")) > 0 })
	b.in = second
	b.run()
	b.eventually("its warning", func() bool { return other.has("handler=renamed held=1") })
	if other.has("handler=now held") {
		t.Error("a handler that another process runs was listed")
	}
	stop()
	// The second inbox may not have recorded yet that it runs.
	b.eventually("the one that runs to be known, and no other", func() bool {
		var left int
		err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.node").Scan(&left)
		return err == nil && left == 1
	})
}

// The sweep removes old rows, even if they stand among new rows. The row of a held event stays at
// any age.
func TestSweepRemovesOldRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config()
	cfg.DedupeWindow = time.Hour
	b.in = inbox.New(b.pool, b.nc, cfg)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.exec(`INSERT INTO postroom.inbox (handler, dedupe_key, digest, at)
		SELECT 'h', n::text, '\x00112233445566778899aabbccddeeff', now() - CASE WHEN n % 3 = 0 THEN interval '1 m' ELSE interval '2 h' END
		FROM generate_series(1, 60000) n`)
	b.exec(`INSERT INTO postroom.held (handler, dedupe_key, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'h', n::text, now(), 'error', now(), '/shop', n::text, 'a.b', 'a.b', 'text/plain', '' FROM generate_series(1, 1000) n`)
	removed, err := inbox.SweepOverridingDueAt(t.Context(), b.in)
	if want := int64(40000 - 667); err != nil || removed != want {
		t.Errorf("%d rows removed, %v; want %d", removed, err, want)
	}
	if got := b.ledger("h"); got != 20667 {
		t.Errorf("%d rows are left, want 20000 recent ones and 667 of held events", got)
	}
}

// A sweep removes rows because of a short DedupeWindow, which is then made longer. The inbox does
// not run events from the time of the removed rows, because a repeated event would have a second
// effect.
func TestLongerWindowDoesNotTrustARemovedTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config()
	cfg.DedupeWindow = 2 * time.Hour
	b.in = inbox.New(b.pool, b.nc, cfg)
	b.in.Handle(b.subscription("h"), effect("h"))
	stop := b.run()
	b.publishAged("removed", 50*time.Minute)
	b.eventually("its effect", func() bool { return b.effects("h")["removed"] == 1 })
	stop()
	b.exec("UPDATE postroom.inbox SET at = now() - interval '3 h'") // as if three hours had passed, one more than the window
	if removed, err := inbox.SweepOverridingDueAt(t.Context(), b.in); removed != 1 || err != nil {
		t.Fatalf("%d rows removed, %v; want 1", removed, err)
	}

	cfg.DedupeWindow = 48 * time.Hour
	b.in = inbox.New(b.pool, b.nc, cfg)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.run()
	b.publishAged("removed", 4*time.Hour) // a repetition from the time whose rows were removed
	b.publishAged("new", time.Minute)
	b.eventually("an effect and a death", func() bool { return b.effects("h")["new"] == 1 && b.dead("h") == 1 })
	b.wantOnce("h", "new", "removed")
	if got := b.held("h")["/shop removed"]; got.Class != "too_old" {
		t.Errorf("held: %+v", got)
	}
}

// Inboxes sweep while they run, and take turns.
func TestInboxesTakeTurnsToSweep(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.config()
	cfg.DedupeWindow = time.Second
	for i := range 2 {
		b.in = inbox.New(b.pool, b.nc, cfg)
		b.in.Handle(b.subscription(fmt.Sprint("h", i)), effect("h"))
		b.run()
	}
	b.publish("a", "b")
	b.eventually("the effects", func() bool { return len(b.effects("h")) == 2 })
	b.eventually("the end of their rows", func() bool { return b.ledger("h0")+b.ledger("h1") == 0 })
}

// An inbox row leaves by the database's clock, and no earlier than the dedupe window ends.
func TestDedupeWindowEndsByTheClock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const window = 2 * time.Second
	b.in = b.remembering("h", window)
	b.run()
	b.publish("a")
	var decided time.Time
	b.eventually("its row", func() bool {
		return b.pool.QueryRow(t.Context(), "SELECT at FROM postroom.inbox").Scan(&decided) == nil
	})
	b.eventually("the end of the row", func() bool { return b.ledger("h") == 0 })
	var age time.Duration
	if err := b.pool.QueryRow(t.Context(), "SELECT clock_timestamp() - $1", decided).Scan(&age); err != nil || age < window {
		t.Errorf("the row left after %s, %v; want %s", age, err, window)
	}
}
