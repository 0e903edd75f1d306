package postroom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom/internal/guard"
)

// Runner is a part of a service that works until its context ends, such as a relay or an inbox. Run
// returns nil after a clean drain. Otherwise it returns the error that stopped the part.
//
// Runner is an interface so that this package need not import the parts.
type Runner interface {
	Run(ctx context.Context) error
}

// RunnerFunc makes a function a [Runner].
type RunnerFunc func(ctx context.Context) error

// Run calls f.
func (f RunnerFunc) Run(ctx context.Context) error { return f(ctx) }

// drainHTTP is how long an [HTTPServer] waits for requests that run.
const drainHTTP = 10 * time.Second

// HTTPServer returns a part that serves HTTP on server.Addr, or on port 80 if it is empty. When its
// context ends, the part takes no more requests, and waits at most ten seconds for those that run.
// After that time it closes their connections and returns an error. It also ends if server is shut
// down elsewhere: then it waits for no request, which is up to the caller of Shutdown. A server runs
// once. For TLS, or another listener, write a [RunnerFunc].
func HTTPServer(server *http.Server) Runner {
	return RunnerFunc(func(ctx context.Context) error {
		listening := net.ListenConfig{}
		listener, err := listening.Listen(ctx, "tcp", cmp.Or(server.Addr, ":http"))
		//guard:a-server-that-never-began-ends-without-an-error false
		if err != nil && ctx.Err() != nil {
			return nil //nolint:nilerr // looking up a host name ends with the context
		}
		if err != nil {
			return fmt.Errorf("serve HTTP: %w", err)
		}
		served := make(chan error, 1)
		go func() { served <- guard.Call(func() error { return server.Serve(listener) }) }()
		select {
		case err := <-served:
			//guard:a-panic-of-a-server-has-its-stack false
			if panicked, ok := err.(*guard.PanicError); ok { //nolint:errorlint // from the guard
				return panicked // Run adds the stack
			}
			if errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			return fmt.Errorf("serve HTTP on %s: %w", listener.Addr(), err)
		case <-ctx.Done():
		}
		draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainHTTP)
		defer cancel()
		//guard:requests-that-run-end-before-their-server do err = errors.Join(draining.Err(), server.Close())
		err = server.Shutdown(draining)
		if failed := <-served; err == nil && !errors.Is(failed, http.ErrServerClosed) {
			return fmt.Errorf("serve HTTP on %s: %w", listener.Addr(), failed)
		}
		if err != nil {
			_ = server.Close() // the error below says that requests were cut off
			return fmt.Errorf("requests on %s ran longer than %v and were cut off: %w", listener.Addr(), drainHTTP, err)
		}
		return nil
	})
}

// checkAgain says how long [Checks] waits after an outage, before it checks again.
var checkAgain = Backoff{time.Second, 5 * time.Second, 30 * time.Second}

// Checks returns a part that only checks, for what has a Check and no Run: an outbound client, an
// outbox, or something of your own. A relay, an inbox and an idempotency guard check themselves when
// they run, and an inbox checks its handlers, sagas, webhook receivers and senders too.
//
// When the part runs, it makes all checks. If errors match [ErrUnrecoverable], a person must correct
// something: the part returns these errors, joined, and so [Run] stops the other parts. Any other error
// is an outage: the part logs it with slog.Default and checks again, until no check fails. Then the
// part waits until its context ends.
//
//	postroom.Checks(client.Check, func(ctx context.Context) error { return shop.Check(ctx, pool) })
func Checks(checks ...func(context.Context) error) Runner {
	return RunnerFunc(func(ctx context.Context) error {
		for failures := 1; ctx.Err() == nil; failures++ {
			var wrong, away []error
			for _, check := range checks {
				err := run(ctx, RunnerFunc(check)) // a panic has its stack
				//guard:a-check-that-fails-ends-run false
				if errors.Is(err, ErrUnrecoverable) || errors.As(err, new(*guard.PanicError)) {
					wrong = append(wrong, err)
				} else if err != nil {
					away = append(away, err)
				}
			}
			if len(wrong) > 0 {
				return errors.Join(wrong...)
			}
			if len(away) == 0 {
				<-ctx.Done()
				return nil
			}
			if ctx.Err() == nil {
				slog.WarnContext(ctx, "a part cannot work yet", "error", errors.Join(away...), "failures", failures)
				select {
				case <-ctx.Done():
				case <-time.After(checkAgain.Delay(failures)):
				}
			}
		}
		return nil
	})
}

// Run runs the given parts together until ctx ends. Then it waits until each part has drained, and
// returns nil. If a part stops by itself, with or without an error, Run stops the other parts too.
//
// Run returns the errors of all parts, joined in the order in which the parts ended: the first one
// is the cause. If a part ended after Run told the parts to stop, and its error says only that its
// context was cancelled, Run leaves that error out. If a part panics or ends its goroutine, its
// error says so. For a panic the error has the stack. Without parts, Run returns at once.
//
// For a program that drains at the first signal and ends at once at the second one,
// restore the default signal handling after the first:
//
//	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//	context.AfterFunc(ctx, stop)
//	err := postroom.Run(ctx, relay, inbox, postroom.Checks(client.Check), postroom.HTTPServer(server))
func Run(ctx context.Context, parts ...Runner) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	var all sync.WaitGroup
	var mu sync.Mutex
	var ended []error
	for _, part := range parts {
		all.Go(func() {
			defer stop()
			err := fmt.Errorf("%T: %w", part, guard.ErrGoexit)
			defer func() { // even if the part ends this goroutine
				mu.Lock()
				defer mu.Unlock()
				if ctx.Err() == nil || !isCancelled(err) {
					ended = append(ended, err)
				}
			}()
			err = run(ctx, part)
		})
	}
	all.Wait()
	return errors.Join(ended...)
}

// run runs one part. If the part panics, the returned error has the stack.
func run(ctx context.Context, part Runner) error {
	err := guard.Call(func() error { return part.Run(ctx) })
	if panicked, ok := err.(*guard.PanicError); ok { //nolint:errorlint // one that the part returned is its error
		return fmt.Errorf("%T: %w\n%s", part, panicked, panicked.Stack)
	}
	return err
}

// isCancelled reports whether err is only context.Canceled, perhaps wrapped or joined with itself.
// If a method of err panics, isCancelled returns false.
func isCancelled(err error) (is bool) {
	most := 256 // a user's error may contain itself
	_ = guard.Call(func() error { is = isOnlyCancellation(err, &most); return nil })
	return is
}

// isOnlyCancellation is isCancelled without the guard against panics. It stops after
// *most errors. If an error joins context.Canceled with another error, it returns false.
func isOnlyCancellation(err error, most *int) bool {
	for err != nil && *most > 0 {
		*most--
		if err == context.Canceled { //nolint:errorlint // this is the walk that errors.Is does
			return true
		}
		switch x := err.(type) { //nolint:errorlint // this is the walk that errors.Is does
		case interface{ Unwrap() error }:
			err = x.Unwrap()
		case interface{ Unwrap() []error }:
			all := x.Unwrap()
			//guard:an-error-that-wraps-nothing-is-one 1 true
			return len(all) > 0 && !slices.ContainsFunc(all, func(e error) bool { return !isOnlyCancellation(e, most) })
		default:
			return false
		}
	}
	return false
}
