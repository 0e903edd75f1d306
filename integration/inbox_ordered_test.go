package integration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// openOrderedDepot opens a depot that notes the order of effects.
func openOrderedDepot(t *testing.T) *depot {
	t.Helper()
	d := openDepot(t)
	d.exec("ALTER TABLE effect ADD COLUMN n bigserial")
	return d
}

// ofKey returns the n-th event of a key. The beginning of its id says how it is handled.
func (d *depot) ofKey(how, key string, n int) postroom.Event {
	ev := d.event("placed", fmt.Sprintf("%s/%s/%05d", how, key, n))
	ev.Key = key
	return ev
}

// outOfOrder returns how many effects of a handler came before the effect of an earlier event
// of their key, or a second time.
func (d *depot) outOfOrder(handler string) int {
	d.Helper()
	return d.number(`
		SELECT count(*) FROM (
			SELECT split_part(event, '/', 3) AS at,
			       lag(split_part(event, '/', 3)) OVER (PARTITION BY split_part(event, '/', 2) ORDER BY n) AS before
			FROM effect WHERE handler = $1) e
		WHERE before >= at`, handler)
}

// fleet is several processes that run one ordered handler.
type fleet struct {
	*depot

	job       job
	processes []*inboxProcess
}

func (f *fleet) start(n int) {
	for range n {
		f.processes = append(f.processes, f.startInbox(f.job))
	}
}

// owner returns the process that reads the stream, or -1 if none does now.
func (f *fleet) owner() int {
	f.Helper()
	var reader string
	err := f.pool.QueryRow(f.Context(), "SELECT coalesce((SELECT reader FROM postroom.subscription WHERE handler = 'o' AND reader_until > now()), '')").Scan(&reader)
	if err != nil {
		f.Fatal(err)
	}
	for i, p := range f.processes {
		if parts := strings.Split(reader, "/"); len(parts) == 3 && parts[1] == strconv.Itoa(p.cmd.Process.Pid) {
			return i
		}
	}
	return -1
}

// interrupt kills the process that reads, or stops it until another reads.
func (f *fleet) interrupt(kill bool) bool {
	f.Helper()
	i := f.owner()
	if i < 0 {
		return false
	}
	p := f.processes[i]
	if kill {
		p.signal(syscall.SIGKILL)
		<-p.done
		f.processes[i] = f.startInbox(f.job)
		return true
	}
	p.signal(syscall.SIGSTOP)
	devtest.Eventually(f.T, depotPatience, "another to read", func() bool { at := f.owner(); return at >= 0 && at != i })
	p.signal(syscall.SIGCONT)
	return true
}

// Processes that read are killed, or stall past their lease. Every event takes effect once, in
// the order of its key.
func TestOrderedProcessesThatAreKilled(t *testing.T) {
	t.Parallel()
	const keys, each, slow = 300, 5, 20
	f := &fleet{depot: openOrderedDepot(t)}
	f.job = job{
		Stream: f.stream, Handlers: []string{"o"}, Workers: 6, Attempts: 50, Order: inbox.HoldKey,
		AckWait: time.Second, Timeout: time.Second,
	}
	var events []postroom.Event
	for n := range each {
		for k := range keys {
			how := "ok"
			if (n*keys+k)%20 == 0 {
				how = "flaky"
			}
			events = append(events, f.ofKey(how, fmt.Sprint("k", k), n))
			if k%(keys*each/slow) == 0 {
				events = append(events, f.ofKey("slow", "slow", n*keys+k))
			}
		}
	}
	f.start(3)
	began := time.Now()
	interruptions, due := 0, len(events)/8
	f.publish(events...) // while they read
	devtest.Eventually(t, depotPatience, "all effects", func() bool {
		n := f.number("SELECT count(*) FROM effect")
		if n >= due && n < len(events) && f.interrupt(interruptions%3 != 2) {
			interruptions++
			due = n + len(events)/8
		}
		return n >= len(events) && f.heldCount("o") == 0
	})
	took := time.Since(began)
	if n, distinct := f.number("SELECT count(*) FROM effect"), f.number("SELECT count(DISTINCT event) FROM effect"); n != len(events) || distinct != n {
		t.Errorf("%d effects of %d events, want one of each of %d", n, distinct, len(events))
	}
	if n := f.outOfOrder("o"); n > 0 {
		t.Errorf("%d effects out of order", n)
	}
	devtest.Eventually(t, depotPatience, "the floor at the stream's end", func() bool {
		return f.number("SELECT floor FROM postroom.subscription") == len(events)
	})
	if interruptions < 5 {
		t.Errorf("inconclusive: %d strikes", interruptions)
	}
	for _, p := range f.processes {
		p.stop(t)
	}
	t.Logf("%d events, %d strikes at the process that read, %s; %d terms",
		len(events), interruptions, took, f.number("SELECT coalesce(sum(epoch), 0) FROM postroom.subscription"))
}

// external is a handler whose effects are in the transaction that finishes an event. The first
// attempt at a flaky event fails. It must not fail once more in each new process: these failures
// would pause the handler, and only one event in a minute would run.
func (k *killer) external(name string) inbox.ExternalHandler {
	return func(_ context.Context, attempt *inbox.Attempt) error {
		if strings.HasPrefix(attempt.Event.ID, "flaky") && attempt.Number == 1 {
			return errFlaky
		}
		attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return note(ctx, tx, name, attempt.Event) })
		return nil
	}
}

// An ordered external handler finishes each event once, in the order of its key.
func TestOrderedExternalProcessesThatAreKilled(t *testing.T) {
	t.Parallel()
	const keys, each = 50, 8
	f := &fleet{depot: openOrderedDepot(t)}
	f.job = job{
		Stream: f.stream, Handlers: []string{"o"}, Workers: 8, Attempts: 50, Order: inbox.HoldKey, External: true,
		AckWait: time.Second, Timeout: time.Second,
	}
	f.start(2)
	var events []postroom.Event
	for n := range each {
		for k := range keys {
			events = append(events, f.ofKey([]string{"ok", "ok", "flaky"}[(n+k)%3], fmt.Sprint("k", k), n))
		}
	}
	f.publish(events...) // while they read
	interruptions, due := 0, 60
	devtest.Eventually(t, depotPatience, "all effects", func() bool {
		n := f.number("SELECT count(*) FROM effect")
		if n >= due && n < keys*each && f.interrupt(true) {
			interruptions++
			due = n + 150
		}
		return n >= keys*each && f.heldCount("o") == 0
	})
	if n, distinct := f.number("SELECT count(*) FROM effect"), f.number("SELECT count(DISTINCT event) FROM effect"); n != keys*each || distinct != n {
		t.Errorf("%d effects of %d events, want one of each of %d", n, distinct, keys*each)
	}
	if n := f.outOfOrder("o"); n > 0 {
		t.Errorf("%d effects out of order", n)
	}
	if interruptions == 0 {
		t.Error("inconclusive: nothing was killed")
	}
	t.Logf("%d strikes", interruptions)
}

// One event ends each process that runs it. It ends dead, and later events of its key wait.
// All others take effect, and reading goes on.
func TestAProcessKillerInAnOrderedStream(t *testing.T) {
	t.Parallel()
	const keys, each = 20, 5
	d := openOrderedDepot(t)
	d.exec(auditHeld)
	for n := range each {
		for k := range keys {
			d.publish(d.ofKey("ok", fmt.Sprint("k", k), n))
		}
		if n == 1 {
			d.publish(d.ofKey("killer", "k3", 1), d.ofKey("ok", "k3", 50))
		}
	}
	j := job{
		Stream: d.stream, Handlers: []string{"o"}, Workers: 6, Attempts: 3, Order: inbox.HoldKey,
		AckWait: time.Second, Timeout: time.Second,
	}
	p := d.startInbox(j)
	deaths := 0
	devtest.Eventually(t, depotPatience, "the killer to be dead, and the others' effects", func() bool {
		select {
		case <-p.done:
			if deaths++; deaths > 20 {
				t.Fatalf("the process ended %d times", deaths)
			}
			p = d.startInbox(j)
		default:
		}
		return d.number("SELECT count(*) FROM postroom.held WHERE event_id LIKE 'killer%' AND dead_at IS NOT NULL") == 1 &&
			d.number("SELECT count(*) FROM effect") == keys*each-(each-2) && d.number("SELECT floor FROM postroom.subscription") == keys*each+2
	})
	d.publish(d.ofKey("ok", "k0", 90), d.ofKey("ok", "k3", 90))
	devtest.Eventually(t, depotPatience, "the later events' effects", func() bool {
		return d.number("SELECT count(*) FROM effect WHERE event = 'ok/k0/00090'") == 1 &&
			d.number("SELECT count(*) FROM postroom.held WHERE chain = 'k3' AND next_at IS NULL AND dead_at IS NULL") == each
	})
	p.stop(t)
	if n := d.number("SELECT count(*) FROM postroom.held"); n != each+1 {
		t.Errorf("%d rows of held, want the killer's and those behind it", n)
	}
	if n := d.outOfOrder("o"); n > 0 {
		t.Errorf("%d effects out of order, or twice", n)
	}
	if class := d.number("SELECT count(*) FROM postroom.held WHERE class = 'crash' AND attempts = 3 AND solitary"); class != 1 {
		t.Error("the killer is not dead of its crashes")
	}
	_, attempts, failures, _ := d.auditOf("event NOT LIKE 'killer%'" + notLate)
	_, _, _, dead := d.auditOf("event NOT LIKE 'killer%'")
	if attempts > 1 || failures > 0 || dead > 0 {
		t.Errorf("neighbours were charged: up to %d attempts, %d failures, %d dead", attempts, failures, dead)
	}
	t.Logf("%d deaths", deaths)
}
