package devtest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
)

// failing is a test that has failed.
type failing struct {
	testing.TB

	log      []string
	cleanups []func()
}

func (f *failing) Helper()          {}
func (f *failing) Failed() bool     { return true }
func (f *failing) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }
func (f *failing) Logf(format string, args ...any) {
	f.log = append(f.log, fmt.Sprintf(format, args...))
}

// draw returns what a failing test draws with two sources, and what it shows.
func draw(t *testing.T) (numbers [2]uint64, log []string) {
	f := &failing{TB: t}
	numbers = [2]uint64{devtest.Random(f, 0).Uint64(), devtest.Random(f, 1).Uint64()}
	for _, cleanup := range f.cleanups {
		cleanup()
	}
	return numbers, f.log
}

// A test that fails shows its seed once. With this seed, it draws the same numbers.
func TestRandomNumbersAreRepeatedWithTheirSeed(t *testing.T) {
	t.Setenv("POSTROOM_SEED", "")
	first, log := draw(t)
	if len(log) != 1 || !strings.HasPrefix(log[0], "POSTROOM_SEED=") {
		t.Fatalf("a failed test shows %q, want its seed, once", log)
	}
	shown, _, _ := strings.Cut(strings.TrimPrefix(log[0], "POSTROOM_SEED="), " ")
	t.Setenv("POSTROOM_SEED", "1")
	if other, _ := draw(t); other == first {
		t.Errorf("another seed draws %v again", first)
	}
	t.Setenv("POSTROOM_SEED", shown)
	if again, _ := draw(t); again != first || first[0] == first[1] {
		t.Errorf("seed %s draws %v, then %v", shown, first, again)
	}
}

func TestGoroutinesShareRandomNumbers(t *testing.T) {
	t.Parallel()
	random := devtest.Random(t, 0)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				_ = random.IntN(10)
			}
		})
	}
	all.Wait()
}
