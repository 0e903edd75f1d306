package deadletter_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
)

func TestReplay(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("billing", declined, events(40)...)
	n.die("other", declined, event("alien"))
	job := n.replay(deadletter.Filter{Handler: "billing"}, deadletter.ReplayOptions{})
	if job.Events != 40 || job.State != deadletter.ReplayRunning || job.Released != 0 {
		t.Errorf("made: %+v", job)
	}
	n.want("released before it runs", 0, "SELECT count(*) FROM postroom.held WHERE dead_at IS NULL")
	n.handle("billing", nil)
	first := 0
	done, err := n.store.RunReplay(t.Context(), job.ID, deadletter.RunOptions{Progress: func(j deadletter.Replay) {
		if first == 0 {
			first = j.Released
		}
	}})
	if err != nil || first != 40 {
		t.Errorf("the first step released %d, want all: %v", first, err)
	}
	if done.State != deadletter.ReplayDone || done.Succeeded != 40 || done.Failed != 0 || done.Skipped != 0 || done.Remaining() != 0 {
		t.Errorf("result: %+v", done)
	}
	n.wantOnce("billing", 40)
	n.want("dead at another handler", 1, "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL AND handler = 'other'")
	n.want("in the audit", 1, "SELECT count(*) FROM postroom.audit WHERE action = 'replay' AND actor = 'ann' AND events = 40 AND replay = $1", job.ID)
	n.want("items that succeeded", 40, "SELECT count(*) FROM postroom.replay_event WHERE replay = $1 AND outcome = 'succeeded' AND ended_at IS NOT NULL", job.ID)
	if _, err := n.store.CreateReplay(t.Context(), deadletter.Filter{Handler: "billing"}, deadletter.ReplayOptions{}, n.by); !errors.Is(err, deadletter.ErrNoMatch) {
		t.Errorf("a replay of nothing = %v", err)
	}
	n.want("audit rows after that", 1, "SELECT count(*) FROM postroom.audit")
}

// By default a replayed event gets one attempt, whatever the handler's own number is. If it fails,
// it is dead again.
func TestAttemptsOfAReplay(t *testing.T) {
	t.Parallel()
	for _, attempts := range []int{1, 3} {
		n := newRig(t)
		n.die("billing", declined, event("e1"))
		var calls atomic.Int32
		n.handle("billing", func(postroom.Event) error {
			calls.Add(1)
			return errDeclined
		})
		job := n.runReplay(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{Attempts: attempts}))
		if job.State != deadletter.ReplayDone || job.Failed != 1 || calls.Load() != int32(attempts) {
			t.Errorf("%d attempts: %d calls, %+v", attempts, calls.Load(), job)
		}
		n.want("attempts in all", int64(1+attempts), "SELECT attempts FROM postroom.held WHERE dead_at IS NOT NULL")
		n.want("failures that are kept", int64(1+attempts), "SELECT jsonb_array_length(failures) FROM postroom.held")
	}
}

func TestCanaryStops(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("billing", declined, events(50)...)
	var calls atomic.Int32
	n.handle("billing", func(postroom.Event) error {
		calls.Add(1)
		return errDeclined
	})
	job := n.runReplay(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{Canary: 5, StopAt: new(0.4)}))
	if job.State != deadletter.ReplayStopped || job.Failed < 3 || job.Failed > 5 || job.Failed+job.Skipped != 50 {
		t.Errorf("result: %+v", job)
	}
	if got := int(calls.Load()); got != job.Failed {
		t.Errorf("%d calls, want those that failed: %d", got, job.Failed)
	}
	n.want("dead as before", 50, "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL AND next_at IS NULL")
	n.want("with their time of death", int64(50-job.Failed), `SELECT count(*) FROM postroom.held JOIN postroom.replay_event i ON i.held = held.id
		WHERE held.dead_at = i.dead_at AND i.outcome = 'withdrawn'`)
}

// While an event of the canary is open, no other event is released.
func TestCanaryIsWaitedFor(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("billing", declined, events(30)...)
	var calls atomic.Int32
	enough := make(chan struct{})
	n.handle("billing", func(postroom.Event) error {
		if calls.Add(1) >= 4 {
			<-enough
		}
		return nil
	})
	job := n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{Canary: 4})
	finished := make(chan deadletter.Replay, 1)
	steps := 0
	go func() {
		done, err := n.store.RunReplay(context.WithoutCancel(t.Context()), job.ID, deadletter.RunOptions{Progress: func(j deadletter.Replay) {
			if j.Phase == deadletter.PhaseCanary && j.Succeeded == 3 {
				if steps++; steps == 3 { // another event could have been released by now
					if j.Released != 4 {
						t.Errorf("events that were released together with the canary: %+v", j)
					}
					close(enough)
				}
			}
		}})
		if err != nil {
			t.Error(err)
		}
		finished <- done
	}()
	if done := <-finished; done.State != deadletter.ReplayDone || done.Succeeded != 30 {
		t.Errorf("result: %+v", done)
	}
	n.wantOnce("billing", 30)
}

func TestStopsWithoutACanary(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(2000, 1, 1)
	n.handle("h0", declined)
	job := n.runReplay(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{}))
	if job.State != deadletter.ReplayStopped || job.Failed < 10 || job.Failed > 600 || job.Failed+job.Skipped != 2000 {
		t.Errorf("result: %+v", job)
	}
	n.want("dead", 2000, "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL")
}

func TestRate(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("billing", declined, events(6)...)
	n.handle("billing", nil)
	began := time.Now()
	job := n.runReplay(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{Rate: 10}))
	if took := time.Since(began); job.Succeeded != 6 || took < 500*time.Millisecond { // the first event takes a tenth of a second too
		t.Errorf("6 events at 10 a second took %s: %+v", took, job)
	}
}

// Without a rate a replay releases as many events at once as may be open, and no more.
func TestReplayWithoutARateReleasesToTheBound(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(1200, 1, 1)
	job := n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})
	ctx, stop := context.WithCancel(t.Context())
	steps := 0
	_, err := n.store.RunReplay(ctx, job.ID, deadletter.RunOptions{Progress: func(j deadletter.Replay) {
		if steps++; j.Released != 500 {
			t.Errorf("released in step %d: %+v", steps, j)
		}
		if steps == 3 {
			stop()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("RunReplay = %v", err)
	}
	n.want("released", 500, "SELECT count(*) FROM postroom.held WHERE next_at IS NOT NULL")
}

// The events of a replay are fixed when it is created. An event that dies later is not part of it.
func TestItemsAreFixed(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("billing", declined, events(3)...)
	job := n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{Limit: 2})
	n.die("billing", declined, event("later"))
	n.exec("DELETE FROM postroom.held WHERE event_id = 'e2'") // as if an operator settled it by hand
	n.handle("billing", nil)
	done := n.runReplay(job)
	if done.Events != 2 || done.Succeeded != 1 || done.Skipped != 1 || done.State != deadletter.ReplayDone {
		t.Errorf("result: %+v", done)
	}
	n.want("dead", 2, "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL")
}

// Two operators replay with several processes each. Each event is replayed once.
func TestTwoReplaysOfOneFilter(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(1000, 1, 1)
	var made sync.WaitGroup
	jobs := make([]deadletter.Replay, 4)
	for i := range jobs {
		made.Go(func() {
			job, err := n.store.CreateReplay(t.Context(), deadletter.Filter{Handler: "h0"}, deadletter.ReplayOptions{Limit: 400}, n.by)
			if err != nil && !errors.Is(err, deadletter.ErrNoMatch) {
				t.Error(err)
			}
			jobs[i] = job
		})
	}
	made.Wait()
	n.want("events in replays", 1000, "SELECT count(*) FROM postroom.replay_event")
	n.want("different ones", 1000, "SELECT count(DISTINCT held) FROM postroom.replay_event")
	n.handle("h0", nil)
	var operators sync.WaitGroup
	for _, job := range jobs {
		if job.ID == 0 {
			continue
		}
		for range 2 {
			operators.Go(func() {
				done, err := n.store.RunReplay(t.Context(), job.ID, deadletter.RunOptions{})
				if err != nil || done.State != deadletter.ReplayDone || done.Succeeded != done.Events {
					t.Errorf("result: %+v, %v", done, err)
				}
			})
		}
	}
	operators.Wait()
	n.wantOnce("h0", 1000)
	n.want("released", 1000, "SELECT sum(released) FROM postroom.replay")
}

// A cancelled replay leaves the events that have not begun as they were. If it is resumed, it
// continues with these events, and not with settled ones.
func TestCancelAndResume(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("billing", declined, events(60)...)
	gate := make(chan struct{})
	var handled atomic.Int32
	n.handle("billing", func(postroom.Event) error {
		if handled.Add(1) > 20 {
			<-gate
		}
		return nil
	})
	job := n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})
	ctx, stop := context.WithCancel(t.Context())
	_, err := n.store.RunReplay(ctx, job.ID, deadletter.RunOptions{Progress: func(j deadletter.Replay) {
		if j.Succeeded == 20 {
			stop()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("RunReplay = %v", err)
	}
	devtest.Eventually(t, patience, "the next event to run", func() bool { return handled.Load() == 21 })
	cancelled, err := n.store.CancelReplay(t.Context(), job.ID, n.by)
	if err != nil {
		t.Fatal(err)
	}
	if cancelled.State != deadletter.ReplayRunning || cancelled.Phase != deadletter.PhaseEnding || cancelled.Open() == 0 {
		t.Errorf("cancelled, while one runs: %+v", cancelled)
	}
	close(gate)
	ended := n.runReplay(job)
	if ended.State != deadletter.ReplayCancelled || ended.Failed != 0 || ended.Succeeded < 21 || ended.Succeeded+ended.Skipped != 60 {
		t.Errorf("after the cancel: %+v", ended)
	}
	n.want("dead", int64(60-ended.Succeeded), "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL AND next_at IS NULL")
	if _, err := n.store.CancelReplay(t.Context(), job.ID, n.by); !errors.Is(err, deadletter.ErrReplayEnded) {
		t.Errorf("a second cancel = %v", err)
	}
	resumed, err := n.store.ResumeReplay(t.Context(), job.ID, n.by)
	if err != nil || resumed.State != deadletter.ReplayRunning || resumed.Remaining() != 60-ended.Succeeded {
		t.Fatalf("resumed: %+v, %v", resumed, err)
	}
	done := n.runReplay(job)
	if done.State != deadletter.ReplayDone || done.Succeeded != 60 || done.Skipped != 0 {
		t.Errorf("done: %+v", done)
	}
	n.wantOnce("billing", 60)
	if got := strings.Join(n.texts("SELECT action FROM postroom.audit WHERE replay = $1 ORDER BY id", job.ID), " "); got != "replay cancel resume" {
		t.Errorf("audit: %s", got)
	}
}

// A replay stops, and is resumed after the cause was corrected. It continues with the events that
// it left out, and not with those that it tried.
func TestResumeAfterAStop(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	const all, canary = 700, 30 // more than are released at once
	n.seed(all, 1, 1)
	stop := n.handle("h0", declined)
	job := n.runReplay(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{Canary: canary, StopAt: new(0.97)}))
	if job.State != deadletter.ReplayStopped || job.Failed != canary || job.Skipped != all-canary {
		t.Errorf("stopped: %+v", job)
	}
	stop()
	n.exec("UPDATE postroom.replay SET stop_at = 0.01") // earlier failures do not count
	n.handle("h0", nil)
	resumed, err := n.store.ResumeReplay(t.Context(), job.ID, n.by)
	if err != nil || resumed.Remaining() != all-canary || resumed.State != deadletter.ReplayRunning || !resumed.EndedAt.IsZero() {
		t.Fatalf("Resume = %+v, %v", resumed, err)
	}
	if _, err := n.store.ResumeReplay(t.Context(), job.ID, n.by); !errors.Is(err, deadletter.ErrReplayRunning) {
		t.Errorf("a second Resume = %v", err)
	}
	done := n.runReplay(job)
	if done.State != deadletter.ReplayDone || done.Succeeded != all-canary || done.Failed != canary || done.Skipped != 0 {
		t.Errorf("resumed: %+v", done)
	}
	n.wantOnce("h0", all-canary)
	if _, err := n.store.ResumeReplay(t.Context(), job.ID, n.by); !errors.Is(err, deadletter.ErrNoMatch) {
		t.Errorf("a resume of nothing = %v", err)
	}
}

// A replay that stopped after its canary is resumed, and its handler still fails. It begins with
// another canary, so that only as many events fail again.
func TestAResumedReplayHasACanary(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	const all, canary = 60, 3
	n.seed(all, 1, 1)
	n.handle("h0", declined)
	job := n.runReplay(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{Canary: canary}))
	for times := 1; times <= 3; times++ {
		if job.State != deadletter.ReplayStopped || job.Failed > times*canary || job.Skipped+job.Failed != all {
			t.Fatalf("stopped for the %d. time: %+v, want %d failures at most", times, job, times*canary)
		}
		resumed, err := n.store.ResumeReplay(t.Context(), job.ID, n.by)
		if err != nil || resumed.Phase != deadletter.PhaseCanary {
			t.Fatalf("Resume = %+v, %v", resumed, err)
		}
		job = n.runReplay(job)
	}
}

// A replay whose process died is idle. The audit says who goes on with it.
func TestResumeOfAnIdleReplayIsRecorded(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(5, 1, 1)
	job := n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})
	if _, err := n.store.ResumeReplay(t.Context(), job.ID, postroom.Audit{Actor: "bob", Reason: "ann's machine died"}); !errors.Is(err, deadletter.ErrReplayRunning) {
		t.Fatalf("Resume = %v", err)
	}
	n.want("rows of the audit", 1, "SELECT count(*) FROM postroom.audit WHERE action = 'resume' AND actor = 'bob' AND replay = $1 AND events = 5", job.ID)
}

// The same events come again while a replay runs. The inbox recognises them.
func TestRepeatedEventsDuringAReplayHaveNoEffect(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	all := events(100)
	n.die("billing", declined, all...)
	in := n.inbox()
	s := sub("billing")
	s.Workers = 3
	in.Handle(s, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error { return apply(ctx, tx, "billing", ev) }))
	n.run(in)
	ctx, stop := context.WithCancel(t.Context())
	var again sync.WaitGroup
	again.Go(func() {
		for ctx.Err() == nil {
			for _, ev := range all {
				if got, err := in.Accept(ctx, "billing", ev); ctx.Err() == nil && (err != nil || got != "duplicate") {
					t.Errorf("accepted again: %v, %v", got, err)
				}
			}
		}
	})
	done := n.runReplay(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{}))
	stop()
	again.Wait()
	if done.Succeeded != 100 {
		t.Errorf("result: %+v", done)
	}
	n.wantOnce("billing", 100)
}

func TestJobs(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(30, 3, 1)
	var ids []int64
	for _, h := range []string{"h0", "h1", "h2"} {
		ids = append(ids, n.replay(deadletter.Filter{Handler: h}, deadletter.ReplayOptions{Rate: 5, Canary: 2}).ID)
	}
	n.handle("h1", nil)
	n.runReplay(deadletter.Replay{ID: ids[1]})
	all, next, err := n.store.Replays(t.Context(), deadletter.ReplayFilter{}, postroom.Page{Limit: 2})
	if err != nil || next == "" || len(all) != 2 || all[0].ID != ids[2] || all[1].ID != ids[1] || all[0].Filter.Handler != "h2" || all[0].Options.Rate != 5 {
		t.Errorf("Jobs = %+v, %v", all, err)
	}
	rest, next, err := n.store.Replays(t.Context(), deadletter.ReplayFilter{}, postroom.Page{Limit: 2, After: next})
	if err != nil || next != "" || len(rest) != 1 || rest[0].ID != ids[0] {
		t.Errorf("the next page = %+v, %v", rest, err)
	}
	running, _, err := n.store.Replays(t.Context(), deadletter.ReplayFilter{Running: true}, postroom.Page{Limit: 2})
	if err != nil || len(running) != 2 {
		t.Errorf("running: %+v, %v", running, err)
	}
	if _, err := n.store.GetReplay(t.Context(), 99); !errors.Is(err, deadletter.ErrNotFound) {
		t.Errorf("Job of none = %v", err)
	}
	devtest.Eventually(t, patience, "a replay without a process to be idle", func() bool {
		j, err := n.store.GetReplay(t.Context(), ids[0])
		return err == nil && j.Idle > time.Millisecond
	})
}

// JSON has durations in seconds.
func TestDurationsInJSON(t *testing.T) {
	for _, tt := range []struct {
		value any
		want  string
	}{
		{deadletter.Replay{ID: 7, Idle: 1500 * time.Millisecond}, `"idle_seconds":1.5`},
		{deadletter.DryRun{ID: 7, Took: 250 * time.Millisecond}, `"took_seconds":0.25`},
	} {
		got, err := json.Marshal(tt.value)
		if err != nil || !strings.Contains(string(got), tt.want) || !strings.Contains(string(got), `"id":7`) || strings.Contains(string(got), "_ns") {
			t.Errorf("%s, %v, want %s", got, err, tt.want)
		}
	}
}
