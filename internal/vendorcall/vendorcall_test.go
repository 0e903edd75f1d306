package vendorcall_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/vendorcall"
)

// witness is an error of a client that knows what came of a call.
type witness struct{ matches error }

func (w *witness) Error() string        { return "witness: " + w.matches.Error() }
func (w *witness) Is(target error) bool { return target == w.matches }

// endless is an error that contains itself.
type endless struct{ more []error }

func (endless) Error() string     { return "endless" }
func (e endless) Unwrap() []error { return append([]error{e}, e.more...) }

// marking is an error that wraps itself in an error of NotApplied.
type marking struct{}

func (marking) Error() string { return "marking" }
func (m marking) Unwrap() error {
	return vendorcall.NotApplied(m)
}

// panicking is an error whose method Is expects an error of its own type.
type panicking struct{}

func (panicking) Error() string        { return "panicking" }
func (panicking) Is(target error) bool { return target.(panicking) == panicking{} } // it panics

func TestIsNotApplied(t *testing.T) {
	var (
		mark    = vendorcall.NotApplied
		refused = &witness{vendorcall.ErrNotApplied}
		unknown = &witness{vendorcall.ErrMayBeApplied}
		plain   = errors.New("plain")
		wrap    = func(err error) error { return fmt.Errorf("wrapped: %w", err) }
		twice   = func(a, b error) error { return fmt.Errorf("%w, %w", a, b) }
		deep    = func(err error) error {
			for range 300 {
				err = wrap(err)
			}
			return err
		}
	)
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"nil", nil, false},
		{"a plain error", plain, false},
		{"a refusal", wrap(refused), true},
		{"an unknown outcome", wrap(unknown), false},
		{"the sentinel", twice(vendorcall.ErrNotApplied, plain), true},
		{"the user's word", wrap(mark(plain)), true},
		{"the user's word, beside others", twice(plain, mark(plain)), true},
		{"a refusal, beside others", errors.Join(plain, refused), true},
		{"two refusals", errors.Join(refused, refused), true},
		{"a refusal and an unknown outcome, joined", errors.Join(refused, unknown), false},
		{"an unknown outcome and a refusal, joined", errors.Join(unknown, refused), false},
		{"a refusal and an unknown outcome, wrapped twice", wrap(twice(wrap(refused), wrap(unknown))), false},
		{"the sentinel and an unknown outcome", twice(vendorcall.ErrNotApplied, unknown), false},
		{"the user's word beside an unknown outcome", errors.Join(mark(plain), unknown), false},
		{"the user's word about an unknown outcome", wrap(mark(wrap(unknown))), true},
		{"the user's word about two unknown outcomes", mark(errors.Join(unknown, unknown)), true},
		{"the user's word about a refusal", mark(refused), true},
		{"the user's word about a join of both", mark(errors.Join(refused, unknown)), false},
		{"the user's word about a join with his word", mark(errors.Join(mark(plain), unknown)), false},
		{"sealed", guard.Seal(wrap(refused)), true},
		{"sealed, a join of both", guard.Seal(errors.Join(refused, unknown)), false},
		{"an endless error", endless{}, false},
		{"an endless error with a refusal", endless{[]error{refused}}, false},
		{"a refusal beside an endless error", errors.Join(refused, endless{}), false},
		{"the user's word about an endless error", mark(endless{}), true},
		{"the user's word about an endless error, beside an unknown outcome", errors.Join(mark(endless{}), unknown), false},
		{"a refusal too deep to be seen", deep(refused), false},
		{"an error whose method panics", panicking{}, false},
		{"a typed nil", (*witness)(nil), false},
		{"a refusal beside an error whose method panics", errors.Join(refused, panicking{}), false},
		{"the user's word about an error whose method panics", mark(wrap(panicking{})), true},
		{"an error that is marked again and again", marking{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := vendorcall.IsNotApplied(t.Context(), tt.err); got != tt.want {
				t.Errorf("%t, want %t", got, tt.want)
			}
		})
	}
}

// The cause for which a context ended is often the error of another call.
func TestTheCauseIsNoWitness(t *testing.T) {
	refused := fmt.Errorf("another call: %w", vendorcall.NotApplied(errors.New("refused")))
	lost := fmt.Errorf("another call: %w", &witness{vendorcall.ErrMayBeApplied})
	unsent := func(err error) error { return fmt.Errorf("%w: %w", &witness{vendorcall.ErrNotApplied}, err) }
	for _, tt := range []struct {
		name       string
		cause, err error
		want       bool
	}{
		{"the cause", refused, refused, false},
		{"the cause, wrapped", refused, fmt.Errorf("post: %w", refused), false},
		{"the cause, sealed", refused, fmt.Errorf("post: %w", guard.Seal(refused)), false},
		{"a cause that cannot be compared", uncomparable{refused}, uncomparable{refused}, false},
		{"a call that was not sent, because another call was lost", lost, unsent(lost), true},
		{"the same, sealed", lost, unsent(guard.Seal(lost)), true},
		{"the user's word about the cause", refused, vendorcall.NotApplied(refused), true},
		{"another error", refused, vendorcall.NotApplied(errors.New("refused")), true},
		{"the cause beside another error", refused, errors.Join(refused, &witness{vendorcall.ErrNotApplied}), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(tt.cause)
			if got := vendorcall.IsNotApplied(ctx, tt.err); got != tt.want {
				t.Errorf("%t, want %t", got, tt.want)
			}
		})
	}
}

// uncomparable is an error of a type that has no ==.
type uncomparable []error

func (uncomparable) Error() string     { return "uncomparable" }
func (e uncomparable) Unwrap() []error { return e }

func TestLookupOf(t *testing.T) {
	if vendorcall.LookupOf[int](vendorcall.Options{}, "call c") != nil {
		t.Error("a Lookup without the option")
	}
	o := vendorcall.Options{Lookup: func(context.Context, string) (string, bool, error) { return "found", true, nil }}
	if result, _, _ := vendorcall.LookupOf[string](o, "call c")(t.Context(), ""); result != "found" {
		t.Errorf("the Lookup returned %q", result)
	}
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, "call c") || !strings.Contains(said, "int") {
			t.Errorf("a Lookup of another type: %s", said)
		}
	}()
	vendorcall.LookupOf[int](o, "call c")
}
