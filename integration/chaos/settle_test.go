//go:build linux || darwin

package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// fakeEvidence is evidence whose answers a test sets.
type fakeEvidence struct {
	working bool // the processes get the processor
	passes  bool // a later event reaches every handler
	begun   time.Time
	wrote   int
}

func (w *fakeEvidence) begin() error { w.begun = time.Now(); return nil }

func (w *fakeEvidence) atWork(signs int) (bool, error) {
	return w.working && int(time.Since(w.begun)/(250*time.Millisecond)) >= signs, nil
}

func (w *fakeEvidence) write(context.Context) (string, error) { w.wrote++; return "control", nil }

func (w *fakeEvidence) arrived(_ context.Context, event string) bool {
	return w.passes && w.wrote > 0 && event == "control"
}

// Events decide how a run ends. Time alone makes no event lost.
func TestSettle(t *testing.T) {
	t.Parallel()
	queued, missing := []string{"held events: 1"}, []string{"undecided at books: 1"}
	var calls int
	for _, tt := range []struct {
		name           string
		seen           fakeEvidence
		look           func() (progress, error)
		stuck, pending []string
		least, most    time.Duration
	}{
		{name: "all is done", look: func() (progress, error) { return progress{done: 9}, nil }},
		{
			name: "slow, and it goes on for minutes", seen: fakeEvidence{working: true, passes: true},
			look: func() (progress, error) {
				calls++
				if calls == 500 {
					return progress{}, nil
				}
				return progress{queued: queued, missing: missing, done: calls / 100, left: 50_000}, nil
			},
			least: 8 * time.Minute, most: 9 * time.Minute,
		},
		{
			name: "the processes have no turn", seen: fakeEvidence{passes: true},
			look:    func() (progress, error) { return progress{queued: queued, missing: missing, left: 1}, nil },
			pending: slices.Concat(queued, missing), least: 3 * time.Minute, most: 4 * time.Minute,
		},
		{
			name: "nothing is queued, and the processes have no turn", seen: fakeEvidence{passes: true},
			look:    func() (progress, error) { return progress{missing: missing, left: 1}, nil },
			pending: missing, least: 3 * time.Minute, most: 4 * time.Minute,
		},
		{
			name: "nothing is queued, and a later event does not arrive either", seen: fakeEvidence{working: true},
			look:    func() (progress, error) { return progress{missing: missing, left: 1}, nil },
			pending: missing, least: 3 * time.Minute, most: 4 * time.Minute,
		},
		{
			name: "lost: no work is left, and a later event arrived", seen: fakeEvidence{working: true, passes: true},
			look:  func() (progress, error) { return progress{missing: missing, left: 1}, nil },
			least: lostAfter, most: 2 * lostAfter,
		},
		{
			name: "stuck: work is left, and is not done", seen: fakeEvidence{working: true, passes: true},
			look:  func() (progress, error) { return progress{queued: queued, left: 1}, nil },
			stuck: queued, least: stuckAfter, most: stuckAfter + time.Minute,
		},
		{
			name: "the same work is done over and over", seen: fakeEvidence{working: true, passes: true},
			look: func() (progress, error) {
				calls++
				return progress{queued: queued, done: calls % 2, left: 2 - calls%2}, nil
			},
			stuck: queued, least: stuckAfter, most: stuckAfter + time.Minute,
		},
		{
			name: "a server does not answer", seen: fakeEvidence{working: true, passes: true},
			look:    func() (progress, error) { return progress{}, errors.New("no answer") },
			pending: []string{"no answer"}, least: 3 * time.Minute, most: 4 * time.Minute,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls = 0
			began := time.Now()
			w, err := settle(t.Context(), &tt.seen, options{more: 1}.patience, func(context.Context) (progress, error) { return tt.look() })
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			if !slices.Equal(w.Stuck, tt.stuck) || !slices.Equal(w.Pending, tt.pending) {
				t.Errorf("%s: stuck %q and pending %q, want %q and %q", tt.name, w.Stuck, w.Pending, tt.stuck, tt.pending)
			}
			if took := time.Since(began); took < tt.least || took > tt.most {
				t.Errorf("%s: it took %s, want %s to %s", tt.name, took, tt.least, tt.most)
			}
		})
	}
}

// The limit grows with the work, and with the option of the command line.
func TestPatience(t *testing.T) {
	t.Parallel()
	once := options{seconds: 60, more: 1}
	if a, b := once.patience(0), once.patience(100_000); b <= a {
		t.Errorf("%s for no work, %s for much", a, b)
	}
	if a, b := once.patience(10), (options{seconds: 60, more: 3}).patience(10); b != 3*a {
		t.Errorf("%s, and three times that is %s", a, b)
	}
}
