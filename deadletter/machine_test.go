package deadletter_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postroom/postroom/deadletter"
)

// machine runs replays of a few dead events step by step. Between two steps, handlers and operators
// do anything that they can do. The machine knows the state of each event, and the database must
// have the same.
type machine struct {
	*rapid.T

	n      *rig
	states map[int64]itemState
	died   map[int64]time.Time // when each event last died
	jobs   map[int64]*replaying
	audits int64

	abandoned map[int64]bool // whether the process that runs an event has died
}

// replaying has the facts that the machine knows about a replay.
type replaying struct {
	id      int64
	options deadletter.ReplayOptions
	items   []int64
	state   deadletter.ReplayState
	runs    map[int64]int // how often each event began to run in this replay
	resumed int
	before  int // how many events it had released when it was last resumed
}

type itemState string

const (
	isDead      itemState = "dead"
	isReleased  itemState = "released" // due, or waiting behind its key
	isRunning   itemState = "running"
	isDone      itemState = "settled"
	isDiscarded itemState = "discarded"
)

// A replay releases its own events and no others, each event once, in the order of its key. The
// outcomes that it reports are true. Whatever happens in between, the replay ends, and no event is
// lost.
func TestReplaysDoAsTheirModel(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue { // each takes hundreds of round trips
		if err := f.Value.Set("15"); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t, n)
		t.Repeat(map[string]func(*rapid.T){
			"replay": m.replay, "step": m.step, "step again": m.step, "begin": m.begin, "begin another": m.begin,
			"settle": m.succeed, "fail": m.fail, "give back": m.giveBack, "die": m.die, "discard": m.discard, "cancel": m.cancel, "resume": m.resume, "": m.check,
		})
		m.finish()
	})
}

// newMachine empties the tables, and puts dead events into them: a dozen without a key,
// and three events of each of two keys.
func newMachine(t *rapid.T, n *rig) *machine {
	m := &machine{T: t, n: n, states: map[int64]itemState{}, died: map[int64]time.Time{}, jobs: map[int64]*replaying{}, abandoned: map[int64]bool{}}
	n.exec("TRUNCATE postroom.held, postroom.inbox, postroom.replay, postroom.replay_event, postroom.archive, postroom.audit RESTART IDENTITY CASCADE")
	n.seed(18, 1, 3)
	n.exec("UPDATE postroom.held SET chain = 'k' || id % 2, key = 'k' || id % 2, pos = id WHERE id > 12")
	for id := range int64(18) {
		m.states[id+1] = isDead
	}
	m.see()
	return m
}

// see reads the state of each event from the database.
func (m *machine) see() {
	seen := make(map[int64]itemState)
	rows, err := m.n.pool.Query(m.Context(), `SELECT id, dead_at, CASE WHEN dead_at IS NOT NULL THEN 'dead' WHEN claimed_by IS NOT NULL THEN 'running' ELSE 'released' END
		FROM postroom.held UNION ALL SELECT id, dead_at, 'discarded' FROM postroom.archive`)
	if err != nil {
		m.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var at *time.Time
		var is itemState
		if err := rows.Scan(&id, &at, &is); err != nil {
			m.Fatal(err)
		}
		seen[id] = is
		if at != nil {
			m.died[id] = *at
		}
	}
	for id, is := range m.states {
		switch now, there := seen[id]; {
		case !there && is != isDone:
			m.Fatalf("event %d was %s, and held has no row of it", id, is)
		case there && is == isDone:
			m.Fatalf("event %d succeeded, and is %s", id, now)
		}
	}
	for id, is := range seen {
		m.states[id] = is
	}
}

// pick draws one of the events in this state. If none is, rapid draws another action: its Skip
// leaves out an action that is not possible now, and no test.
func (m *machine) pick(t *rapid.T, is itemState) int64 {
	var ids []int64
	for id, f := range m.states {
		if f == is {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		t.Skip("none is " + is)
	}
	slices.Sort(ids)
	return rapid.SampledFrom(ids).Draw(t, "event")
}

// job draws a replay. If there is none, rapid draws another action.
func (m *machine) job(t *rapid.T) *replaying {
	if len(m.jobs) == 0 {
		t.Skip("no replay")
	}
	return m.jobs[rapid.SampledFrom(slices.Sorted(maps.Keys(m.jobs))).Draw(t, "replay")]
}

func (m *machine) replay(t *rapid.T) {
	o := deadletter.ReplayOptions{
		Limit: rapid.IntRange(0, 12).Draw(t, "limit"), Canary: rapid.IntRange(0, 4).Draw(t, "canary"),
		StopAt: rapid.SampledFrom([]*float64{nil, new(0.0), new(0.3), new(1.0)}).Draw(t, "stop at"),
	}
	f := deadletter.Filter{All: true}
	if rapid.Bool().Draw(t, "some") {
		f = deadletter.Filter{IDs: rapid.SliceOfNDistinct(rapid.Int64Range(1, 18), 1, 9, rapid.ID).Draw(t, "ids")}
	}
	job, err := m.n.store.CreateReplay(m.Context(), f, o, m.n.by)
	free := m.free(f)
	switch {
	case len(free) == 0 && errors.Is(err, deadletter.ErrNoMatch):
		return
	case err != nil:
		t.Fatalf("replay of %v: %v", free, err)
	}
	m.audits++
	made := &replaying{id: job.ID, options: job.Options, state: job.State, runs: map[int64]int{}}
	for _, text := range m.n.texts("SELECT held::text FROM postroom.replay_event WHERE replay = $1 ORDER BY n", job.ID) {
		var id int64
		if _, err := fmt.Sscan(text, &id); err != nil {
			t.Fatal(err)
		}
		made.items = append(made.items, id)
		if !slices.Contains(free, id) {
			t.Fatalf("replay %d has event %d, which is %s or another's", job.ID, id, m.states[id])
		}
	}
	want := len(free)
	if o.Limit > 0 {
		want = min(want, o.Limit)
	}
	if len(made.items) != want || job.Events != want || job.Released != 0 {
		t.Fatalf("replay %d has the events %v of %v, and says %+v; want %d", job.ID, made.items, free, job, want)
	}
	m.jobs[job.ID] = made
}

// free returns the dead events of a filter that are in no running replay.
func (m *machine) free(f deadletter.Filter) []int64 {
	var free []int64
	for id, is := range m.states {
		taken := slices.ContainsFunc(slices.Collect(maps.Values(m.jobs)), func(j *replaying) bool {
			return j.state == deadletter.ReplayRunning && slices.Contains(j.items, id) && m.owns(j.id, id)
		})
		if is == isDead && !taken && (f.IDs == nil || slices.Contains(f.IDs, id)) {
			free = append(free, id)
		}
	}
	return free
}

// owns reports whether the replay is the last one that contained the event.
func (m *machine) owns(job, event int64) bool {
	return m.n.number("SELECT count(*) FROM postroom.held WHERE id = $1 AND replay = $2", event, job) == 1
}

// step makes one step of a replay. Only dead events of this replay may have changed.
func (m *machine) step(t *rapid.T) { m.advance(t, m.job(t)) }

func (m *machine) advance(t *rapid.T, j *replaying) (moved bool) {
	before := maps.Clone(m.states)
	moved, err := m.n.store.Step(m.Context(), j.id)
	if err != nil {
		t.Fatalf("step of replay %d: %v", j.id, err)
	}
	m.see()
	for id, was := range before {
		is := m.states[id]
		switch {
		case was == is:
		case !slices.Contains(j.items, id) || j.state != deadletter.ReplayRunning:
			t.Fatalf("replay %d, %s, made event %d %s, which was %s", j.id, j.state, id, is, was)
		case was == isDead && is == isReleased, was == isReleased && is == isDead:
		case was == isRunning && is == isDead && m.abandoned[id]:
			delete(m.abandoned, id)
		default:
			t.Fatalf("replay %d made event %d %s, which was %s", j.id, id, is, was)
		}
	}
	m.know(t, j)
	m.ending(j)
	return moved
}

// know compares the numbers of a replay with the states of its events.
func (m *machine) know(t *rapid.T, j *replaying) {
	job, err := m.n.store.GetReplay(m.Context(), j.id)
	if err != nil {
		t.Fatal(err)
	}
	j.state = job.State
	if job.Events != len(j.items) || job.Succeeded+job.Failed+job.Skipped+job.Remaining() != job.Events || job.Released > job.Events {
		t.Fatalf("%+v does not add up", job)
	}
	if job.Phase == deadletter.PhaseCanary && job.Released-j.before > job.Options.Canary+2 { // and the rest of a key
		t.Fatalf("%+v has released more than its canary", job)
	}
	if j.resumed == 0 && job.State == deadletter.ReplayRunning && job.Phase != deadletter.PhaseEnding && hasFailed(job) {
		t.Fatalf("%+v still runs, although enough events failed to end it", job)
	}
	if job.State == deadletter.ReplayRunning {
		return
	}
	if job.Remaining() != 0 || job.EndedAt.IsZero() {
		t.Fatalf("%+v ended with events left", job)
	}
	m.n.want("items without an outcome", 0, "SELECT count(*) FROM postroom.replay_event WHERE replay = $1 AND outcome IS NULL", j.id)
	if job.State == deadletter.ReplayDone && j.resumed == 0 {
		m.n.want("events without a key that were left out of a replay that is done", 0,
			"SELECT count(*) FROM postroom.replay_event i JOIN postroom.held h ON h.id = i.held WHERE i.replay = $1 AND i.outcome = 'withdrawn' AND h.chain IS NULL", j.id)
	}
}

// hasFailed reports whether too many events of a replay failed, so that no more may be released.
// The replay was never resumed.
func hasFailed(j deadletter.Replay) bool {
	ended, share := j.Succeeded+j.Failed, *j.Options.StopAt
	if j.Phase == deadletter.PhaseCanary {
		return float64(j.Failed) > share*float64(ended+j.Open()+max(min(j.Options.Canary-j.Released, j.Remaining()), 0))
	}
	least := min(10, j.Events)
	if share == 0 {
		least = 1
	}
	return ended >= least && j.Remaining() > 0 && float64(j.Failed) > share*float64(ended)
}

// begin makes a handler begin an event that is due. If the event waits behind its key, rapid draws
// another action.
func (m *machine) begin(t *rapid.T) {
	id := m.pick(t, isReleased)
	tag, err := m.n.pool.Exec(m.Context(), `UPDATE postroom.held SET claimed_by = 'w', epoch = epoch + 1, attempts = attempts + 1, next_at = now() + interval '1 hour'
		WHERE id = $1 AND next_at <= now() AND claimed_by IS NULL`, id)
	if err != nil {
		t.Fatal(err)
	}
	if tag.RowsAffected() == 0 {
		t.Skip("it waits behind its key")
	}
	m.states[id] = isRunning
	for _, j := range m.jobs {
		if m.owns(j.id, id) {
			j.runs[id]++
			if j.runs[id] > 1+j.resumed {
				t.Fatalf("replay %d had event %d run %d times", j.id, id, j.runs[id])
			}
		}
	}
}

// giveBack makes a process give back an event that it had claimed, because the process stops.
func (m *machine) giveBack(t *rapid.T) {
	id := m.running(t)
	m.n.exec("UPDATE postroom.held SET claimed_by = NULL, attempts = attempts - 1, next_at = now() WHERE id = $1", id)
	m.states[id] = isReleased
	for _, j := range m.jobs {
		if m.owns(j.id, id) {
			j.runs[id]--
		}
	}
}

// die makes the process die that has claimed an event.
func (m *machine) die(t *rapid.T) {
	id := m.running(t)
	m.n.exec("UPDATE postroom.held SET next_at = now() - interval '1 second' WHERE id = $1", id)
	m.abandoned[id] = true
}

// running picks an event that a living process runs.
func (m *machine) running(t *rapid.T) int64 {
	id := m.pick(t, isRunning)
	if m.abandoned[id] {
		t.Skip("its process has died")
	}
	return id
}

// succeed makes the handler succeed. The event is no longer held, and the next event of its key is
// due.
func (m *machine) succeed(t *rapid.T) {
	id := m.running(t)
	m.n.exec(`WITH gone AS (DELETE FROM postroom.held WHERE id = $1 RETURNING chain, pos)
		UPDATE postroom.held h SET next_at = now() FROM gone
		WHERE h.chain = gone.chain AND h.dead_at IS NULL
		  AND h.pos = (SELECT min(o.pos) FROM postroom.held o WHERE o.chain = gone.chain AND o.id <> $1)`, id)
	m.states[id] = isDone
}

// fail makes the handler fail for the last time.
func (m *machine) fail(t *rapid.T) {
	id := m.running(t)
	m.n.exec("UPDATE postroom.held SET dead_at = clock_timestamp(), next_at = NULL, claimed_by = NULL WHERE id = $1", id)
	m.see()
}

func (m *machine) discard(t *rapid.T) {
	id := m.pick(t, isDead)
	if _, err := m.n.store.Discard(m.Context(), deadletter.Filter{IDs: []int64{id}}, deadletter.ChangeOptions{}, m.n.by); err != nil {
		t.Fatal(err)
	}
	m.audits++
	m.see()
	if m.states[id] != isDiscarded {
		t.Fatalf("event %d is %s", id, m.states[id])
	}
}

func (m *machine) cancel(t *rapid.T) {
	j := m.job(t)
	_, err := m.n.store.CancelReplay(m.Context(), j.id, m.n.by)
	switch {
	case j.state != deadletter.ReplayRunning && errors.Is(err, deadletter.ErrReplayEnded):
		return
	case err != nil:
		t.Fatalf("cancel replay %d, %s: %v", j.id, j.state, err)
	}
	m.audits++
	m.see()
	for id := range m.abandoned {
		if m.states[id] == isDead { // the cancel took it back
			delete(m.abandoned, id)
		}
	}
	m.know(t, j)
	m.ending(j)
}

// ending checks that after a stop or a cancel each released event of a replay belongs to a process.
func (m *machine) ending(j *replaying) {
	m.n.want("released by a replay that is ending, and not begun", 0, `SELECT count(*) FROM postroom.held h JOIN postroom.replay_event i ON i.held = h.id
		JOIN postroom.replay ON replay.id = i.replay AND replay.phase = 'ending'
		WHERE i.replay = $1 AND i.outcome IS NULL AND h.replay = $1 AND h.dead_at IS NULL AND (h.claimed_by IS NULL OR h.next_at < now())`, j.id)
}

func (m *machine) resume(t *rapid.T) {
	j := m.job(t)
	_, err := m.n.store.ResumeReplay(m.Context(), j.id, m.n.by)
	switch {
	case j.state == deadletter.ReplayRunning && errors.Is(err, deadletter.ErrReplayRunning):
		m.audits++
		return
	case j.state != deadletter.ReplayRunning && errors.Is(err, deadletter.ErrNoMatch):
		return
	case err != nil:
		t.Fatalf("resume replay %d, %s: %v", j.id, j.state, err)
	}
	m.audits++
	j.resumed++
	job, err := m.n.store.GetReplay(m.Context(), j.id)
	if err != nil {
		t.Fatal(err)
	}
	j.before = job.Released
	m.know(t, j)
}

// check checks what must be true after every step.
func (m *machine) check(*rapid.T) {
	m.see()
	m.n.want("audit rows", m.audits, "SELECT count(*) FROM postroom.audit")
	m.n.want("events that run for two replays", 0, `SELECT count(*) FROM (SELECT held FROM postroom.replay_event i JOIN postroom.replay j ON j.id = i.replay
		WHERE j.state = 'running' AND i.outcome IS NULL GROUP BY held HAVING count(*) > 1) twice`)
	m.n.want("keys of which two are due, or one behind a dead one", 0, `SELECT count(*) FROM postroom.held h WHERE h.chain IS NOT NULL AND h.next_at IS NOT NULL
		AND EXISTS (SELECT FROM postroom.held o WHERE o.chain = h.chain AND o.pos < h.pos)`)
	m.n.want("outcomes that are not what became of the event", 0, `SELECT count(*) FROM postroom.replay_event i
		WHERE i.outcome = 'succeeded' AND (EXISTS (SELECT FROM postroom.held WHERE id = i.held) OR EXISTS (SELECT FROM postroom.archive WHERE id = i.held))`)
	if m.n.Failed() {
		m.FailNow()
	}
}

// finish makes the handler succeed for all released events, and runs every replay to its end.
func (m *machine) finish() {
	for rounds := 0; ; rounds++ {
		if rounds == 200 {
			m.Fatalf("the replays do not end: %v", m.states)
		}
		running := false
		for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
			m.advance(m.T, m.jobs[id])
			running = running || m.jobs[id].state == deadletter.ReplayRunning
		}
		if !running {
			break
		}
		m.n.exec(`UPDATE postroom.held SET claimed_by = 'w', next_at = now() + interval '1 hour' WHERE next_at <= now()`)
		m.see()
		for _, id := range slices.Sorted(maps.Keys(m.states)) {
			if m.states[id] == isRunning {
				m.n.exec(`WITH gone AS (DELETE FROM postroom.held WHERE id = $1 RETURNING chain)
					UPDATE postroom.held h SET next_at = now() FROM gone
					WHERE h.chain = gone.chain AND h.dead_at IS NULL
					  AND h.pos = (SELECT min(o.pos) FROM postroom.held o WHERE o.chain = gone.chain AND o.id <> $1)`, id)
				m.states[id] = isDone
			}
		}
	}
	m.check(m.T)
	for id, is := range m.states {
		if is != isDead && is != isDone && is != isDiscarded {
			m.Fatalf("all replays have ended, and event %d is %s", id, is)
		}
	}
}
