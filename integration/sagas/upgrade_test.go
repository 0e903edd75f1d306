package sagas

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/saga"
)

// Instances begin under version 1. Programs with version 1 and with version 2 run side by
// side, as in a rolling upgrade; then only version 2 runs. All instances end with the version
// with which they began, and no event is dead. An event that version 1 snoozed waits by the clock.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	instances := 200
	if text := os.Getenv("POSTROOM_SAGAS"); text != "" {
		var err error
		if instances, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w := open(t)
	seat, payment := w.step("seat", time.Hour), w.step("payment", time.Hour)
	first := saga.Definition[trip]{Version: 1, Steps: []saga.Step[trip]{seat, payment}}
	place := w.step("seat", time.Hour)
	place.Name = "place"
	second := saga.Definition[trip]{Version: 2, Steps: []saga.Step[trip]{payment, place}, Older: []saga.Definition[trip]{first}}
	one, two := w.saga(first), w.saga(second)

	stopOne := w.process(w.runs(one))
	w.until(1, "SELECT count(*) FROM postroom.subscription WHERE handler = 'saga'")
	keys := func(prefix string, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint(prefix, "-", i))
		}
		return all
	}
	began := time.Now()
	for from := 0; from < instances; from += 1000 {
		w.begin(one, keys(fmt.Sprint("one-", from), min(1000, instances-from))...)
	}
	w.process(w.runs(two))
	w.until(1, "SELECT count(*) FROM postroom.saga_definition WHERE name = $1 AND version = 2", w.name)
	w.begin(two, keys("two", instances/10)...)

	// Every eleventh payment is declined.
	w.process(w.participates("seat", nil), w.participates("payment", func(cmd postroom.Event) error {
		if declined(cmd.Key) && cmd.Type == w.of("payment", "do") {
			return reply(cmd.Follow(w.of("payment", "failed"), saga.Death{Class: "declined"}))
		}
		return nil
	}))
	w.until(1, "SELECT least(count(*), 1) FROM postroom.held WHERE handler = 'saga' AND snoozed_at IS NOT NULL") // version 1 got an event of version 2
	stopOne()
	w.until(0, "SELECT count(*) FROM postroom.saga WHERE ended_at IS NULL")
	t.Logf("%d instances of version 1 and %d of version 2 ended in %s", instances, instances/10, time.Since(began).Round(time.Millisecond))

	if n := w.number("SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL"); n != 0 {
		t.Errorf("%d events are dead", n)
	}
	if n := w.number("SELECT count(*) FROM postroom.saga WHERE version <> CASE WHEN key LIKE 'one%' THEN 1 ELSE 2 END"); n != 0 {
		t.Errorf("%d instances changed their version", n)
	}
	wrong := w.number(`SELECT count(*) FROM (
		SELECT s.key, s.state, coalesce(string_agg(d.what, ', ' ORDER BY d.id), '') AS did
		FROM postroom.saga s LEFT JOIN did d USING (key) GROUP BY s.name, s.key, s.state
	) x WHERE (state, did) NOT IN (('done', 'seat do, payment do'), ('done', 'payment do, seat do'), ('undone', 'seat do, seat undo'), ('undone', ''))`)
	if wrong != 0 {
		t.Errorf("%d instances did a step twice, or not at all", wrong)
	}
	if done, undone := w.number("SELECT count(*) FROM postroom.saga WHERE state = 'done'"), w.number("SELECT count(*) FROM postroom.saga WHERE state = 'undone'"); done == 0 || undone == 0 {
		t.Errorf("%d are done and %d undone: the test shows nothing", done, undone)
	}
}

func declined(key string) bool {
	n := 0
	for _, c := range key {
		n += int(c)
	}
	return n%11 == 0
}
