package large

import (
	_ "embed" // the statement
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/doctor"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
)

//go:embed sql/counts.sql
var countsSQL string

// bound is up to where a state of a handler is counted.
const bound = 10_000

// However many events of other states a handler has, five dead ones are counted, and the other number
// is exact or says that it is a bound. With POSTROOM_HELD=4000000 fifty handlers have so many events
// together, and each answer comes within two seconds.
func TestStatesAreCountedBesideEachOther(t *testing.T) {
	t.Parallel()
	sizes := []int{0, bound - 1, bound + 1}
	if text := os.Getenv("POSTROOM_HELD"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, 99_999, 100_001)
		for handlers := 45; handlers > 0; handlers-- {
			sizes = append(sizes, n/45)
		}
	}
	pool := devtest.Pool(t)
	for i, n := range sizes {
		for state, events := range map[string]int{"due": n, "dead": 5} {
			if _, err := pool.Exec(t.Context(), countsSQL, fmt.Sprintf("handler-%02d", i), state, events); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := pool.Exec(t.Context(), "VACUUM (ANALYZE) postroom.held, postroom.inbox"); err != nil {
		t.Fatal(err)
	}
	in := inspect.New(pool, nil, inspect.Config{})
	took := func(what string, do func() error) {
		t.Helper()
		slowest := time.Duration(0)
		for range times {
			at := time.Now()
			if err := do(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			slowest = max(slowest, time.Since(at))
		}
		t.Logf("| `%s` | %d |", what, slowest.Milliseconds())
		if slowest > 2*time.Second && len(sizes) > 3 {
			t.Errorf("%s took %s, want at most 2 s", what, slowest)
		}
	}
	var status *inspect.Status
	took("status", func() (err error) { status, err = in.Status(t.Context()); return err })
	found := 0
	for _, h := range status.Held {
		i, _ := strconv.Atoi(h.Handler[len("handler-"):])
		for _, c := range h.States {
			want := int64(sizes[i])
			if c.State == held.Dead {
				found++
				want = 5
			}
			if exact := c.Events == want && !c.More; !exact && (!c.More || c.Events > want || c.Events < bound) {
				t.Errorf("%s has %d events in state %s (more: %t), want %d", h.Handler, c.Events, c.State, c.More, want)
			}
		}
	}
	if found != len(sizes) {
		t.Errorf("the dead events of %d handlers are counted, want %d", found, len(sizes))
	}
	took("handlers", func() error { _, err := in.Handlers(t.Context()); return err })
	took("dead groups", func() error {
		_, err := deadletter.New(pool, deadletter.Config{}).Groups(t.Context(), deadletter.Filter{})
		return err
	})
	took("doctor", func() error { _, err := doctor.New(pool, nil, doctor.Config{}).Examine(t.Context()); return err })
}
