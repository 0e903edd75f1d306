package stream

import (
	"testing"
	"time"
)

// A process decided all deliveries of its consumer. Then an operator resets the consumer, which counts
// its deliveries from 1 again and may have passed over messages. Until the process has looked for them,
// it does not believe the broker's floor.
func TestDeliveriesThatAreCountedAgain(t *testing.T) {
	t.Parallel()
	before := func(o *ownDeliveries) *InFlight {
		none := NewInFlight(8, 1<<20, 0, nil)
		o.from(time.Unix(1, 0))
		for n := range uint64(9) {
			o.came(n + 1)
		}
		o.verified(9)
		if !o.are(9, none) {
			t.Error("the process does not know its own deliveries")
		}
		return none
	}
	t.Run("passed over", func(t *testing.T) {
		t.Parallel()
		var o ownDeliveries
		none := before(&o)
		if o.are(0, none) {
			t.Error("the process believes a floor that was reset")
		}
		if o.verified(0); o.are(0, none) {
			t.Error("the process believes it although no delivery came")
		}
	})
	t.Run("later ones came", func(t *testing.T) {
		t.Parallel()
		var o ownDeliveries
		none := before(&o)
		for n := range uint64(20) {
			o.came(n + 1)
		}
		if o.are(20, none) {
			t.Error("the process believes a floor that was reset")
		}
		if o.verified(20); !o.are(20, none) {
			t.Error("the process does not believe what it found out")
		}
	})
}
