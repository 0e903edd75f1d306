package eventtype_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventtype"
)

func TestMain(m *testing.M) { devtest.Main(m) }

func TestNear(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		known string
		want  string
	}{
		{"order.plcaed", "order.paid order.placed", "order.placed"},
		{"order.placd", "order.placed", "order.placed"},
		{"orders.placed", "order.placed", "order.placed"},
		{"Order.Placed", "order.placed", "order.placed"},
		{"order_placed", "order.placed", "order.placed"},
		{"order.placed", "shop.order.placed", "shop.order.placed"},
		{"shop.order.placed", "order.placed", "order.placed"},
		{"order.canceled", "order.cancelled", "order.cancelled"},
		{"order.authorizatoin-denied", "order.authorization-denied", "order.authorization-denied"},
		{"order.placed", "order.placed", ""},
		{"order.placed", "", ""},
		{"order.placed", "order.paid order.packed.late", ""},
		{"order.v2", "order.v1", ""},
		{"order.placed.v2", "order.placed", ""},
		{"order.version2", "order.version1", ""},
		{"invoice.void", "invoice.paid", ""},
		{"payment.reserved", "payment.reversed", ""},
		{"user.activated", "user.deactivated", ""},
		{"user.unlocked", "user.locked", ""},
		{"user.in", "user.on", ""},
		{"placed", "order.placed", ""},
		{"payment.charged", "payment.charge", ""},
		{"order.confirmed", "order.confirm", ""},
		{"order.place", "order.placed", "order.placed"},
	}
	for _, tt := range tests {
		if got := eventtype.Near(tt.name, strings.Fields(tt.known)); got != tt.want {
			t.Errorf("Near(%q, %q) = %q, want %q", tt.name, tt.known, got, tt.want)
		}
	}
}

func TestExamine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		asked, seen string
		incomplete  bool
		want        []string // warnings
		note        string
	}{
		{"all seen", "order.placed", "order.placed order.paid", false, nil, ""},
		{"nothing seen", "order.placed", "", false, nil, ""},
		{"a slip", "order.paid order.plcaed", "order.paid order.placed", false, []string{"no event of type order.plcaed is in S; did you mean order.placed?"}, ""},
		{"a slip, with little seen", "order.plcaed", "order.placed", true, []string{"no event of type order.plcaed is in S; did you mean order.placed?"}, ""},
		{"one that was mended, and adds up", "order.placed order.plcaed", "order.placed", false, nil, ""},
		{"one that is rare", "order.placed order.refunded", "order.placed", false, nil, ""},
		{"none of them", "stock.low stock.out", "order.placed", false, nil, "no event of type stock.low, stock.out is in S yet, but events of other types are; that is fine if their producer is not rolled out yet"},
		{"none of them, with little seen", "stock.low", "order.placed", true, nil, ""},
		{"a slip, and one that is new", "order.plcaed stock.low", "order.placed", false, []string{"no event of type order.plcaed is in S; did you mean order.placed?"}, ""},
		{"no types", "", "order.placed", false, nil, ""},
	}
	for _, tt := range tests {
		v := eventtype.Examine(strings.Fields(tt.asked), strings.Fields(tt.seen), !tt.incomplete)
		if got := v.Warnings("in S"); !slices.Equal(got, tt.want) {
			t.Errorf("%s: warnings %q, want %q", tt.name, got, tt.want)
		}
		if got := v.Note("in S"); got != tt.note {
			t.Errorf("%s: note %q, want %q", tt.name, got, tt.note)
		}
	}
}

func TestInStream(t *testing.T) {
	t.Parallel()
	js := devtest.JetStream(t, devtest.NATS(t))
	for _, retention := range []jetstream.RetentionPolicy{jetstream.LimitsPolicy, jetstream.InterestPolicy, jetstream.WorkQueuePolicy} {
		name := nats.NewInbox()[len("_INBOX."):]
		stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, Retention: retention})
		if err != nil {
			t.Fatal(err)
		}
		if got, complete, err := eventtype.InStream(t.Context(), stream); len(got) > 0 || complete || err != nil {
			t.Errorf("of an empty stream: %v, %t, %v", got, complete, err)
		}
		for _, kind := range []string{"b", "a", "a"} {
			if _, err := js.Publish(t.Context(), name+"."+kind, nil); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{name + ".a", name + ".b"}
		if retention != jetstream.LimitsPolicy {
			want = nil // the stream removes handled messages, so its subjects are not complete
		}
		if got, complete, err := eventtype.InStream(t.Context(), stream); !slices.Equal(got, want) || complete != (want != nil) || err != nil {
			t.Errorf("InStream = %v, %t, %v, want %v", got, complete, err, want)
		}
	}
}
