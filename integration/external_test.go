package integration

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postroom/postroom/internal/devtest"
)

// merchant is a vendor that processes call. It remembers which keys it got for each request.
type merchant struct {
	mu      sync.Mutex
	keys    map[string]map[string]int // by request: the calls with each key
	running map[string]int            // by process
	waiting map[string]chan struct{}  // by process: its calls get no answer before this is closed
}

// ServeHTTP implements http.Handler. It carries a request out at once, even if the answer
// comes late.
func (m *merchant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	process := r.Header.Get("Process")
	what, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m.mu.Lock()
	if m.keys[string(what)] == nil {
		m.keys[string(what)] = map[string]int{}
	}
	m.keys[string(what)][r.Header.Get("Idempotency-Key")]++
	m.running[process]++
	wait := m.waiting[process]
	m.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-r.Context().Done():
		}
	}
	m.mu.Lock()
	m.running[process]--
	m.mu.Unlock()
	_, _ = io.WriteString(w, "done "+string(what))
}

// hold keeps the answers to a process's calls back until the returned function is called.
func (m *merchant) hold(process string) (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wait := make(chan struct{})
	m.waiting[process] = wait
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.waiting, process)
		close(wait)
	})
}

func (m *merchant) waits(process string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running[process]
}

// Processes that call a vendor are killed during calls, and one stalls for longer than its claims
// last. Each event is finished once, and all calls of a step have the same key.
func TestVendorCallsOfProcessesThatDie(t *testing.T) {
	t.Parallel()
	const handler, events = "errands", 400
	steps := []string{"charge", "ship"}
	d := openDepot(t)
	m := &merchant{keys: map[string]map[string]int{}, running: map[string]int{}, waiting: map[string]chan struct{}{}}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	e := externalJob{Stream: d.stream, Vendor: server.URL, Handler: handler, Steps: steps, Workers: 6, AckWait: time.Second, Timeout: 20 * time.Second}
	start := func() (p *inboxProcess, id string) {
		p = d.startRole("external", e)
		return p, strconv.Itoa(p.cmd.Process.Pid)
	}
	claims := func(id string) int {
		return d.number("SELECT count(*) FROM postroom.held WHERE split_part(claimed_by, '/', 2) = $1", id)
	}
	busy := func(id string) { // one call is enough: if an event's claim has expired, the event runs alone
		devtest.Eventually(t, depotPatience, "calls of process "+id, func() bool { return m.waits(id) > 0 })
	}

	publish := func(part int) { d.publish(d.events("placed", fmt.Sprint("part-", part), events/4)...) }
	for i := range 2 { // killed while the vendor has not answered
		p, id := start()
		release := m.hold(id)
		publish(i)
		busy(id)
		p.signal(syscall.SIGKILL)
		<-p.done
		release()
	}
	stalled, id := start()
	release := m.hold(id)
	publish(2)
	busy(id)
	stalled.signal(syscall.SIGSTOP)
	had := claims(id)
	others := []*inboxProcess{}
	for range 2 {
		p, _ := start()
		others = append(others, p)
	}
	publish(3)
	devtest.Eventually(t, depotPatience, "its events to be taken over", func() bool { return claims(id) == 0 })
	release() // the answers wait for this
	stalled.signal(syscall.SIGCONT)
	d.waitUntilIdle(handler)
	for _, p := range append(others, stalled) {
		p.stop(t)
	}
	if had == 0 {
		t.Error("the stopped process had claimed no event")
	}
	d.wantStepsDone(m, handler, events, steps)
}

// wantErrandsDone fails unless each event took effect once, none is dead, and the merchant got
// one key for each step of each event.
func (d *depot) wantStepsDone(m *merchant, handler string, events int, steps []string) {
	d.Helper()
	want := map[string]int{}
	for part := range 4 {
		for i := range events / 4 {
			want[fmt.Sprintf("part-%d-%d", part, i)] = 1
		}
	}
	if got := d.tally(handler); !maps.Equal(got, want) {
		d.Errorf("effects: %v, want each of %d events once", got, events)
	}
	if n := d.number("SELECT count(*) FROM postroom.held"); n != 0 {
		d.Errorf("%d events are held", n)
	}
	calls, repeated := 0, 0
	for what, keys := range m.keys {
		if len(keys) != 1 {
			d.Errorf("%s was asked for with %d keys: %v", what, len(keys), keys)
		}
		for _, n := range keys {
			calls += n
			repeated += n - 1
		}
	}
	if len(m.keys) != events*len(steps) {
		d.Errorf("the vendor carried out %d requests, want %d", len(m.keys), events*len(steps))
	}
	if repeated == 0 {
		d.Error("no call was repeated: no process was killed during one")
	}
	receipts := d.number("SELECT count(*) FROM postroom.receipt WHERE done_at IS NOT NULL")
	if all := d.number("SELECT count(*) FROM postroom.receipt"); receipts != events*len(steps) || all != receipts {
		d.Errorf("%d receipts, %d of them done, want %d", all, receipts, events*len(steps))
	}
	d.Logf("%d calls for %d things, %d of them repeated", calls, len(m.keys), repeated)
}
