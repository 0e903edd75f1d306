package ledger

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// One call waits in the database for an event; others with that event wait for the call. Few calls
// wait there at the same time.
func TestOneCallWaitsForAnEventInTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w waitRoom
		of := func(keys ...string) (all acceptances) {
			for _, key := range keys {
				all = append(all, &delivery.Acceptance{Handler: "h", D: &delivery.Delivery{Task: delivery.Task{Key: key}}})
			}
			return all
		}
		enter := func(ctx context.Context, want bool, keys ...string) (leave func()) {
			t.Helper()
			leave, entered, err := w.enter(ctx, of(keys...))
			if entered != want || err != nil {
				t.Fatalf("enter %v = %t, %v; want %t", keys, entered, err, want)
			}
			return leave
		}
		if err := w.await(t.Context(), of("a")); err != nil {
			t.Fatal(err)
		}
		first := enter(t.Context(), true, "a", "b")
		enter(t.Context(), false, "b", "c")
		passed := make(chan error, 1)
		go func() { passed <- w.await(t.Context(), of("c", "b")) }()
		if err := w.await(t.Context(), of("c")); err != nil {
			t.Errorf("await of another event = %v", err)
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var lost *delivery.BeginError
		if err := w.await(brief, of("a")); !errors.As(err, &lost) || !errors.Is(err, errBlocked) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("await of a caller that gives up = %v", err)
		}

		for range mostBlocked - 1 {
			defer enter(t.Context(), true, "more")()
		}
		brief, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, entered, err := w.enter(brief, of("too many")); entered || !errors.Is(err, errBlocked) {
			t.Errorf("%d wait, and one more = %t, %v", mostBlocked, entered, err)
		}
		if err := w.await(t.Context(), of("too many")); err != nil { // a call has left
			t.Errorf("await of an event whose caller gave up = %v", err)
		}
		synctest.Wait()
		if len(passed) > 0 {
			t.Error("a call did not wait for the one that waits in the database")
		}
		first()
		if err := <-passed; err != nil {
			t.Error(err)
		}
		enter(t.Context(), true, "b")()
	})
}
