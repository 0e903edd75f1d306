package postroom_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
)

// endless is an error that contains itself.
type endless struct{}

func (e endless) Error() string   { return "endless" }
func (e endless) Unwrap() []error { return []error{e, e} }

// mute is an error, and a value, whose methods panic.
type mute struct{}

func (mute) Error() string                { panic("mute") }
func (mute) Unwrap() error                { panic("mute") }
func (mute) MarshalJSON() ([]byte, error) { panic("mute") }

// refusing is a value whose methods return an error that contains itself.
type refusing struct{}

func (refusing) MarshalJSON() ([]byte, error) { return nil, endless{} }
func (refusing) UnmarshalJSON([]byte) error   { return endless{} }

// runs is a Runner.
type runs func(ctx context.Context) error

func (f runs) Run(ctx context.Context) error { return f(ctx) }

func TestRunSurvivesItsParts(t *testing.T) {
	tests := []struct {
		name string
		part func(ctx context.Context) error
		want string
	}{
		{"it panics", func(context.Context) error { panic("no") }, "postroom_test.runs: panic: no\n"},
		{"it ends its goroutine", func(context.Context) error { runtime.Goexit(); return nil }, "postroom_test.runs: it ended its goroutine with runtime.Goexit"},
		{"its error contains itself", func(context.Context) error { return endless{} }, "endless"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			drained := false
			err := postroom.Run(t.Context(), runs(tt.part), runs(func(ctx context.Context) error {
				<-ctx.Done()
				drained = true
				return errors.Join(endless{}) // Run examines this error, because the part ended after the others
			}))
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || !drained {
				t.Errorf("Run = %v, the other part drained: %v; want %q and true", err, drained, tt.want)
			}
		})
	}
	err := postroom.Run(t.Context(), runs(func(context.Context) error { return nil }), runs(func(ctx context.Context) error {
		<-ctx.Done()
		return mute{}
	}))
	var m mute
	if !errors.As(err, &m) {
		t.Error("the error of a part, whose methods panic, is lost")
	}
}

func TestRetryDelayOfHostileErrors(t *testing.T) {
	if _, ok := postroom.RetryDelay(endless{}); ok {
		t.Error("an error that contains itself asks for a delay")
	}
	if d, ok := postroom.RetryDelay(errors.Join(errors.New("a"), postroom.RetryAfter(time.Hour, endless{}))); !ok || d != time.Hour {
		t.Errorf("%s, %v, want the hour that was asked for", d, ok)
	}
}

// empty is a value whose methods return err. Tests set err to errors of package json that are nil
// pointers or lack a cause.
type empty struct{ err error }

func (e empty) MarshalJSON() ([]byte, error) { return nil, e.err }
func (e *empty) UnmarshalJSON([]byte) error  { return e.err }

func TestValuesWhoseMethodsFail(t *testing.T) {
	for name, value := range map[string]any{"it panics": mute{}, "its error contains itself": refusing{}, "one within": []any{1, mute{}}} {
		ev := postroom.NewEvent("order.placed", value)
		if err := ev.Validate(); !errors.Is(err, postroom.ErrInvalidEvent) || !strings.Contains(err.Error(), "does not encode as JSON") {
			t.Errorf("%s: Validate = %v, want a fault of the data", name, err)
		}
	}
	none := postroom.NewEvent("order.placed", empty{(*json.UnsupportedTypeError)(nil)})
	if err := none.Validate(); err == nil || !strings.Contains(err.Error(), "postroom_test.empty refused") {
		t.Errorf("no unsupported type: Validate = %v, want a fault of the data, and no panic", err)
	}
	ev := postroom.Event{Type: "order.placed", Data: json.RawMessage(`{}`)}
	for name, err := range map[string]error{"no syntax error": (*json.SyntaxError)(nil), "no error of a type": (*json.UnmarshalTypeError)(nil)} {
		if got := ev.JSON(&empty{err}); got == nil || !errors.Is(got, postroom.ErrPermanent) {
			t.Errorf("%s: JSON = %v, want a fault of the data", name, got)
		}
	}
	if err := ev.JSON(new(refusing)); err == nil || err.Error() != "permanent failure: data of order.placed does not decode" {
		t.Errorf("JSON = %v", err)
	}
}
