package claims

import (
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
)

// Claims that have not ended reduce the number and the bytes that are claimed next.
func TestWishesLeaveRoomForWhatIsClaimed(t *testing.T) {
	t.Parallel()
	q := NewQueue(Handler{Name: "h"}, 3, 1000)
	r := NewRunner(Config{})
	r.Serve([]*Queue{q})
	claim := func(id int64, bytes int) *Claim {
		row := delivery.HeldEvent{Handler: "h", ID: id, Task: delivery.Task{Event: postroom.Event{Data: make([]byte, bytes)}}}
		cl := q.Claims([]delivery.HeldEvent{row}, time.Now())[0]
		r.Begun(cl)
		return cl
	}
	want := func(when string, most int32, bytes int64, idle bool) {
		t.Helper()
		w := r.wishes()
		if w.Most[0] != most || w.Bytes[0] != bytes || w.Idle[0] != idle {
			t.Errorf("%s: %d events of %d bytes, idle %t, want %d of %d, %t", when, w.Most[0], w.Bytes[0], w.Idle[0], most, bytes, idle)
		}
	}
	want("at first", 3, 1000, true)
	small := claim(1, 100)
	want("with a small one", 2, 900, false)
	large := claim(2, 5000)
	want("with one that is larger than all", 0, 0, false)
	r.Ended(small)
	want("while that one runs", 0, 0, false)
	r.Ended(large)
	want("in the end", 3, 1000, true)
}
