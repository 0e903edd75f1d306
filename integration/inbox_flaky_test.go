package integration

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

const (
	flakyWorkers  = 8
	flakyAttempts = 5
)

// flaky is a handler that fails often, and counts how often.
type flaky struct {
	mu       sync.Mutex
	random   *rand.Rand
	failures map[string]int
	runs     map[string]int
}

func newFlaky(t *testing.T) *flaky {
	return &flaky{random: devtest.Random(t, 0), failures: map[string]int{}, runs: map[string]int{}}
}

func (f *flaky) Handle(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	if err := note(ctx, tx, "flaky", ev); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs[ev.ID]++
	if strings.HasPrefix(ev.ID, "bad") || f.random.IntN(100) < 30 {
		f.failures[ev.ID]++
		return errors.New("not now")
	}
	return nil
}

// verdicts returns which events should have taken effect, and which should be dead.
func (f *flaky) verdicts() (effects map[string]int, dead map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	effects, dead = map[string]int{}, map[string]int{}
	for id, runs := range f.runs {
		if f.failures[id] == runs {
			dead[id] = runs
		} else {
			effects[id] = 1
		}
	}
	return effects, dead
}

// A third of all attempts fail, and some events always fail. An event that succeeded took
// effect once. A dead event was tried exactly as often as allowed. Meanwhile the broker waits
// for no more answers than the processes have deliveries in memory.
func TestFailingHandlerAppliesEventsOnce(t *testing.T) {
	t.Parallel()
	events := 1000
	if os.Getenv("POSTROOM_SOAK") == "1" {
		events = 50_000
	}
	d := openDepot(t)
	bad := events / 50
	d.publish(d.events("placed", "bad", bad)...)
	d.publish(d.events("placed", "ok", events-bad)...)
	f := newFlaky(t)
	watch := &looks{}
	instances := []*instance{d.instance(inbox.Config{}, watch), d.instance(inbox.Config{}, watch)}
	for _, c := range instances {
		c.Handle(inbox.Subscription{
			Name: "flaky", Stream: d.stream, Types: []string{d.typed("placed")}, Workers: flakyWorkers, Attempts: flakyAttempts,
			Schedule: postroom.Backoff{20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond},
			Pause:    inbox.Pause{Off: true}, // each attempt has to run, although most of the first ones fail
		}, f)
		c.start()
	}
	most, samples, delivered := 0, 0, uint64(0)
	devtest.Eventually(t, 10*depotPatience, "all events to be decided", func() bool {
		for _, info := range d.consumers("flaky") {
			most, samples, delivered = max(most, info.NumAckPending), samples+1, info.Delivered.Consumer
		}
		return d.isDrained("flaky") && d.heldCount("flaky") == 0
	})
	// Processes have 8 deliveries in memory for each worker. They do not wait until the broker
	// has read their answers, so it may count answered deliveries beside the new ones.
	if bound := 2 * len(instances) * 8 * flakyWorkers; most > bound {
		t.Errorf("up to %d events were delivered and not answered, want at most %d", most, bound)
	}
	if delivered != uint64(events) { //nolint:gosec // a count
		t.Errorf("%d deliveries of %d events: the broker must not deliver failed events again", delivered, events)
	}
	if n := watch.tooMany.Load(); n > 0 {
		t.Errorf("%d times more was claimed than there was room for", n)
	}
	d.wantVerdicts(f, instances, events, bad)
	t.Logf("at most %d unanswered in %d samples; %d deliveries of %d events", most, samples, delivered, events)
}

// wantVerdicts compares the database and the counters with the handler's own counts.
func (d *depot) wantVerdicts(f *flaky, instances []*instance, events, bad int) {
	d.Helper()
	effects, dead := f.verdicts()
	if len(effects)+len(dead) != events || len(dead) < bad {
		d.Errorf("%d events succeeded and %d did not, of %d", len(effects), len(dead), events)
	}
	if got := d.tally("flaky"); !maps.Equal(got, effects) {
		d.Errorf("%d events took effect, want the %d that succeeded, once each", len(got), len(effects))
	}
	held := map[string]int{}
	rows, _ := d.pool.Query(d.Context(), "SELECT event_id, attempts FROM postroom.held WHERE dead_at IS NOT NULL AND jsonb_array_length(failures) = attempts")
	var id string
	var attempts int
	_, err := pgx.ForEachRow(rows, []any{&id, &attempts}, func() error {
		held[id] = attempts
		return nil
	})
	if err != nil {
		d.Fatal(err)
	}
	if !maps.Equal(held, dead) {
		d.Errorf("dead: %v, want those that always failed: %v", held, dead)
	}
	failures := 0
	for id, n := range dead {
		if n != flakyAttempts {
			d.Errorf("%s was tried %d times, want %d", id, n, flakyAttempts)
		}
	}
	for _, n := range f.failures {
		failures += n
	}
	if n := d.number("SELECT count(*) FROM postroom.inbox"); n != events {
		d.Errorf("%d inbox rows of %d events", n, events)
	}
	got := map[string]int{}
	for _, c := range instances {
		for _, outcome := range []string{"done", "held", "dead", "duplicate"} {
			got[outcome] += c.counted("flaky", outcome)
		}
	}
	want := map[string]int{"done": len(effects), "held": failures - len(dead), "dead": len(dead), "duplicate": 0}
	if !maps.Equal(got, want) {
		d.Errorf("outcomes %v, want %v", got, want)
	}
	d.Logf("%d succeeded, %d are dead (%d of them by chance), after %d failures", len(effects), len(dead), len(dead)-bad, failures)
}
