package postroom

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Runner is a part of a service that works until its context ends: a relay, an
// inbox. Run returns nil after a clean drain, and otherwise the error that
// stopped it.
//
// It is an interface so that this package need not know the parts.
type Runner interface {
	Run(ctx context.Context) error
}

// Run runs the given parts together until ctx ends, then lets each drain and
// returns nil. When a part stops by itself, with an error or without, the
// others are stopped too.
//
// Run returns the errors of all parts, joined in the order in which the parts
// ended: the first one is the cause. It leaves out an error that says nothing
// but that a part's context was cancelled, when the part ended after the others
// were told to stop. Without parts it returns at once.
func Run(ctx context.Context, parts ...Runner) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	var all sync.WaitGroup
	var mu sync.Mutex
	var ended []error
	for _, part := range parts {
		all.Go(func() {
			defer stop()
			err := part.Run(ctx)
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() == nil || !isOnlyCancellation(err) {
				ended = append(ended, err)
			}
		})
	}
	all.Wait()
	return errors.Join(ended...)
}

// isOnlyCancellation reports whether err is nothing but context.Canceled, wrapped
// or joined with itself. An error that joins it with another one is not.
func isOnlyCancellation(err error) bool {
	for err != nil {
		if err == context.Canceled { //nolint:errorlint // this is the walk that errors.Is does
			return true
		}
		switch x := err.(type) { //nolint:errorlint // likewise
		case interface{ Unwrap() error }:
			err = x.Unwrap()
		case interface{ Unwrap() []error }:
			all := x.Unwrap()
			return len(all) > 0 && !slices.ContainsFunc(all, func(e error) bool { return !isOnlyCancellation(e) })
		default:
			return false
		}
	}
	return false
}
