package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/telemetry"
)

// waiting returns the process of the server that waits for a lock of a key, or 0.
func (b *bench) waiting() (pid int) {
	b.Helper()
	err := b.pool.QueryRow(b.Context(), `SELECT coalesce(min(pid), 0) FROM pg_locks
		WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&pid)
	if err != nil {
		b.Fatal(err)
	}
	return pid
}

// overrideReaderAndReadAgain makes the only process of a handler wait for the key of the first event that it
// read. Meanwhile the process reads the later events of the key again, in another epoch. Then
// the first event may go on.
func (b *bench) overrideReaderAndReadAgain(events int) {
	b.Helper()
	b.run()
	b.eventually("it to read", func() bool { return b.reader("o") != "" })
	lock, err := b.pool.Begin(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := lock.Exec(b.Context(), "SELECT pg_advisory_xact_lock(postroom.key_lock('o', 'a'))"); err != nil {
		b.Fatal(err)
	}
	b.publishKey("a", 0)
	b.eventually("the first event to wait", func() bool { return b.waiting() != 0 })

	// As if another process had read meanwhile and had stopped.
	b.exec("UPDATE postroom.subscription SET epoch = epoch + 1, reader = NULL, reader_until = NULL")
	b.eventually("it to read again", func() bool { return b.reader("o") != "" })
	for i := 1; i < events; i++ {
		b.publishKey("a", i)
	}
	b.eventually("all to be read", func() bool { return b.count(telemetry.ConsumedMessages) == int64(1+events) })

	// The first attempt ends. The next one reads the present epoch.
	before := b.waiting()
	b.exec("SELECT pg_terminate_backend($1)", before)
	b.eventually("the next attempt to wait", func() bool { pid := b.waiting(); return pid != 0 && pid != before })
	if err := lock.Commit(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.eventually("all effects", func() bool { return b.made("o", "%") == events && b.heldCount("o") == 0 && b.dead("o") == 0 })
	b.wantOrder("o", "a", numbered("a", 0, events-1)...)
}

// If a process reads again, a worker may still have an event that it got in the term before. Later
// events of its key, which were read since, wait for it. The event must not be held any more, so
// they are not held together with it. All of them run one after the other.
func TestEventsReadAgainWaitForAnEarlierWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	b.overrideReaderAndReadAgain(40)
}

// Events of an external handler are held as they come. There are more events than one statement
// holds.
func TestExternalEventsReadAgainAreHeldOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.ordered("o", inbox.HoldKey)
	sub.VendorWindow = time.Hour
	b.in.HandleExternal(sub, func(_ context.Context, attempt *inbox.Attempt) error {
		attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return effect("o").Handle(ctx, tx, attempt.Event) })
		return nil
	})
	b.overrideReaderAndReadAgain(150)
}
