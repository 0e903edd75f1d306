package postroom_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
)

type payment struct {
	OrderID string
	Cents   int
}

var (
	orderPlaced = postroom.NewType("order.placed", func(o order) string { return o.ID })
	orderPaid   = postroom.NewType("order.paid", func(p payment) string { return p.OrderID })
	orderLost   = postroom.NewType[order]("order.lost", nil)
)

func TestTypeMakesEvents(t *testing.T) {
	ev := orderPlaced.New(order{ID: "o-1", Amount: 7})
	if ev.Type != "order.placed" || ev.Type != orderPlaced.Name() || ev.Key != "o-1" || ev.ID == "" || string(ev.Data) != `{"id":"o-1","amount":7}` {
		t.Errorf("New = %+v with data %s", ev, ev.Data)
	}
	if got := orderLost.New(order{ID: "o-1"}); got.Key != "" {
		t.Errorf("the key of a type without keys is %q", got.Key)
	}
	next := orderPaid.Follow(ev, payment{OrderID: "p-1"})
	if next.Type != "order.paid" || next.Key != "p-1" || next.CausationID != ev.ID || next.CorrelationID != ev.ID {
		t.Errorf("Follow = %+v, want its own key and the cause", next)
	}
	if got := orderLost.Follow(ev, order{}); got.Key != "o-1" {
		t.Errorf("the key of a type without keys that follows is %q, want that of the cause", got.Key)
	}
	if err := (postroom.Type[order]{}).New(order{}).Validate(); !errors.Is(err, postroom.ErrInvalidEvent) {
		t.Errorf("an event of no type: %v", err)
	}
}

func TestTypedHandlersGetTheirData(t *testing.T) {
	tx := &fakeTx{}
	var got []any
	placed := func(_ context.Context, gotTx pgx.Tx, ev postroom.Event, o order) error {
		if gotTx != pgx.Tx(tx) || ev.Type != "order.placed" {
			t.Errorf("the function saw tx %p and event %+v", gotTx, ev)
		}
		got = append(got, o)
		return errBoom
	}
	paid := func(_ context.Context, _ pgx.Tx, _ postroom.Event, p payment) error {
		got = append(got, p)
		return nil
	}
	one, mux := orderPlaced.Handler(placed), postroom.NewMux(orderPaid.Handler(paid), orderPlaced.Handler(placed))
	if types := one.Types(); !slices.Equal(types, []string{"order.placed"}) {
		t.Errorf("Types of a handler = %q", types)
	}
	if types := mux.Types(); !slices.Equal(types, []string{"order.paid", "order.placed"}) {
		t.Errorf("Types of a Mux = %q", types)
	}
	ev, other := orderPlaced.New(order{ID: "o-1", Amount: 7}), orderPaid.New(payment{"o-2", 8})
	for _, tt := range []struct {
		h    postroom.Handler
		ev   postroom.Event
		want error
	}{{one, ev, errBoom}, {mux, ev, errBoom}, {mux, other, nil}, {one, other, postroom.ErrUnknownType}, {mux, orderLost.New(order{}), postroom.ErrUnknownType}} {
		if err := tt.h.Handle(t.Context(), tx, tt.ev); !errors.Is(err, tt.want) || errors.Is(err, postroom.ErrPermanent) {
			t.Errorf("Handle of %s = %v, want %v", tt.ev.Type, err, tt.want)
		}
	}
	if want := []any{order{ID: "o-1", Amount: 7}, order{ID: "o-1", Amount: 7}, payment{"o-2", 8}}; !slices.Equal(got, want) {
		t.Errorf("payloads %+v, want %+v", got, want)
	}
	if reflect.TypeOf(placed).AssignableTo(reflect.TypeOf(orderPaid.Handler).In(0)) {
		t.Error("a handler of an order may be the handler of a payment")
	}
}

func TestTypeDecodesNoOtherType(t *testing.T) {
	if o, err := orderPlaced.Decode(orderPlaced.New(order{ID: "o-1"})); err != nil || o.ID != "o-1" {
		t.Errorf("Decode = %+v, %v", o, err)
	}
	_, err := orderPlaced.Decode(orderLost.New(order{ID: "o-1"}))
	if !errors.Is(err, postroom.ErrUnknownType) || errors.Is(err, postroom.ErrPermanent) || !strings.Contains(err.Error(), "order.lost") {
		t.Errorf("Decode of another type = %v, want ErrUnknownType", err)
	}
}

func TestStrictTypesRefuseUnknownFields(t *testing.T) {
	type nested struct{ Order order }
	lenient := postroom.NewType[nested]("a.b", nil)
	strict := lenient.Strict()
	for _, tt := range []struct {
		data            string
		lenient, strict string
	}{
		{`{"Order":{"id":"secret"}}`, "", ""},
		{` {"Order":{"id":"secret"}} `, "", ""},
		{`{"Order":{"id":"secret"},"secret":1}`, "", "it has a field that its Go type lacks"},
		{`{"Order":{"id":"secret","secret":1}}`, "", "it has a field that its Go type lacks"},
		{`{"Order":{"id":"secret"}} {}`, "it is no JSON from byte 27 on", "it is no JSON from byte 26 on"},
		{`{"Order":{"id":"secret"}`, "does not decode", "does not decode"},
		{`{}`, "it has none of the fields", "it has none of the fields"},
		{``, "does not decode", "does not decode"},
	} {
		for name, try := range map[string]struct {
			postroom.Type[nested]
			want string
		}{"lenient": {lenient, tt.lenient}, "strict": {strict, tt.strict}} {
			got, err := try.Decode(postroom.Event{Type: "a.b", Data: []byte(tt.data)})
			if try.want == "" && (err != nil || got.Order.ID != "secret") {
				t.Errorf("%s %s: %+v, %v", name, tt.data, got, err)
			}
			if try.want != "" && (!errors.Is(err, postroom.ErrPermanent) || !strings.Contains(err.Error(), try.want) || strings.Contains(err.Error(), secret)) {
				t.Errorf("%s %s: %v, want %q", name, tt.data, err, try.want)
			}
		}
	}
	if strict.Name() != "a.b" {
		t.Errorf("Name of a strict type = %q", strict.Name())
	}
}

func TestTypesRefuseFaultsOfTheProgram(t *testing.T) {
	h := orderPlaced.Handler(func(context.Context, pgx.Tx, postroom.Event, order) error { return nil })
	for name, f := range map[string]func(){
		"NewType: ":         func() { postroom.NewType[order]("", nil) },
		"NewType: \"":       func() { postroom.NewType[order]("order.*", nil) },
		"Type.Handler: ":    func() { orderPlaced.Handler(nil) },
		"NewMux: handler 2": func() { postroom.NewMux(h, nil) },
		"NewMux: handler 1": func() { postroom.NewMux(&postroom.Mux{}) },
		"a second handler": func() {
			postroom.NewMux(h, orderLost.Handler(func(context.Context, pgx.Tx, postroom.Event, order) error { return nil }), h)
		},
		"is no event type": func() {
			postroom.Type[order]{}.Handler(func(context.Context, pgx.Tx, postroom.Event, order) error { return nil })
		},
	} {
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, name) {
					t.Errorf("panic = %q, want %q in it", p, name)
				}
			}()
			f()
		}()
	}
}
