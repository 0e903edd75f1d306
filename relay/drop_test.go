package relay

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/relay/broker"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// An invalid event is refused only if it is the first of its key in a batch. Behind a valid event
// it waits, and later events of the key wait too.
func TestAnInvalidEventWaitsBehindAValidOne(t *testing.T) {
	t.Parallel()
	var batch []*broker.Message
	for i, name := range []string{"a", "bad a", "a", "bad b", "bad b", "b", "", "bad ", "", "c", "bad c", "bad c"} {
		key, bad := strings.CutPrefix(name, "bad ")
		ev := broker.Event{Seq: int64(i), Event: postroom.Event{ID: fmt.Sprint(i), Source: "/shop", Type: "a.b", Subject: "a.b", Key: key}}
		if bad {
			ev.Fault = &postroom.FieldError{Field: "Headers", Problem: "are odd"}
		}
		e := &schedule.Entry{Message: broker.Message{Event: ev}}
		e.Owner = e
		batch = append(batch, &e.Message)
	}
	var told, sent []string
	for _, m := range dropInvalid(batch, func(m *broker.Message, o broker.Outcome) { told = append(told, fmt.Sprint(m.Seq, " ", o.Class)) }) {
		sent = append(sent, m.ID)
	}
	if want := []string{"0", "6", "8", "9"}; !slices.Equal(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
	want := []string{
		"11 blocked_by_key", "10 blocked_by_key", "5 blocked_by_key", "4 blocked_by_key", "2 blocked_by_key", "1 blocked_by_key",
		"3 permanent", "7 permanent",
	}
	if !slices.Equal(told, want) {
		t.Errorf("reported %v, want %v", told, want)
	}
}
