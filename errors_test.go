package postroom_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
)

// wraps are the ways in which an error travels up.
var wraps = []struct {
	name string
	wrap func(error) error
}{
	{"as it is", func(err error) error { return err }},
	{"wrapped", func(err error) error { return fmt.Errorf("charge: %w", err) }},
	{"wrapped twice", func(err error) error { return fmt.Errorf("a: %w", fmt.Errorf("b: %w", err)) }},
	{"joined with another", func(err error) error { return errors.Join(errors.New("other"), err) }},
	{"with its event", func(err error) error { return &postroom.EventError{Op: "handle", Err: err} }},
	{"permanent", postroom.Permanent},
	{"with a delay", func(err error) error { return postroom.RetryAfter(time.Second, err) }},
	{"unrecoverable", postroom.Unrecoverable},
}

func TestMarkersOfNilAreNil(t *testing.T) {
	tests := []struct {
		name string
		got  error
	}{
		{"Permanent", postroom.Permanent(nil)},
		{"RetryAfter", postroom.RetryAfter(time.Second, nil)},
		{"Snooze", postroom.Snooze(time.Second, nil)},
		{"Unrecoverable", postroom.Unrecoverable(nil)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.got != nil {
				t.Errorf("got %v, want nil", tt.got)
			}
		})
	}
}

func TestMarkers(t *testing.T) {
	cause := &fs.PathError{Op: "open", Path: "a", Err: fs.ErrNotExist}
	tests := []struct {
		name string
		mark func(error) error
		is   error // nil: none
		text string
	}{
		{"Permanent", postroom.Permanent, postroom.ErrPermanent, "permanent failure: open a: file does not exist"},
		{"RetryAfter", func(err error) error { return postroom.RetryAfter(90*time.Second, err) }, nil, "retry after 1m30s: open a: file does not exist"},
		{"Snooze", func(err error) error { return postroom.Snooze(90*time.Second, err) }, nil, "not now, again after 1m30s: open a: file does not exist"},
		{"Unrecoverable", postroom.Unrecoverable, postroom.ErrUnrecoverable, "open a: file does not exist"},
	}
	for _, tt := range tests {
		marked := tt.mark(cause)
		if got := marked.Error(); got != tt.text {
			t.Errorf("%s reads %q, want %q", tt.name, got, tt.text)
		}
		for _, target := range []error{postroom.ErrPermanent, postroom.ErrUnrecoverable, postroom.ErrInvalidEvent} {
			want := target == tt.is //nolint:errorlint // the very error
			if got := errors.Is(marked, target); got != want {
				t.Errorf("%s: errors.Is(%v) = %t, want %t", tt.name, target, got, want)
			}
		}
		for _, w := range wraps {
			t.Run(tt.name+" "+w.name, func(t *testing.T) {
				for _, err := range []error{w.wrap(tt.mark(cause)), tt.mark(w.wrap(cause))} {
					if tt.is != nil && !errors.Is(err, tt.is) {
						t.Errorf("errors.Is(%v, %v) = false", err, tt.is)
					}
					if !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("%v lost its cause", err)
					}
					var path *fs.PathError
					if !errors.As(err, &path) || path != cause {
						t.Errorf("%v cannot be read as its cause", err)
					}
				}
			})
		}
	}
}

func TestRetryDelay(t *testing.T) {
	for _, w := range wraps {
		if w.name == "with a delay" {
			continue // it has its own delay; see below
		}
		t.Run("is read "+w.name, func(t *testing.T) {
			got, asked := postroom.RetryDelay(w.wrap(postroom.RetryAfter(3*time.Second, errBoom)))
			if got != 3*time.Second || !asked {
				t.Errorf("RetryDelay = %s, %t, want 3s, true", got, asked)
			}
		})
	}

	tests := []struct {
		name  string
		err   error
		want  time.Duration
		asked bool
	}{
		{"without an error", nil, 0, false},
		{"another error", errBoom, 0, false},
		{"a permanent error", postroom.Permanent(errBoom), 0, false},
		{"zero is a delay", postroom.RetryAfter(0, errBoom), 0, true},
		{"a negative delay counts as zero", postroom.RetryAfter(-time.Second, errBoom), 0, true},
		{"the most negative delay counts as zero", postroom.RetryAfter(math.MinInt64, errBoom), 0, true},
		{"the longest delay is kept", postroom.RetryAfter(math.MaxInt64, errBoom), math.MaxInt64, true},
		{"the outer of two counts", postroom.RetryAfter(time.Hour, postroom.RetryAfter(time.Second, errBoom)), time.Hour, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, asked := postroom.RetryDelay(tt.err)
			if got != tt.want || asked != tt.asked {
				t.Errorf("RetryDelay = %s, %t, want %s, %t", got, asked, tt.want, tt.asked)
			}
		})
	}
}

func TestSnoozeDelayAndDiscardReason(t *testing.T) {
	for _, w := range wraps {
		t.Run("are read "+w.name, func(t *testing.T) {
			if got, asked := postroom.SnoozeDelay(w.wrap(postroom.Snooze(3*time.Second, errBoom))); got != 3*time.Second || !asked {
				t.Errorf("SnoozeDelay = %s, %t, want 3s, true", got, asked)
			}
			if got, asked := postroom.DiscardReason(w.wrap(postroom.Discard("of no use"))); got != "of no use" || !asked {
				t.Errorf("DiscardReason = %q, %t, want the reason", got, asked)
			}
		})
	}
	for _, err := range []error{nil, errBoom, postroom.Permanent(errBoom), postroom.RetryAfter(time.Second, errBoom)} {
		if got, asked := postroom.SnoozeDelay(err); asked {
			t.Errorf("SnoozeDelay(%v) = %s", err, got)
		}
		if got, asked := postroom.DiscardReason(err); asked {
			t.Errorf("DiscardReason(%v) = %q", err, got)
		}
	}
	if got, asked := postroom.SnoozeDelay(postroom.Snooze(-time.Second, errBoom)); got != 0 || !asked {
		t.Errorf("SnoozeDelay of a negative one = %s, %t", got, asked)
	}
	if _, asked := postroom.RetryDelay(postroom.Snooze(time.Second, errBoom)); asked {
		t.Error("a snooze is a RetryAfter too")
	}
}

func TestSnoozeKey(t *testing.T) {
	for _, w := range wraps {
		t.Run("is read "+w.name, func(t *testing.T) {
			err := w.wrap(postroom.SnoozeKey(3*time.Second, 5*time.Millisecond, errBoom))
			if got, asked := postroom.SnoozeDelay(err); got != 3*time.Second || !asked {
				t.Errorf("SnoozeDelay = %s, %t, want 3s, true", got, asked)
			}
			if got, asked := postroom.SnoozePace(err); got != 5*time.Millisecond || !asked {
				t.Errorf("SnoozePace = %s, %t, want 5ms, true", got, asked)
			}
		})
	}
	for _, err := range []error{nil, errBoom, postroom.Snooze(time.Second, errBoom), postroom.SnoozeKey(0, 0, nil)} {
		if got, asked := postroom.SnoozePace(err); asked {
			t.Errorf("SnoozePace(%v) = %s", err, got)
		}
	}
	if got, asked := postroom.SnoozePace(postroom.SnoozeKey(-1, -1, errBoom)); got != time.Millisecond || !asked {
		t.Errorf("SnoozePace of a negative one = %s, %t", got, asked)
	}
}

func TestFieldError(t *testing.T) {
	fault := &postroom.FieldError{Field: "Key", Problem: "is too long"}
	if got, want := fault.Error(), "Key is too long"; got != want {
		t.Errorf("Error = %q, want %q", got, want)
	}
	if err := errors.Unwrap(fault); err != nil {
		t.Errorf("Unwrap without a cause = %v, want nil", err)
	}
	if errors.Is(fault, postroom.ErrPermanent) {
		t.Error("a fault of an event is permanent by itself")
	}
	for _, w := range wraps {
		t.Run("is found "+w.name, func(t *testing.T) {
			err := w.wrap(fault)
			var got *postroom.FieldError
			if !errors.Is(err, postroom.ErrInvalidEvent) || !errors.As(err, &got) || got != fault {
				t.Errorf("%v does not match ErrInvalidEvent and its *FieldError", err)
			}
		})
	}
}

func TestEventError(t *testing.T) {
	err := error(&postroom.EventError{Op: "write", ID: "e-1", Type: "order.placed", Err: postroom.ErrEventConflict})
	if got, want := err.Error(), "write order.placed e-1: "+postroom.ErrEventConflict.Error(); got != want {
		t.Errorf("Error = %q, want %q", got, want)
	}
	for _, w := range wraps {
		t.Run("is found "+w.name, func(t *testing.T) {
			var got *postroom.EventError
			if wrapped := w.wrap(err); !errors.As(wrapped, &got) || !errors.Is(wrapped, postroom.ErrEventConflict) {
				t.Errorf("%v lost the event or the cause", wrapped)
			}
		})
	}
	t.Run("clips what is no fit name", func(t *testing.T) {
		err := &postroom.EventError{Op: "write", ID: strings.Repeat("i", 10_000), Type: "a\xff", Err: errBoom}
		if got, want := err.Error(), "write a? "+strings.Repeat("i", 40)+"…: boom"; got != want {
			t.Errorf("Error = %q, want %q", got, want)
		}
	})
}

func TestSentinelsAreDistinct(t *testing.T) {
	sentinels := []error{
		postroom.ErrInvalidEvent, postroom.ErrEventConflict, postroom.ErrUnknownType, postroom.ErrPermanent,
		postroom.ErrUnrecoverable,
	}
	for i, a := range sentinels {
		for j, b := range sentinels {
			if got, want := errors.Is(a, b), i == j; got != want {
				t.Errorf("errors.Is(%v, %v) = %t, want %t", a, b, got, want)
			}
		}
	}
}
