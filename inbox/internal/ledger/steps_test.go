package ledger

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// However large the results of steps are, one statement records a limited number of bytes.
func TestLargeResultsAreRecordedInParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size, steps = 1 << 20, 20
		first := make(chan struct{})
		var wrote []int
		r := NewReceipts(&DB{})
		r.ending.Write = func(_ context.Context, items []*delivery.Step) error {
			<-first
			bytes := 0
			for _, s := range items {
				bytes += len(s.Result)
			}
			wrote = append(wrote, bytes)
			return nil
		}
		result := make([]byte, size)
		var all sync.WaitGroup
		for range steps {
			all.Go(func() {
				if err := r.Finish(&delivery.Step{Result: result}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // one is being recorded, and the others wait
		close(first)
		all.Wait()
		total := 0
		for _, n := range wrote {
			total += n
			if n >= mostBytes+size {
				t.Errorf("one statement has %d bytes, want less than %d", n, mostBytes+size)
			}
		}
		if total != steps*size {
			t.Errorf("%d bytes were recorded, want %d", total, steps*size)
		}
	})
}
