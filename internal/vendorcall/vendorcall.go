// Package vendorcall has what inbox.Step and idempotency.Call share: the options of a call to
// another system, and the rule for errors that say that the other system did nothing.
package vendorcall

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/postroom/postroom/internal/guard"
)

var (
	// ErrNotApplied is postroom.ErrNotApplied.
	ErrNotApplied = errors.New("the other system certainly did nothing")

	// ErrMayBeApplied matches an error that says that the other system may have acted. An error with
	// a method Is may match ErrNotApplied, or ErrMayBeApplied, or neither of them.
	ErrMayBeApplied = errors.New("the other system may have acted")
)

// notAppliedError is the error of NotApplied.
type notAppliedError struct{ err error }

func (e *notAppliedError) Error() string        { return e.err.Error() }
func (e *notAppliedError) Unwrap() error        { return e.err }
func (e *notAppliedError) Is(target error) bool { return target == ErrNotApplied }

// NotApplied is postroom.NotApplied.
func NotApplied(err error) error {
	if err == nil {
		return nil
	}
	return &notAppliedError{err}
}

// mostErrors is the largest number of errors of one tree that IsNotApplied visits. The tree of an
// error that contains itself has no end.
const mostErrors = 256

// IsNotApplied reports whether err proves that the other system did nothing. The errors in the tree
// of err are witnesses. Some of them match [ErrNotApplied], some match [ErrMayBeApplied], and the
// others say nothing. At least one witness must match ErrNotApplied, and none ErrMayBeApplied: the
// tree may join the errors of several calls.
//
// An error of [NotApplied] overrides the witnesses in it, because the user knows better than they do.
// But if they contradict each other, several calls were joined, and the user's word may concern only
// one of them. So it does not override them.
//
// If ctx ended during the call, clients return the cause. The cause may be the error of another call,
// and says nothing about this one. So IsNotApplied skips it, and the errors in it.
//
// IsNotApplied visits at most 256 errors. If there are more, a witness may be among the others, and
// IsNotApplied returns false. An error whose method panics counts as left out, too. The methods may
// also never return, so call IsNotApplied only inside a guard.
func IsNotApplied(ctx context.Context, err error) bool {
	w := walk{left: mostErrors, cause: context.Cause(ctx)}
	said := w.hear(err)
	return said.nothing &&
		//guard:one-unknown-call-of-several-is-unknown true
		!said.maybe &&
		//guard:what-no-witness-saw-may-have-happened true
		!w.cut
}

// walk is a visit of a tree of errors.
type walk struct {
	left  int   // how many errors it may still visit
	cut   bool  // it left out errors that may be witnesses
	cause error // why the context ended; nil if it did not end
}

// testimony is what the errors of a tree say.
type testimony struct{ nothing, maybe bool }

// hear returns what err and the errors in it say.
func (w *walk) hear(err error) (said testimony) {
	//guard:why-a-context-ended-is-no-witness 2 false
	if err == nil || w.isCause(err) {
		return said
	}
	if w.left <= 0 {
		w.cut = true
		return said
	}
	w.left--
	cut := w.cut
	//guard:an-error-that-panics-is-no-witness = func() error { said = w.ask(err); return nil }()
	failed := guard.Call(func() error { said = w.ask(err); return nil })
	w.cut = w.cut || failed != nil
	if _, ok := err.(*notAppliedError); ok { //nolint:errorlint // only err itself
		w.cut = cut
		//guard:a-word-about-joined-calls-proves-nothing 2 false
		said.nothing, said.maybe = true, said.nothing && said.maybe
	}
	return said
}

// ask returns what err and the errors in it say. The word of NotApplied is left to hear.
func (w *walk) ask(err error) (said testimony) {
	switch e := err.(type) { //nolint:errorlint // it visits the tree itself
	case *notAppliedError:
		return w.hear(e.err)
	case interface{ Unwrap() error }:
		said = w.hear(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			if w.cut {
				break
			}
			one := w.hear(part)
			said.nothing, said.maybe = said.nothing || one.nothing, said.maybe || one.maybe
		}
	}
	if is, ok := err.(interface{ Is(error) bool }); ok {
		said.nothing, said.maybe = said.nothing || is.Is(ErrNotApplied), said.maybe || is.Is(ErrMayBeApplied)
	}
	said.nothing = said.nothing || err == ErrNotApplied //nolint:errorlint // only err itself
	return said
}

// isCause reports whether err is why the context ended. If the cause has no ==, an error of its type
// may be the cause or a witness, so it counts as left out.
func (w *walk) isCause(err error) bool {
	if w.cause == nil {
		return false
	}
	//guard:a-sealed-cause-is-no-witness false
	if sealed, ok := err.(*guard.SealedError); ok && sealed != nil && sealed.Seals(w.cause) { //nolint:errorlint // only err itself
		return true
	}
	if kind := reflect.TypeOf(err); kind == reflect.TypeOf(w.cause) && !kind.Comparable() {
		w.cut = true
		return true
	}
	return reflect.ValueOf(err).Comparable() && err == w.cause //nolint:errorlint // only err itself
}

// Options are the options of one call.
type Options struct {
	// Window is how long the vendor recognises a key. It is valid only if HasWindow is true.
	Window    time.Duration
	HasWindow bool

	// Lookup is a func(ctx context.Context, key string) (T, bool, error), or nil.
	Lookup any
}

// Set changes the Options as the given options say. Each option must have a method Set(*Options).
// This package cannot import the root package, which has their type.
func Set[O any](o *Options, options []O) {
	for _, option := range options {
		any(option).(interface{ Set(o *Options) }).Set(o)
	}
}

// LookupOf returns the Lookup for a call whose result is a T, or nil. It panics if the result of the
// Lookup has another type.
func LookupOf[T any](o Options, what string) func(ctx context.Context, key string) (T, bool, error) {
	if o.Lookup == nil {
		return nil
	}
	lookup, ok := o.Lookup.(func(context.Context, string) (T, bool, error))
	if !ok {
		panic(fmt.Sprintf("postroom: the Lookup of %s is a %T: its result must have the type of the call's result, %T", what, o.Lookup, *new(T)))
	}
	return lookup
}
