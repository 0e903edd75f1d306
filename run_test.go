package postroom_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
)

// part is a Runner of a test.
type part struct {
	stops time.Duration // it ends by itself after this time; 0: only when its context ends
	drain time.Duration // how long it still works after its context has ended
	err   error         // what it returns

	stopped bool // whether it ended because its context ended
	done    bool
}

func (p *part) Run(ctx context.Context) error {
	var alone <-chan time.Time
	if p.stops > 0 {
		alone = time.After(p.stops)
	}
	select {
	case <-alone:
	case <-ctx.Done():
		p.stopped = true
		time.Sleep(p.drain) // unfinished work; the time is that of the synctest bubble
	}
	p.done = true
	return p.err
}

// start runs parts in a synctest bubble. The channel gets the result of Run when Run returns.
func start(ctx context.Context, parts ...*part) <-chan error {
	runners := make([]postroom.Runner, len(parts))
	for i, p := range parts {
		runners[i] = p
	}
	result := make(chan error, 1)
	go func() { result <- postroom.Run(ctx, runners...) }()
	return result
}

func wantRunning(t *testing.T, result <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-result:
		t.Fatalf("Run returned %v, want it to run on", err)
	default:
	}
}

func TestRunReturnsNilAfterACleanDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		parts := []*part{{drain: time.Second}, {drain: time.Minute}, {}}
		result := start(ctx, parts...)

		time.Sleep(time.Hour)
		wantRunning(t, result)

		cancel()
		began := time.Now()
		time.Sleep(time.Minute - 1) // one of them still drains
		wantRunning(t, result)

		if err := <-result; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("Run returned %s after its context ended, want 1m0s: as long as the slowest drain", took)
		}
		for i, p := range parts {
			if !p.done || !p.stopped {
				t.Errorf("part %d: done %t, stopped %t, want both", i, p.done, p.stopped)
			}
		}
	})
}

func TestRunStopsTheRestWithTheFirst(t *testing.T) {
	errA, errB := errors.New("a"), errors.New("b")
	tests := []struct {
		name  string
		first error
		rest  error
		want  []error
	}{
		{"that fails", errA, nil, []error{errA}},
		{"that returns nil early", nil, nil, nil},
		{"and joins the errors of all", errA, errB, []error{errA, errB}},
		{"and returns what failed in the drain", nil, errB, []error{errB}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := &part{stops: time.Minute, err: tt.first}
				second, third := &part{drain: time.Second, err: tt.rest}, &part{drain: 2 * time.Second}
				began := time.Now()
				err := <-start(t.Context(), second, first, third)

				if took := time.Since(began); took != time.Minute+2*time.Second {
					t.Errorf("Run took %s, want 1m2s: the first part and the slowest drain", took)
				}
				if !second.stopped || !second.done || !third.stopped || !third.done {
					t.Errorf("second stopped %t done %t, third stopped %t done %t, want all",
						second.stopped, second.done, third.stopped, third.done)
				}
				if len(tt.want) == 0 && err != nil {
					t.Errorf("Run = %v, want nil", err)
				}
				for _, want := range tt.want {
					if !errors.Is(err, want) {
						t.Errorf("Run = %v, want %v in it", err, want)
					}
				}
			})
		})
	}
}

// The error that happened first is printed first, whichever part returned it.
func TestRunJoinsErrorsInTheOrderOfTheirEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := <-start(t.Context(),
			&part{drain: time.Hour, err: errors.New("a")},
			&part{stops: time.Minute, err: errors.New("b")},
			&part{drain: time.Second, err: errors.New("c")})
		if err == nil || err.Error() != "b\nc\na" {
			t.Errorf("Run = %q, want b, which failed first, then c and a", err)
		}
	})
}

func TestRunLeavesOutCancellations(t *testing.T) {
	cancelled := fmt.Errorf("read: %w", context.Canceled)
	both := errors.Join(context.Canceled, errBoom)
	tests := []struct {
		name        string
		first, rest error
		want        string
	}{
		{"of the other parts", errBoom, cancelled, "boom"},
		{"wrapped twice", errBoom, errors.Join(cancelled, context.Canceled), "boom"},
		{"but not of the first part, which was not cancelled", cancelled, nil, "read: context canceled"},
		{"but not what was joined with it", nil, both, "context canceled\nboom"},
		{"but not one that wraps nothing", errBoom, emptyWrap{}, "boom\nhollow"},
		{"but not a deadline", errBoom, context.DeadlineExceeded, "boom\ncontext deadline exceeded"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := <-start(t.Context(), &part{err: tt.rest}, &part{stops: time.Minute, err: tt.first}, &part{})
				if err == nil || err.Error() != tt.want {
					t.Errorf("Run = %v, want %q", err, tt.want)
				}
			})
		})
	}
}

// emptyWrap is an error that could wrap others, and wraps none.
type emptyWrap struct{}

func (emptyWrap) Error() string   { return "hollow" }
func (emptyWrap) Unwrap() []error { return nil }

func TestRunReturnsNilForCancelledParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		result := start(ctx, &part{err: context.Canceled}, &part{})
		wantRunning(t, result)
		cancel()
		if err := <-result; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

func TestRunReturnsTheErrorOfADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		result := start(ctx, &part{}, &part{drain: time.Second, err: errBoom})
		wantRunning(t, result)
		cancel()
		if err := <-result; !errors.Is(err, errBoom) {
			t.Errorf("Run = %v, want %v", err, errBoom)
		}
	})
}

func TestRunWithAContextThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p := &part{drain: time.Second}
		if err := <-start(ctx, p); err != nil || !p.done {
			t.Errorf("Run = %v with the part done %t, want nil and true", err, p.done)
		}
	})
}

func TestRunPassesTheContextOn(t *testing.T) {
	ctx := context.WithValue(t.Context(), contextKey{}, "here")
	var got any
	err := postroom.Run(ctx, postroom.RunnerFunc(func(ctx context.Context) error {
		got = ctx.Value(contextKey{})
		return nil
	}))
	if err != nil || got != "here" {
		t.Errorf("Run = %v and the part saw %v, want nil and here", err, got)
	}
}

func TestRunWithoutPartsReturnsAtOnce(t *testing.T) {
	if err := postroom.Run(t.Context()); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}
