package inbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// With synchronous_commit = off, the server loses the transaction of an event when one of its processes
// is killed. All processes of the server begin again, but the server does not start again. The handler
// gets the event once more.
func TestACommitThatACrashLost(t *testing.T) {
	t.Parallel()
	t.Run("unordered", func(t *testing.T) {
		t.Parallel()
		b := crashAfterCommit(t, func(b *bench) inbox.Subscription { return b.subscription("h") })
		if n := alarmed(b, b.meter, "undecided"); n != 1 {
			t.Errorf("%d alarms, want one", n)
		}
	})
	t.Run("ordered", func(t *testing.T) {
		t.Parallel()
		crashAfterCommit(t, func(b *bench) inbox.Subscription { return b.ordered("h", inbox.HoldKey) })
	})
}

// crashAfterCommit lets the server of a handler lose the commit of the handler's second event.
func crashAfterCommit(t *testing.T, of func(b *bench) inbox.Subscription) *bench {
	t.Helper()
	server := devtest.OwnPostgres(t, durable)
	admin, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec(t.Context(), "ALTER ROLE CURRENT_USER SET synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	b := newBenchOn(t, migrated(t, server.URL()), devtest.NATS(t))
	b.anew(func(cfg *inbox.Config) { cfg.AckWait = 30 * time.Second }) // longer than the crash takes
	inbox.LookOften(b.in, 6*time.Second)
	sub := of(b)
	sub.Workers = 1
	b.in.Handle(sub, effect("h"))
	b.run()
	b.publish("a")
	b.eventually("the floor", func() bool { return b.floorAt("h") == 1 })
	if _, err := admin.Exec(t.Context(), "CHECKPOINT"); err != nil {
		t.Fatal(err)
	}
	// From now on, nothing reaches the disk. An unordered handler records its next floor after some seconds.
	signal := func(name, process string) error {
		var pid int
		if err := admin.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE backend_type = $1 AND pid <> pg_backend_pid() LIMIT 1", process).Scan(&pid); err != nil {
			t.Fatal(err)
		}
		_, err := admin.Exec(t.Context(), fmt.Sprintf("COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; kill -%s %d'", name, pid))
		return err
	}
	for _, process := range []string{"walwriter", "background writer", "checkpointer"} {
		if err := signal("STOP", process); err != nil {
			t.Fatal(err)
		}
	}
	b.publish("b")
	b.eventually("the second effect", func() bool { return len(b.effects("h")) == 2 })
	b.drained()
	_ = signal("KILL", "client backend") // the server ends this connection too
	count := func(event string) (n int) {
		if err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM effect WHERE event = $1", event).Scan(&n); err != nil {
			return -1
		}
		return n
	}
	b.eventually("the floor after the crash", func() bool {
		var floor int
		err := b.pool.QueryRow(t.Context(), "SELECT floor FROM postroom.subscription").Scan(&floor)
		return err == nil && floor == 2
	})
	if a, b := count("a"), count("b"); a != 1 || b != 1 {
		t.Errorf("%d effects of the first event and %d of the second, want one of each", a, b)
	}
	return b
}
