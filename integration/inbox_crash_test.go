package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postroom/postroom/internal/devtest"
)

// crash is a process that ends at one point of a delivery, once or more often.
type crash struct {
	name  string
	point string // see killer
	only  string
	spare int
	batch int
	alone bool // one worker with full batches: an event that comes during the first batch is in the next
	times int  // how many processes end in this way, one after the other; none: one
}

// crashes are all steps of a delivery, of its failure, and of a run from held.
var crashes = []crash{
	{name: "fetched, nothing written", point: "decide start", spare: 3},
	{name: "inbox row written, handler entered", point: "decide handler", spare: 3},
	{name: "effect made", point: "decide effect", spare: 3},
	{name: "before the commit", point: "decide commit start"},
	{name: "committed, not acknowledged", point: "decide commit end"},
	{name: "before the commit that begins the next", point: "chain start", spare: 2},
	{name: "committed, the next begun, not acknowledged", point: "chain end", spare: 2},
	{name: "first delivery and second", point: "decide effect", only: "ok-5", times: 2},
	{name: "failed, not held", point: "hold start"},
	{name: "held, not acknowledged", point: "hold end"},
	{name: "claimed", point: "claim end"},
	{name: "claimed, before its transaction", point: "rerun start"},
	{name: "run from held, handler entered", point: "rerun handler"},
	{name: "run from held, effect made", point: "rerun effect"},
	{name: "run from held, before it is settled", point: "settle start"},
	{name: "run from held, settled, before the commit", point: "rerun commit start"},
	{name: "run from held, committed", point: "rerun commit end"},
	{name: "run from held, twice", point: "rerun effect", only: "flaky-1", times: 2},
	{name: "run from held failed, not noted", point: "fail start"},
	{name: "run from held failed, noted", point: "fail end"},
	{name: "last attempt", point: "rerun effect", only: "bad", spare: 3},
	{name: "last attempt failed, not noted", point: "fail start", spare: 3},
	{name: "batch fetched, nothing written", point: "decide start", batch: 10, spare: 1},
	{name: "in the middle of a batch", point: "decide effect", batch: 10, spare: 4},
	{name: "batch that failed, run again", point: "decide effect", batch: 10, only: "bad", spare: 1, alone: true},
	{name: "failed member of a batch held, before the commit", point: "hold start", batch: 10},
	{name: "before the commit of a batch", point: "decide commit start", batch: 10},
	{name: "batch committed, not acknowledged", point: "decide commit end", batch: 10},
}

const crashAttempts = 5

func (c crash) handler(i int) string { return fmt.Sprintf("crash.%d", i) }

func (c crash) job(d *depot, i int) job {
	workers := 2
	if c.alone {
		workers = 1
	}
	return job{
		Stream: d.stream, Handlers: []string{c.handler(i)}, Workers: workers, Batch: c.batch, Attempts: crashAttempts,
		AckWait: time.Second, Timeout: 800 * time.Millisecond, Point: c.point, Only: c.only, Spare: c.spare,
	}
}

// A process is killed at each step of a delivery, while other deliveries are under way. Then
// another process continues. Each event takes effect once. The event that always fails is dead
// after the allowed number of attempts.
func TestEventsTakeEffectOnceAfterACrashAtEveryStep(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.publish(slices.Concat(d.events("placed", "ok", 10), d.events("placed", "flaky", 3), d.events("placed", "bad", 1),
		d.events("placed", "late", 6))...)
	ended := make([]error, len(crashes))
	var handlers []string
	var wg sync.WaitGroup
	patience := devtest.Patience(t, 30*time.Second)
	room := make(chan struct{}, 4) // few at a time: the machine has few cores
	for i, c := range crashes {
		handlers = append(handlers, c.handler(i))
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			for range max(c.times, 1) {
				if ended[i] == nil {
					ended[i] = d.startInbox(c.job(d, i)).waitForEnd(patience)
				}
			}
		})
	}
	wg.Wait()
	healthy := d.startInbox(job{
		Stream: d.stream, Handlers: handlers, Workers: 1, Attempts: crashAttempts, AckWait: time.Second, Timeout: 800 * time.Millisecond,
	})
	d.waitUntilIdle(handlers...)
	healthy.stop(t)
	for i, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			if ended[i] != nil {
				t.Fatalf("the process that was to crash: %v", ended[i])
			}
			d.on(t).wantRecovered(c.handler(i))
		})
	}
}

// on returns the depot for the checks of a subtest.
func (d *depot) on(t *testing.T) *depot {
	of := *d
	of.T = t
	return &of
}

// wantRecovered fails unless every event but the bad one took effect once, and only the bad
// one is dead.
func (d *depot) wantRecovered(handler string) {
	d.Helper()
	want := map[string]int{}
	for prefix, n := range map[string]int{"ok": 10, "flaky": 3, "late": 6} {
		for i := range n {
			want[fmt.Sprintf("%s-%d", prefix, i)] = 1
		}
	}
	if got := d.tally(handler); !maps.Equal(got, want) {
		d.Errorf("effects: %v, want %v", got, want)
	}
	if n := d.number("SELECT count(*) FROM postroom.inbox WHERE handler = $1", handler); n != d.stored() {
		d.Errorf("%d inbox rows of %d events", n, d.stored())
	}
	var held []string
	rows, _ := d.pool.Query(d.Context(), `
		SELECT event_id || CASE WHEN dead_at IS NOT NULL THEN ' dead' ELSE ' due' END || ' after ' || attempts
		FROM postroom.held WHERE handler = $1 ORDER BY 1`, handler)
	for rows.Next() {
		var row string
		if err := rows.Scan(&row); err != nil {
			d.Fatal(err)
		}
		held = append(held, row)
	}
	if rows.Err() != nil {
		d.Fatal(rows.Err())
	}
	if got, want := strings.Join(held, ", "), fmt.Sprint("bad-0 dead after ", crashAttempts); got != want {
		d.Errorf("held: %s; want %s", got, want)
	}
	if !d.isDrained(handler) {
		d.Errorf("the broker still has messages to deliver: %+v", d.consumers(handler))
	}
}
