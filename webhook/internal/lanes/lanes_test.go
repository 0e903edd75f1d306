package lanes_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom/webhook/internal/lanes"
)

func plenty() int { return 1 << 30 }

// Accounts share the memory in the same way as the workers. Each may have one event of any size.
func TestMemory(t *testing.T) {
	t.Parallel()
	l := lanes.New(64, 4, func() int { return 64 })
	fill := func(account string, size int) (n int) {
		for ; ; n++ {
			if _, ok := l.Enter(fmt.Sprintf("%s-%d", account, n), account, size, false); !ok {
				return n
			}
		}
	}
	if a, b, large := fill("a", 4), fill("b", 4), fill("large", 100); a != 8 || b != 4 || large != 1 {
		t.Errorf("running: %d, %d and %d, want 8, 4 and 1", a, b, large)
	}
	l.Leave("large-0", "large", 100, true)
	l.Leave("a-0", "a", 4, true)
	if n := fill("c", 4); n < 1 {
		t.Error("the memory that is free again is not used")
	}
}

// Accounts share the workers, and each of them leaves a worker to the next. Endpoints without an
// account may have all.
func TestAccounts(t *testing.T) {
	t.Parallel()
	const workers = 64
	l := lanes.New(workers, 4, plenty)
	fill := func(account string) (n int) {
		for ; ; n++ {
			if _, ok := l.Enter(fmt.Sprintf("%s-%d", account, n), account, 1, false); !ok {
				return n
			}
		}
	}
	running := make(map[string]int)
	for _, account := range []string{"a", "b", "c", "d", "e"} {
		running[account] = fill(account)
	}
	if got, want := fmt.Sprint(running), "map[a:32 b:16 c:8 d:4 e:2]"; got != want {
		t.Errorf("running: %s, want %s", got, want)
	}
	for range 30 {
		l.Leave(fmt.Sprintf("a-%d", running["a"]-1), "a", 1, true)
		running["a"]--
	}
	if n := fill("f"); n != 16 {
		t.Errorf("the next account has %d of the 32 free workers, want 16", n)
	}
	if n := fill("g"); n < 1 {
		t.Error("the last account got no worker")
	}
	for n := range 100 {
		if _, ok := l.Enter(fmt.Sprintf("own-%d", n), "", 1, false); !ok {
			t.Fatalf("an endpoint without an account is refused after %d others", n)
		}
	}
}

// The events of all waiting endpoints of an account together come back at its pace.
func TestPaceOfAnAccount(t *testing.T) {
	t.Parallel()
	l := lanes.New(2, 4, plenty)
	if _, ok := l.Enter("runs", "a", 1, false); !ok {
		t.Fatal("the first request is refused")
	}
	first, _ := l.Enter("w1", "a", 1, false)
	for n := range 30 {
		w, ok := l.Enter(fmt.Sprintf("w%d", n), "a", 1, false)
		if ok || w.Pace < first.Pace*time.Duration(max(1, n)) {
			t.Errorf("waiting endpoint %d: %+v, %t; want at least %d times %s", n+1, w, ok, n, first.Pace)
		}
		if n > 20 && !w.Many {
			t.Errorf("waiting endpoint %d: other events do not wait with it", n+1)
		}
	}
}

// Many endpoints of an account wait and are then removed, while another endpoint of the account hangs.
// The events of the remaining endpoint do not come back at the pace of all of them.
func TestEndpointsThatAreGoneSlowNoAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := lanes.New(2, 4, plenty)
		if _, ok := l.Enter("runs", "a", 1, false); !ok {
			t.Fatal("the first request is refused")
		}
		for n := range 100 {
			l.Enter(fmt.Sprintf("gone-%d", n), "a", 1, false)
		}
		time.Sleep(2*time.Minute + 1) // the time of the bubble
		if w, ok := l.Enter("stays", "a", 1, false); ok || w.Pace > lanes.SlowPace {
			t.Errorf("%+v, %t; want a pace of at most %s", w, ok, lanes.SlowPace)
		}
	})
}

// The inbox abandons a delivery that ignores the end of its time, and gives its worker another event.
// So more requests may run than there are workers. Even then, an account without a request begins one,
// and has no second one.
func TestMoreRequestsThanWorkers(t *testing.T) {
	t.Parallel()
	l := lanes.New(2, 4, plenty)
	for _, id := range []string{"abandoned-1", "abandoned-2"} {
		if _, ok := l.Enter(id, "", 1, false); !ok {
			t.Fatalf("the request to %s is refused", id)
		}
	}
	if w, ok := l.Enter("b-1", "b", 1, false); !ok {
		t.Errorf("the first request of an account waits: %+v", w)
	}
	if _, ok := l.Enter("b-2", "b", 1, false); ok {
		t.Error("the account has a second request")
	}
}
