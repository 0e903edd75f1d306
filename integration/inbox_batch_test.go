package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// Two processes handle batches whose events all count in a few rows. No event is lost or
// counted twice, and the processes do not deadlock. The same holds if some events always fail.
func TestBatchesOnFewRows(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		bad  int // of this many events, one always fails
	}{
		{"all succeed", 0},
		{"one in a hundred fails", 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			events := 2500
			if os.Getenv("POSTROOM_SOAK") == "1" {
				events = 20_000
			}
			countInBatches(t, events, 1000, tt.bad)
		})
	}
}

func countInBatches(t *testing.T, events, rows, bad int) {
	d := openDepot(t)
	d.exec("CREATE TABLE counter (id text PRIMARY KEY, n int NOT NULL DEFAULT 0)")
	d.exec("INSERT INTO counter (id) SELECT generate_series(1, $1)", rows)
	want, dead, random := map[string]int{}, 0, devtest.Random(t, 0)
	all := make([]postroom.Event, events)
	for i := range all {
		all[i] = d.event("placed", fmt.Sprint("ok-", i))
		all[i].Key = strconv.Itoa(1 + random.IntN(rows))
		if bad > 0 && i%bad == bad/2 {
			all[i].ID = fmt.Sprint("bad-", i)
			dead++
			continue
		}
		want[all[i].Key]++
	}
	d.publish(all...)
	began := time.Now()
	var calls [2]*instance
	for i := range calls {
		calls[i] = d.instance(inbox.Config{}, nil)
		calls[i].Handle(inbox.Subscription{
			Name: "count", Stream: d.stream, Types: []string{d.typed("placed")}, Workers: 4, Batch: 100,
			Attempts: 5, Schedule: postroom.Backoff{20 * time.Millisecond},
		}, postroom.HandlerFunc(count))
	}
	stops := []func(){calls[0].start(), calls[1].start()}
	d.waitUntilIdle("count")
	took := time.Since(began)
	for i, stop := range stops {
		stop()
		calls[i].pool.Close()
	}
	d.wantCounted(want)
	if n := d.number("SELECT count(*) FROM postroom.inbox"); n != events {
		t.Errorf("%d inbox rows of %d events", n, events)
	}
	if n := d.number("SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL AND attempts = 5 AND event_id LIKE 'bad-%'"); n != dead || d.number("SELECT count(*) FROM postroom.held") != dead {
		t.Errorf("%d events are dead after 5 attempts, want %d and nothing else held", n, dead)
	}
	if deadlocks := d.deadlocks(); deadlocks >= events/1000 {
		t.Errorf("%d deadlocks", deadlocks)
	} else {
		t.Logf("%d events in %s, %d deadlocks, %d dead", events, took, deadlocks, dead)
	}
}

// count counts in the row of the event's key.
func count(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	if _, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1 WHERE id = $1", ev.Key); err != nil {
		return err
	}
	if strings.HasPrefix(ev.ID, "bad") {
		return errors.New("never")
	}
	return nil
}

func (d *depot) wantCounted(want map[string]int) {
	d.Helper()
	got := map[string]int{}
	rows, _ := d.pool.Query(d.Context(), "SELECT id, n FROM counter WHERE n > 0")
	var id string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error { got[id] = n; return nil }); err != nil {
		d.Fatal(err)
	}
	if !maps.Equal(got, want) {
		for id := range want {
			if got[id] != want[id] {
				d.Errorf("row %s counted %d events, want %d", id, got[id], want[id])
			}
		}
	}
}

// deadlocks returns how many there were in this database. Sessions report them at the latest
// when they end.
func (d *depot) deadlocks() int {
	d.Helper()
	mine := int(d.pool.Stat().TotalConns())
	devtest.Eventually(d.T, depotPatience, "the other sessions to end", func() bool {
		return d.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()") <= mine
	})
	return d.number("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
}
