package deadletter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/inbox"
)

// The first event of a key is dead, and four events wait behind it. If a replay of the first event
// succeeds, all five take effect in their order. If the replay fails, everything stays as it was.
func TestReplayOfAHeadOfAKey(t *testing.T) {
	t.Parallel()
	r := newRiver(newRig(t))
	e1 := name("k", 1)
	s := newScript(e1)
	r.handle(inbox.HoldKey, s)
	r.publish("k", 1, 5)
	wantHeld := with(all("waiting", names("k", 2, 5)...), all("dead", e1))
	r.eventuallyHeld(wantHeld)

	job := r.runReplay(r.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{}))
	if job.State != deadletter.ReplayDone || job.Events != 1 || job.Failed != 1 {
		t.Errorf("a replay that fails: %+v", job)
	}
	r.eventuallyHeld(wantHeld)
	r.wantConsistent()
	if s.runs(e1) != 2 || s.runs(name("k", 2)) != 0 {
		t.Errorf("runs: %v", s.ran)
	}

	s.set(false, e1)
	job = r.runReplay(r.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{}))
	if job.State != deadletter.ReplayDone || job.Succeeded != 1 {
		t.Errorf("a replay: %+v", job)
	}
	r.eventuallyHeld(nil)
	r.wantEffects("k", names("k", 1, 5)...)
	r.publish("k", 6, 7)
	r.eventuallyEffects("k", 7)
	r.wantEffects("k", names("k", 1, 7)...)
	r.wantConsistent()
}

// The first event of a key is discarded while more events of the key arrive. All of these run in
// their order, whether they wait in the database or come from the stream. If the discarded event is
// reopened later, no other event waits for it, and it runs by itself.
func TestDiscardOfAHeadOfAKey(t *testing.T) {
	t.Parallel()
	for _, waiting := range []int{1, 4, 150} {
		r := newRiver(newRig(t))
		e1 := name("k", 1)
		s := newScript(e1)
		r.handle(inbox.HoldKey, s)
		r.publish("k", 1, 1+waiting)
		r.eventuallyHeld(with(all("waiting", names("k", 2, 1+waiting)...), all("dead", e1)))

		published := make(chan struct{})
		go func() {
			defer close(published)
			r.publish("k", 2+waiting, 41+waiting)
		}()
		r.discarded(only(e1), 1)
		<-published
		r.eventuallyEffects("k", waiting+40)
		r.eventuallyHeld(nil)
		r.wantEffects("k", names("k", 2, 41+waiting)...)

		r.reopened(only(e1), 1)
		r.want("reopened, without a key", 1, "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL AND chain IS NULL AND event_id = $1", e1)
		s.set(false, e1)
		open := s.gate(e1)
		defer open()
		job := r.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})
		finished := r.startReplay(job)
		r.eventually("the reopened event to run", func() bool { return s.runs(e1) == 2 })
		r.publish("k", 42+waiting, 42+waiting) // these do not wait for the reopened event
		r.eventuallyEffects("k", waiting+41)
		open()
		if done := <-finished; done.Succeeded != 1 {
			t.Errorf("replay: %+v", done)
		}
		r.wantEffects("k", append(names("k", 2, 42+waiting), e1)...)
		r.wantConsistent()
	}
}

// Two events of a key are dead, and no event waits for them. If they are replayed together, they
// run one after the other, even if one of them fails.
func TestReplayOfSkippedEvents(t *testing.T) {
	t.Parallel()
	r := newRiver(newRig(t))
	e2, e4 := name("k", 2), name("k", 4)
	s := newScript(e2, e4)
	r.handle(inbox.SkipKey, s)
	r.publish("k", 1, 5)
	r.eventuallyEffects("k", 3)
	r.eventuallyHeld(all("dead", e2, e4))
	r.wantEffects("k", name("k", 1), name("k", 3), name("k", 5))

	s.set(false, e4)
	open := s.gate(e2)
	defer open()
	job := r.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{StopAt: new(1.0)})
	r.want("items of one chain", 2, "SELECT count(*) FROM postroom.replay_event WHERE chain = format(E'replay %s\tk', replay) AND through = 2")
	finished := r.startReplay(job)
	r.eventuallyHeld(with(all("running", e2), all("waiting", e4)))
	open()
	if done := <-finished; done.Failed != 1 || done.Succeeded != 1 || done.State != deadletter.ReplayDone {
		t.Errorf("where the first fails again: %+v", done)
	}
	r.wantOutcomes(job, map[string]string{e2: "failed", e4: "succeeded"})
	r.eventuallyHeld(all("dead", e2))
	r.wantConsistent()
	if s.beside {
		t.Error("two events of a key ran at once")
	}

	s.set(false, e2)
	if done := r.runReplay(r.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})); done.Succeeded != 1 {
		t.Errorf("only the other event: %+v", done)
	}
	r.wantEffects("k", name("k", 1), name("k", 3), name("k", 5), e4, e2)
	r.wantConsistent()
}

// lates writes dead events of a key into held that came too late for their order. No event waits
// behind them.
func (r *river) lates(key string, from, to int) {
	r.Helper()
	r.exec(`INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'o', '/shop ' || format('%s-%s', $1::text, lpad(i::text, 5, '0'))
		FROM generate_series($2::int, $3::int) i`, key, from, to)
	r.exec(`INSERT INTO postroom.held (handler, dedupe_key, pos, dead_at, class, cause, failures, first_failed_at, logged_at,
			source, event_id, type, subject, key, content_type, data)
		SELECT 'o', '/shop ' || id, i, now() - i * interval '1 second', 'late', '\x00112233445566778899aabbccddeeff',
			'[{"at": "2026-01-01T00:00:00Z", "class": "late", "text": "it came late"}]', now(), now(),
			'/shop', id, $4::text || '.placed', $4::text || '.placed', $1::text, 'application/json', '1'
		FROM generate_series($2::int, $3::int) i, format('%s-%s', $1::text, lpad(i::text, 5, '0')) id`, key, from, to, r.stream)
}

// dead returns when each held event died.
func (n *rig) dead() []string {
	n.Helper()
	return n.texts("SELECT format('%s %s %s', event_id, extract(epoch FROM dead_at), chain) FROM postroom.held WHERE dead_at IS NOT NULL ORDER BY event_id")
}

// An ordered handler replays late events of a key. They run in their order, although the last of
// them died first. If one fails, the events behind it stay as they were.
func TestReplayOfLateEvents(t *testing.T) {
	t.Parallel()
	r := newRiver(newRig(t))
	s := newScript(name("k", 1))
	stop := r.handle(inbox.HoldKey, s)
	r.publish("z", 1, 1) // until it reads
	r.eventuallyEffects("z", 1)
	r.lates("k", 1, 5)
	before := r.dead()
	job := r.runReplay(r.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{StopAt: new(1.0)}))
	if job.State != deadletter.ReplayDone || job.Failed != 1 || job.Skipped != 4 {
		t.Errorf("where the first fails: %+v", job)
	}
	r.wantOutcomes(job, with(all("withdrawn", names("k", 2, 5)...), all("failed", name("k", 1))))
	if after := r.dead(); len(after) != 5 || !slices.Equal(after[1:], before[1:]) {
		t.Errorf("dead: %v, want the events without an attempt unchanged: %v", after, before)
	}
	r.wantConsistent()
	r.wantEffects("k")

	s.set(false, name("k", 1))
	job = r.runReplay(r.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{}))
	if job.Succeeded != 5 {
		t.Errorf("the second replay: %+v", job)
	}
	r.wantEffects("k", names("k", 1, 5)...)
	r.wantConsistent()
	stop()
	if s.beside {
		t.Error("two events of a key ran at once")
	}
}

// A replay of late events is cancelled or stopped while the first of them runs. It leaves none of
// its own keys behind, whatever happens to the first event. Events that were not tried stay as they
// were.
func TestEndOfAReplayOfAChain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		order inbox.Order
		fails bool // whether the first event fails
		end   deadletter.ReplayState
	}{
		{"cancelled, and the head fails", inbox.HoldKey, true, deadletter.ReplayCancelled},
		{"cancelled, and the head succeeds", inbox.HoldKey, false, deadletter.ReplayCancelled},
		{"cancelled, and the head fails, for which no event waits", inbox.SkipKey, true, deadletter.ReplayCancelled},
		{"cancelled, and the head succeeds, for which no event waits", inbox.SkipKey, false, deadletter.ReplayCancelled},
		{"stopped, and the head fails", inbox.HoldKey, true, deadletter.ReplayStopped},
		{"stopped, and the head succeeds", inbox.HoldKey, false, deadletter.ReplayStopped},
		{"stopped, and the head fails, for which no event waits", inbox.SkipKey, true, deadletter.ReplayStopped},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRiver(newRig(t))
			s := newScript()
			r.handle(tt.order, s)
			r.publish("z", 1, 1)
			r.eventuallyEffects("z", 1)
			head := name("k", 101)
			r.lates("k", 101, 103) // the first to die
			var opens []func()     // the gates of the other events, which wait until the first event has run
			for i := range 10 {
				other := fmt.Sprint("other", i)
				r.lates(other, 10-i, 10-i)
				s.set(true, name(other, 10-i))
				opens = append(opens, s.gate(name(other, 10-i)))
			}
			s.set(tt.fails, head)
			before := r.dead()
			open := s.gate(head)
			defer open()
			// All events that are released first fail, except the late events.
			job := r.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{Canary: 5})
			finished := r.startReplay(job)
			r.eventually("the head to run", func() bool { return s.runs(head) == 1 })
			if tt.end == deadletter.ReplayCancelled {
				if _, err := r.store.CancelReplay(t.Context(), job.ID, r.by); err != nil {
					t.Error(err)
				}
			}
			for _, open := range opens {
				open()
			}
			r.eventually("the replay to be ending", func() bool {
				got, err := r.store.GetReplay(t.Context(), job.ID)
				return err == nil && got.Phase == deadletter.PhaseEnding && got.State == deadletter.ReplayRunning
			})
			r.want("of the chain, dead as before", 2, "SELECT count(*) FROM postroom.held WHERE key = 'k' AND chain IS NULL AND dead_at < now() - interval '100 seconds'")
			open()
			if done := <-finished; done.State != tt.end || done.Remaining() != 0 {
				t.Errorf("result: %+v", done)
			}
			r.wantConsistent()
			after := r.dead()
			for i, was := range before {
				if outcome := r.outcomes(job)[strings.Fields(was)[0]]; outcome == "withdrawn" && !slices.Contains(after, was) {
					t.Errorf("%s is not dead with the same content as before: %v", before[i], after)
				}
			}
			s.set(false, head)
			again := r.runReplay(r.replay(deadletter.Filter{Key: "k"}, deadletter.ReplayOptions{}))
			if again.State != deadletter.ReplayDone || again.Failed != 0 || again.Skipped != 0 {
				t.Errorf("a second replay: %+v", again)
			}
			r.wantEffects("k", names("k", 101, 103)...)
			r.wantConsistent()
		})
	}
}

// A replay also works for keys of the greatest length.
func TestReplayOfLongKeys(t *testing.T) {
	t.Parallel()
	r := newRiver(newRig(t))
	r.handle(inbox.HoldKey, newScript())
	r.publish("z", 1, 1)
	r.eventuallyEffects("z", 1)
	r.lates("k", 1, 3)
	r.exec("UPDATE postroom.held SET key = repeat('ä', 127)")
	if job := r.runReplay(r.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})); job.Succeeded != 3 {
		t.Errorf("replay: %+v", job)
	}
	r.wantEffects("k", names("k", 1, 3)...)
}
