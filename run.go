package postroom

import (
	"context"
	"errors"
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
// returns nil. Where a part stops by itself, with an error or without, the
// others are stopped too, and Run returns the errors of all, joined. Without
// parts it returns at once.
func Run(ctx context.Context, parts ...Runner) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, part := range parts {
		all.Go(func() {
			defer stop()
			errs[i] = part.Run(ctx)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
