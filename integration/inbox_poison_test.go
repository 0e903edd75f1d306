package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// auditHeld notes each committed change of held.
const auditHeld = `
CREATE TABLE audit (n bigserial, event text NOT NULL, attempts int NOT NULL, solitary boolean NOT NULL, class text, failures int NOT NULL, dead boolean NOT NULL);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO audit (event, attempts, solitary, class, failures, dead)
	VALUES (NEW.event_id, NEW.attempts, NEW.solitary, NEW.class, coalesce(jsonb_array_length(NEW.failures), 0), NEW.dead_at IS NOT NULL);
	RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE ON postroom.held FOR EACH ROW EXECUTE FUNCTION audit();
CREATE TABLE killed (run text NOT NULL, beside int NOT NULL);`

// poisoned is the job of a process that one of its events kills.
func (d *depot) poisoned() job {
	return job{
		Stream: d.stream, Handlers: []string{"poisoned"}, Workers: 25, Attempts: 3,
		AckWait: time.Second, Timeout: time.Second,
	}
}

// supervise starts a process again each time it is gone, until no event is left to handle. While
// the killer lives, more events come, so that other events always run beside it. It returns how
// often the process was gone, and how many events came.
func (d *depot) supervise(j job, bound int) (deaths, more int) {
	d.Helper()
	p := d.startInbox(j)
	calls := 0
	devtest.Eventually(d.T, depotPatience, "no event to be held", func() bool {
		select {
		case <-p.done:
			if deaths++; deaths > bound {
				d.Fatalf("the process ended %d times", deaths)
			}
			p = d.startInbox(j)
		default:
		}
		if d.number("SELECT count(*) FROM postroom.held WHERE event_id = 'killer' AND dead_at IS NOT NULL") > 0 {
			return d.isDrained("poisoned") && d.heldCount("poisoned") == 0
		}
		if calls++; calls%8 == 0 {
			d.publish(d.event("placed", fmt.Sprint("slow-more-", more)))
			more++
		}
		return false
	})
	p.stop(d.T)
	return deaths, more
}

// notLate leaves out the events of the audit that a run ever failed to do in time. On a busy machine
// runs may be late, and such an event is charged with good reason.
const notLate = " AND event NOT IN (SELECT event FROM audit WHERE class = 'timeout')"

// auditOf returns how many events the audit has, the largest numbers of their attempts and
// failures, and how many of its rows are dead.
func (d *depot) auditOf(where string) (events, attempts, failures, dead int) {
	d.Helper()
	err := d.pool.QueryRow(d.Context(), `
		SELECT count(DISTINCT event), coalesce(max(attempts), 0), coalesce(max(failures), 0), count(*) FILTER (WHERE dead)
		FROM audit WHERE `+where).Scan(&events, &attempts, &failures, &dead)
	if err != nil {
		d.Fatal(err)
	}
	return events, attempts, failures, dead
}

// wantDeadKiller fails unless the killer is dead because of its crashes.
func (d *depot) wantDeadKiller(id string, attempts int) {
	d.Helper()
	rows, _ := d.pool.Query(d.Context(), "SELECT attempts, class, solitary FROM postroom.held WHERE event_id = $1 AND dead_at IS NOT NULL", id)
	got, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[struct {
		Attempts int
		Class    string
		Solitary bool
	}])
	if err != nil || got.Attempts != attempts || got.Class != "crash" || !got.Solitary {
		d.Errorf("the killer is held as %+v (%v), want it dead after %d attempts of class crash, solitary", got, err, attempts)
	}
	if n := d.number("SELECT count(*) FROM postroom.held"); n != 1 {
		d.Errorf("%d rows of held, want only the killer's", n)
	}
}

// One event, among a hundred that were fetched with it, ends each process that runs it. It
// ends dead. The others take effect, and none of them is charged an attempt.
func TestAProcessKillerAmongFetchedEvents(t *testing.T) {
	t.Parallel()
	// It depends on chance which events ran beside the killer each time. Without a suspect among
	// them the run has shown too little.
	for try := 1; killAmongFetched(t) == 0; try++ {
		if try == 4 {
			t.Fatal("inconclusive: four times no neighbour was suspected")
		}
	}
}

// killAmongFetched returns how many neighbours of the killer were suspected for a while.
func killAmongFetched(t *testing.T) (suspects int) {
	t.Helper()
	const slow, prefetched = 24, 99
	d := openDepot(t)
	d.exec(auditHeld)
	// The events beside it are slow, so that it ends their runs, too.
	d.publish(slices.Insert(d.events("placed", "slow", slow), slow/2, d.event("placed", "killer"))...)
	d.publish(d.events("placed", "ok", prefetched-slow)...)
	began := time.Now()
	deaths, more := d.supervise(d.poisoned(), 20)
	took := time.Since(began)

	d.wantDeadKiller("killer", 3)
	neighbours := prefetched + more
	if got := d.tally("poisoned"); len(got) != neighbours || !eachOnce(got) {
		d.Errorf("effects: %v, want one of each of %d", got, neighbours)
	}
	var attempts, failures, dead int
	suspects, attempts, failures, _ = d.auditOf("event <> 'killer'" + notLate)
	_, _, _, dead = d.auditOf("event <> 'killer'")
	if attempts > 1 || failures > 0 || dead > 0 {
		d.Errorf("neighbours were charged: up to %d attempts, %d failures, %d dead", attempts, failures, dead)
	}
	if n := d.number("SELECT count(*) FROM audit WHERE event <> 'killer' AND NOT solitary" + notLate); n > 0 {
		d.Errorf("%d neighbours were held and not as suspects", n)
	}
	// A run that is late may have been abandoned, and goes on beside the next ones.
	if n := d.number("SELECT count(*) FROM killed WHERE run = 'rerun' AND beside > 0 AND NOT EXISTS (SELECT FROM audit WHERE class = 'timeout')"); n > 0 {
		d.Errorf("the killer ran from held %d times at the same time as others", n)
	}
	t.Logf("%d deaths in %s; %d of %d neighbours were suspected for a while", deaths, took, suspects, neighbours)
	return suspects
}

// A DedupeKey function ends each process that calls it for one event. That event ends dead, and the
// others take effect, each once, although some were held before their keys were made.
func TestADedupeKeyThatEndsTheProcess(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	d.exec(auditHeld)
	j := d.poisoned()
	j.Point = "dedupe key"
	d.publish(slices.Insert(d.events("placed", "ok", 20), 10, d.event("placed", "killer"), d.event("placed", "ok-3-again"))...)
	_, more := d.supervise(j, 20)
	d.wantDeadKiller("killer", 3)
	got := d.tally("poisoned")
	if again := got["ok-3-again"] + got["ok-3"]; again != 1 || !eachOnce(got) || len(got) != 20+more {
		d.Errorf("effects: %v, want one of each of %d", got, 20+more)
	}
}

// Config.OnDead ends each process that calls it. The event becomes dead nevertheless, without it.
func TestAnOnDeadThatEndsTheProcess(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	j := d.poisoned()
	j.Point = "on dead"
	d.publish(d.events("placed", "ok", 5)...)
	d.publish(d.event("placed", "bad"))
	p, deaths := d.startInbox(j), 0
	devtest.Eventually(d.T, depotPatience, "the event to be dead", func() bool {
		select {
		case <-p.done:
			if deaths++; deaths > 20 {
				t.Fatalf("the process ended %d times", deaths)
			}
			p = d.startInbox(j)
		default:
		}
		return d.number("SELECT count(*) FROM postroom.held WHERE event_id = 'bad' AND dead_at IS NOT NULL") > 0 && d.isDrained("poisoned")
	})
	p.stop(t)
	if got := d.tally("poisoned"); len(got) != 5 || !eachOnce(got) || deaths == 0 {
		t.Errorf("effects: %v, want one of each of 5; %d deaths", got, deaths)
	}
}

// The same with held events. The events that ran beside the killer before it was known are
// charged once. After that it runs alone.
func TestAProcessKillerAmongHeldEvents(t *testing.T) {
	t.Parallel()
	const owed = 300
	d := openDepot(t)
	d.exec(auditHeld)
	c := d.instance(inbox.Config{}, nil)
	c.Handle(inbox.Subscription{Name: "poisoned", Stream: d.stream, Types: []string{d.typed("placed")}}, noting("poisoned"))
	for _, ev := range slices.Insert(d.events("placed", "slow", owed), 20, d.event("placed", "killer")) {
		if got, err := c.Accept(t.Context(), "poisoned", ev); err != nil || got != inbox.Stored {
			t.Fatalf("Accept = %v, %v", got, err)
		}
	}
	began := time.Now()
	deaths, more := d.supervise(d.poisoned(), 20)
	took := time.Since(began)

	d.wantDeadKiller("killer", 3)
	neighbours := owed + more
	if got := d.tally("poisoned"); len(got) != neighbours || !eachOnce(got) {
		d.Errorf("effects: %v, want one of each of %d", got, neighbours)
	}
	_, attempts, failures, _ := d.auditOf("event <> 'killer'" + notLate)
	_, _, _, dead := d.auditOf("event <> 'killer'")
	if attempts > 2 || failures > 0 || dead > 0 {
		d.Errorf("neighbours were charged more than once: up to %d attempts, %d failures, %d dead", attempts, failures, dead)
	}
	if n := d.number("SELECT count(*) FROM audit WHERE event <> 'killer' AND class = 'timeout'"); n > 0 {
		d.Logf("%d runs were not done in time: the machine is busy", n)
	}
	if n := d.number("SELECT count(*) FROM killed WHERE beside > 0"); n > 1 {
		d.Errorf("the killer ran %d times at the same time as others, want at most once: before it was solitary", n)
	}
	charged := d.number("SELECT count(DISTINCT event) FROM audit WHERE event <> 'killer' AND attempts > 1" + notLate)
	if most := d.poisoned().Workers / 4; charged > most { // as many run from held at the same time
		d.Errorf("%d neighbours were charged an attempt, want at most the %d that ran together with the killer before it was solitary", charged, most)
	}
	t.Logf("%d deaths in %s; %d of %d neighbours were charged once", deaths, took, charged, neighbours)
}

func eachOnce(tally map[string]int) bool {
	for _, n := range tally {
		if n != 1 {
			return false
		}
	}
	return true
}
