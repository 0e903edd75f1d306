package inbox

import (
	"errors"
	"testing"
)

// A message that the broker has sent, and that has not come from one look to the next,
// ends the reading: without another behind it nobody would miss it.
func TestMessageThatDoesNotCome(t *testing.T) {
	t.Parallel()
	r := &reading{term: &term{}, gap: make(chan struct{})}
	looks := []struct {
		received, sent uint64
		lost           bool
	}{
		{0, 0, false}, // nothing was sent
		{0, 2, false}, // two are on their way
		{1, 2, false}, // one has come
		{2, 2, false}, // and the other
		{2, 3, false},
		{3, 4, false}, // another is on its way now
		{3, 4, true},
		{3, 4, true},
	}
	for i, look := range looks {
		r.received.Store(look.received)
		r.await(look.sent)
		if lost := errors.Is(r.ended(), errGap); lost != look.lost {
			t.Errorf("look %d: lost is %v, want %v", i, lost, look.lost)
		}
	}
}
