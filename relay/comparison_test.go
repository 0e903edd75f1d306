package relay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left := 4
		three := func(context.Context) ([]int, error) {
			if left--; left == 0 {
				return nil, nil
			}
			return make([]int, 500), nil
		}
		next, began := paced(three, 1000), time.Now()
		for n := 1; n <= 3; n++ {
			page, err := next(t.Context())
			if err != nil || len(page) != 500 || time.Since(began) != time.Duration(n)*500*time.Millisecond {
				t.Errorf("page %d: %d, %v after %s", n, len(page), err, time.Since(began))
			}
		}
		if page, err := next(t.Context()); len(page) > 0 || err != nil || time.Since(began) != 1500*time.Millisecond {
			t.Errorf("the end: %d, %v after %s", len(page), err, time.Since(began))
		}

		left = 4
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		cancel(why)
		if _, err := paced(three, 1)(ctx); !errors.Is(err, why) {
			t.Errorf("read on after the end of the context: %v", err)
		}
	})
}
