package ledger

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
)

// If a caller gives up, it may reuse the event's bytes and headers at once, even while a
// statement stores the event.
func TestStoreKeepsACopyIfItsCallerGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, answer := make(chan struct{}), make(chan struct{})
		var stored postroom.Event
		a := &Accepts{}
		a.group.Write = func(_ context.Context, calls []acceptances) error {
			close(begun)
			<-answer
			stored = calls[0][0].D.Event
			return nil
		}
		data, headers := []byte("100 EUR"), map[string]string{"tenant": "acme"}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-begun
			cancel()
		}()
		one := &delivery.Acceptance{Handler: "h", D: &delivery.Delivery{Task: delivery.Task{Event: postroom.Event{Data: data, Headers: headers}}}}
		if err := a.Store(ctx, []*delivery.Acceptance{one}); !errors.Is(err, context.Canceled) {
			t.Fatalf("Store = %v", err)
		}
		copy(data, "999 EUR")
		headers["tenant"] = "other"
		close(answer)
		synctest.Wait()
		if string(stored.Data) != "100 EUR" || stored.Headers["tenant"] != "acme" {
			t.Errorf("stored: %s, %v", stored.Data, stored.Headers)
		}
	})
}
