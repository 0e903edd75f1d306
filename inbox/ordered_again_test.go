package inbox_test

import (
	"testing"

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

// A process that read before, and reads again, may still be at an event that it read
// then. Those of its key that it read since wait for that one; they are not held with
// it, which it may not do any more, and go on one after the other.
func TestReaderThatReadsAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	b.run()
	b.eventually("it to read", func() bool { return b.reader("o") != "" })

	// It cannot decide the first event, for as long as the key is locked.
	lock, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), "SELECT pg_advisory_xact_lock(postroom.key_lock('o', 'a'))"); err != nil {
		t.Fatal(err)
	}
	b.publishKey("a", 0)
	b.eventually("the first event to wait", func() bool { return b.waiting() != 0 })

	// Another process read meanwhile, and left.
	b.exec("UPDATE postroom.subscription SET epoch = epoch + 1, reader = NULL, reader_until = NULL")
	b.eventually("it to read again", func() bool { return b.reader("o") != "" })
	const events = 40
	for i := 1; i < events; i++ {
		b.publishKey("a", i)
	}
	b.eventually("all to be read", func() bool { return b.count(telemetry.ConsumedMessages) == 1+events })

	// The first attempt ends, and the next one meets another epoch.
	before := b.waiting()
	b.exec("SELECT pg_terminate_backend($1)", before)
	b.eventually("the next attempt to wait", func() bool { pid := b.waiting(); return pid != 0 && pid != before })
	if err := lock.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.eventually("all effects", func() bool { return b.made("o", "%") == events && b.owes("o") == 0 })
	b.wantOrder("o", "a", numbered("a", 0, events-1)...)
}
