package inbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox"
)

// vendor is another system, which recognises keys.
type vendor struct {
	mu    sync.Mutex
	calls map[string]int // by key
}

func newVendor() *vendor { return &vendor{calls: map[string]int{}} }

func (v *vendor) charge(_ context.Context, key string) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.calls[key]++
	return []byte("ch_" + key), nil
}

func TestExternalHandlerCallsAndSettles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v := newVendor()
	b.in.HandleExternal(b.subscription("charge"), func(ctx context.Context, call *inbox.Call) error {
		id, err := call.Step(ctx, "charge", v.charge)
		if err != nil {
			return err
		}
		call.OnSettle(func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO effect (handler, event) VALUES ($1, $2)", "charge", call.Event.ID+" "+string(id))
			return err
		})
		return nil
	})
	b.run()
	for i := range 50 {
		b.publish(fmt.Sprintf("e%d", i))
	}
	b.eventually("50 effects", func() bool { return len(b.effects("charge")) == 50 })
	b.drained()
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.calls) != 50 {
		t.Errorf("%d keys were seen, want 50", len(v.calls))
	}
	for key, n := range v.calls {
		if n != 1 || len(key) != 32 {
			t.Errorf("key %s was called %d times", key, n)
		}
	}
	b.eventually("held to be empty", func() bool { return len(b.held("charge")) == 0 })
}
