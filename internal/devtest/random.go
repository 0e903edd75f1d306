package devtest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

const seedVariable = "POSTROOM_SEED"

// seeded has the tests that show their seed if they fail.
var seeded sync.Map

// newSeed is the seed of this process, if POSTROOM_SEED is not set.
var newSeed = uint64(time.Now().UnixNano()) //nolint:gosec // any number

// Random returns random numbers for a test. Several goroutines may draw them. If the test fails, it
// shows the seed. With POSTROOM_SEED the test draws the same numbers again. But goroutines run in
// another order each time, so a seed does not repeat all of a test. If each goroutine draws from
// numbers of its own, the order changes less: the parameter of chooses among the numbers of a seed.
func Random(t testing.TB, of int) *rand.Rand {
	t.Helper()
	seed := newSeed
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s is %q, want a number", seedVariable, text)
		}
	}
	if _, shown := seeded.LoadOrStore(t, true); !shown {
		t.Cleanup(func() {
			seeded.Delete(t)
			if t.Failed() {
				t.Logf("%s=%d repeats the random numbers", seedVariable, seed)
			}
		})
	}
	return Seeded(seed, of)
}

// Seeded is [Random] for a process that a test starts: the test draws the seed, and passes it on.
func Seeded(seed uint64, of int) *rand.Rand {
	return rand.New(&source{from: rand.NewPCG(seed, uint64(of))}) //nolint:gosec // a test's luck
}

// A source is a [rand.Source] for several goroutines.
type source struct {
	mu   sync.Mutex
	from *rand.PCG
}

func (s *source) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.from.Uint64()
}
