package saga_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/postroom/postroom/saga"
)

func TestTrial(t *testing.T) {
	t.Parallel()
	order := trip{ID: "t", Seats: 2}
	t.Run("all goes well", func(t *testing.T) {
		t.Parallel()
		saga.Test(t, travel()).Begin(order).
			Sends("seat.book").Gets("seat.booked", nil).
			Sends("payment.charge").Gets("payment.charged", paidFor{Receipt: "r"}).
			Holds("the receipt", func(s trip) bool { return s.Receipt == "r" }).
			Sends("travel.booked").Ends(saga.Done)
	})
	t.Run("the first step fails", func(t *testing.T) {
		t.Parallel()
		saga.Test(t, travel()).Begin(order).Sends("seat.book").Gets("seat.full", nil).Sends("travel.cancelled").Ends(saga.Undone)
	})
	t.Run("the second step fails", func(t *testing.T) {
		t.Parallel()
		saga.Test(t, travel()).Begin(order).
			Sends("seat.book").Gets("seat.booked", nil).
			Sends("payment.charge").Gets("payment.declined", paidFor{Reason: "poor"}).
			Sends("seat.free").Gets("seat.freed", nil).
			Holds("the reason", func(s trip) bool { return s.Reason == "poor" }).
			Sends("travel.cancelled").Ends(saga.Undone)
	})
	t.Run("the second step takes too long", func(t *testing.T) {
		t.Parallel()
		saga.Test(t, travel()).Begin(order).
			Sends("seat.book").Gets("seat.booked", nil).
			Sends("payment.charge").Deadline().
			Sends("payment.refund").Gets("payment.refunded", nil).
			Sends("seat.free").Gets("seat.freed", nil).
			Sends("travel.cancelled").Ends(saga.Undone)
	})
	t.Run("the last step gives up", func(t *testing.T) {
		t.Parallel()
		saga.Test(t, travel()).FailLocal("confirm", errors.New("closed")).Begin(order).
			Sends("seat.book").Gets("seat.booked", nil).
			Sends("payment.charge").Gets("payment.charged", nil).
			Sends("payment.refund").Gets("payment.refunded", nil).
			Sends("seat.free").Gets("seat.freed", nil).
			Sends("travel.cancelled").Ends(saga.Undone)
	})
}

// recorder is a TB that keeps the text with which a trial fails.
type recorder struct{ failureText string }

func (*recorder) Helper() {}
func (r *recorder) Fatalf(format string, args ...any) {
	r.failureText = fmt.Sprintf(format, args...)
	panic(r)
}

// failureText returns the text with which a trial fails a wrong test.
func failureText(play func(tb saga.TB)) (text string) {
	r := &recorder{}
	defer func() {
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
		text = r.failureText
	}()
	play(r)
	return ""
}

func TestTrialNoticesViolations(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		play func(tb saga.TB)
		want string
	}{
		"another command": {func(tb saga.TB) { saga.Test(tb, travel()).Begin(trip{}).Sends("payment.charge") }, "sends seat.book, want payment.charge"},
		"no command": {func(tb saga.TB) {
			saga.Test(tb, travel()).Begin(trip{}).Sends("seat.book").Sends("payment.charge")
		}, "sends nothing, want payment.charge"},
		"a reply of another step": {func(tb saga.TB) {
			saga.Test(tb, travel()).Begin(trip{}).Sends("seat.book").Gets("payment.charged", nil)
		}, "does not know payment.charged"},
		"not at its end": {func(tb saga.TB) { saga.Test(tb, travel()).Begin(trip{}).Ends(saga.Done) }, "is running at step seat, want done"},
		"one command too many": {func(tb saga.TB) {
			saga.Test(tb, travel()).Begin(trip{}).Sends("seat.book").Gets("seat.full", nil).Ends(saga.Undone)
		}, "also sends travel.cancelled"},
		"a foreign event": {func(tb saga.TB) {
			saga.Test(tb, travel()).Begin(trip{}).GetsAny("seat.booked", nil)
		}, "is foreign"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := failureText(test.play); !strings.Contains(got, test.want) {
				t.Errorf("the trial says %q, want %q", got, test.want)
			}
		})
	}
}
