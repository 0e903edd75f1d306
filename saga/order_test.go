package saga_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
)

// withOrders returns a connection to a broker with the stream ORDERS, which has the events of travel.
func withOrders(t *testing.T) *nats.Conn {
	t.Helper()
	nc := devtest.NATS(t)
	if err := natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"seat.>", "payment.>", "travel.>"}}); err != nil {
		t.Fatal(err)
	}
	return nc
}

// An inbox refuses a participant whose Undo could overtake its command, and a saga whose deadline
// could wait behind a dead reply. It says so of handlers in a Mux or with a middleware, too.
func TestInboxRefusesAnotherOrder(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	nc := withOrders(t)
	participant := participant(w.out)
	through := func(next postroom.Handler) postroom.Handler { return next }
	var commands, replies postroom.Mux
	commands.On("seat.book", participant)
	for _, eventType := range w.saga.Types() {
		replies.On(eventType, w.saga)
	}
	for name, tt := range map[string]struct {
		h     postroom.Handler
		types []string
		order inbox.Order
		want  string // in the error; empty if there is none
	}{
		"a participant without an order":         {participant, []string{"seat.book"}, inbox.Unordered, "HoldKey"},
		"a participant that skips":               {participant, []string{"seat.book"}, inbox.SkipKey, "HoldKey"},
		"a participant that holds":               {participant, []string{"seat.book"}, inbox.HoldKey, ""},
		"a Mux of participants without an order": {&commands, commands.Types(), inbox.Unordered, "handler of seat.book: "},
		"a Mux of participants that holds":       {&commands, commands.Types(), inbox.HoldKey, ""},
		"a chain of a participant":               {postroom.Chain(participant, through), []string{"seat.book"}, inbox.Unordered, "HoldKey"},
		"a saga that holds":                      {w.saga, w.saga.Types(), inbox.HoldKey, "saga travel"},
		"a saga that skips":                      {w.saga, w.saga.Types(), inbox.SkipKey, "saga travel"},
		"a saga without an order":                {w.saga, w.saga.Types(), inbox.Unordered, ""},
		"a Mux of a saga that holds":             {&replies, replies.Types(), inbox.HoldKey, "saga travel"},
		"a Mux of a saga without an order":       {&replies, replies.Types(), inbox.Unordered, ""},
	} {
		in := inbox.New(w.pool, nc, inbox.Config{})
		in.Handle(inbox.Subscription{Name: "h", Stream: "ORDERS", Types: tt.types, Order: tt.order}, tt.h)
		err := in.Check(t.Context())
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v, want nil", name, err)
		case tt.want != "" && (!errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), "handler h: ") || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want an unrecoverable error with %q", name, err, tt.want)
		}
	}
}
