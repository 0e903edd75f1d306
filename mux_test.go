package postroom_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/postroom/postroom"
)

// answer is a handler that returns err.
func answer(err error) postroom.Handler {
	return postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error { return err })
}

func TestMuxPassesAnEventToTheHandlerOfItsType(t *testing.T) {
	errPlaced, errPaid := errors.New("placed"), errors.New("paid")
	var m, outer postroom.Mux
	m.On("order.placed", answer(errPlaced))
	m.On("order.paid", answer(errPaid))
	m.On("order.shipped", answer(nil))
	for _, eventType := range m.Types() {
		outer.On(eventType, &m)
	}

	tests := []struct {
		name      string
		eventType string
		want      error
	}{
		{"of one type", "order.placed", errPlaced},
		{"of another", "order.paid", errPaid},
		{"that succeeds", "order.shipped", nil},
		{"and to none where the type has none", "order.lost", postroom.ErrUnknownType},
		{"and to none where the type only begins alike", "order", postroom.ErrUnknownType},
		{"and to none where the case differs", "Order.Placed", postroom.ErrUnknownType},
		{"and to none without a type", "", postroom.ErrUnknownType},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, h := range map[string]postroom.Handler{"a mux": &m, "a mux within a mux": &outer} {
				if err := h.Handle(t.Context(), nil, postroom.Event{Type: tt.eventType}); !errors.Is(err, tt.want) {
					t.Errorf("%s: Handle = %v, want %v", name, err, tt.want)
				}
			}
		})
	}
}

func TestMuxUnknownType(t *testing.T) {
	var m postroom.Mux
	err := m.Handle(t.Context(), nil, postroom.Event{Type: "order.lost", Data: []byte(secret)})
	if !errors.Is(err, postroom.ErrUnknownType) {
		t.Fatalf("Handle of an empty mux = %v, want ErrUnknownType", err)
	}
	if errors.Is(err, postroom.ErrPermanent) {
		t.Error("an unknown type is permanent; a newer version of the process may know it")
	}
	if !strings.Contains(err.Error(), "order.lost") {
		t.Errorf("%v does not name the type", err)
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("%v holds the payload", err)
	}
}

func TestMuxOnPanics(t *testing.T) {
	tests := []struct {
		name      string
		eventType string
	}{
		{"for no type", ""},
		{"for a wildcard of one token", "order.*"},
		{"for a wildcard of many tokens", "order.>"},
		{"for an empty token", "order..placed"},
		{"for white space", "order placed"},
		{"for a type that is too long", strings.Repeat("a", postroom.MaxType+1)},
		{"for a second handler of a type", "order.placed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var m postroom.Mux
			m.On("order.placed", answer(nil))
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, "postroom: Mux: ") {
					t.Errorf("panic = %q, want one that names the Mux", p)
				}
				if got := m.Types(); !slices.Equal(got, []string{"order.placed"}) {
					t.Errorf("afterwards Types = %q", got)
				}
			}()
			m.On(tt.eventType, answer(errBoom))
		})
	}
}

func TestMuxTypesAreSorted(t *testing.T) {
	var m postroom.Mux
	if got := m.Types(); len(got) != 0 {
		t.Errorf("Types of an empty mux = %q, want none", got)
	}
	for _, eventType := range []string{"order.placed", "a", strings.Repeat("z", postroom.MaxType), "order.paid", "B"} {
		m.On(eventType, answer(nil))
	}
	want := []string{"B", "a", "order.paid", "order.placed", strings.Repeat("z", postroom.MaxType)}
	if got := m.Types(); !slices.Equal(got, want) {
		t.Errorf("Types = %q, want %q", got, want)
	}
	m.Types()[0] = "changed"
	if got := m.Types(); !slices.Equal(got, want) {
		t.Errorf("Types = %q after a caller changed its copy, want %q", got, want)
	}
}

func TestMuxMayBeUsedConcurrently(t *testing.T) {
	var m postroom.Mux
	var calls atomic.Int64
	m.On("order.placed", postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
		calls.Add(1)
		return nil
	}))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				if err := m.Handle(t.Context(), nil, postroom.Event{Type: "order.placed"}); err != nil {
					t.Errorf("Handle = %v, want nil", err)
				}
				m.Types()
			}
		})
	}
	all.Wait()
	if got := calls.Load(); got != 800 {
		t.Errorf("%d calls, want 800", got)
	}
}

// A Mux behaves like a map from types to handlers to which entries are only added.
func TestMuxDoesAsItsModel(t *testing.T) {
	eventType := rapid.SampledFrom([]string{"a", "a.b", "a.b.c", "A", "b", "order.placed", "", "a.*", ">", "a..b", "a b", ".a", "ä"})
	rapid.Check(t, func(t *rapid.T) {
		var m postroom.Mux
		model := map[string]error{}
		t.Repeat(map[string]func(*rapid.T){
			"on": func(t *rapid.T) {
				name, err := eventType.Draw(t, "type"), fmt.Errorf("handler %d", len(model))
				h := rapid.SampledFrom([]postroom.Handler{answer(err), answer(err), nil}).Draw(t, "handler")
				_, taken := model[name]
				bad := taken || h == nil || name == "" || postroom.Event{Type: name}.Validate() != nil
				if panicked := panics(func() { m.On(name, h) }); panicked != bad {
					t.Fatalf("On(%q, %v) panicked: %t, want %t", name, h, panicked, bad)
				}
				if !bad {
					model[name] = err
				}
			},
			"handle": func(t *rapid.T) {
				name := eventType.Draw(t, "type")
				want, ok := model[name]
				if !ok {
					want = postroom.ErrUnknownType
				}
				if err := m.Handle(t.Context(), nil, postroom.Event{Type: name}); !errors.Is(err, want) {
					t.Fatalf("Handle of %q = %v, want %v", name, err, want)
				}
			},
			"": func(t *rapid.T) {
				if got := m.Types(); !slices.Equal(got, slices.Sorted(maps.Keys(model))) {
					t.Fatalf("Types = %q, want those of %v", got, model)
				}
			},
		})
	})
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}

// asked is a handler with a method Check, which counts its calls.
type asked struct {
	err   error
	times int
}

func (h *asked) Handle(context.Context, pgx.Tx, postroom.Event) error { return nil }

func (h *asked) Check(context.Context) error {
	h.times++
	return h.err
}

func TestMuxAsksItsHandlers(t *testing.T) {
	var mux postroom.Mux
	good, bad := &asked{}, &asked{err: errors.New("not ready")}
	mux.On("a.b", good)
	mux.On("a.c", good)
	mux.On("a.d", bad)
	mux.On("a.e", postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error { return nil }))
	if err := mux.Check(t.Context()); !errors.Is(err, bad.err) || !strings.Contains(err.Error(), "a.d") {
		t.Errorf("check: %v", err)
	}
	if good.times != 1 || bad.times != 1 {
		t.Errorf("asked %d and %d times", good.times, bad.times)
	}
}

// needy is a handler that refuses each subscription, and notes its types.
type needy struct {
	postroom.Handler
	types []string
}

var errNeedy = errors.New("needy")

func (n *needy) CheckSubscription(types []string, order string) error {
	n.types = types
	return fmt.Errorf("%w of %s", errNeedy, order)
}

// A Mux refuses a subscription with a type that it does not have. Each of its handlers is asked once,
// about its own types.
func TestMuxChecksItsSubscription(t *testing.T) {
	var m postroom.Mux
	one, two := &needy{Handler: answer(nil)}, &needy{Handler: answer(nil)}
	m.On("a", one)
	m.On("b", two)
	m.On("c", one)
	m.On("d", answer(nil))
	err := m.CheckSubscription([]string{"c", "a", "b"}, "HoldKey")
	if !errors.Is(err, errNeedy) || err.Error() != "handler of a: needy of HoldKey\nhandler of b: needy of HoldKey" {
		t.Errorf("CheckSubscription = %v", err)
	}
	if !slices.Equal(one.types, []string{"c", "a"}) || !slices.Equal(two.types, []string{"b"}) {
		t.Errorf("the handlers were asked about %q and %q", one.types, two.types)
	}
	if err := m.CheckSubscription(nil, "SkipKey"); err == nil || one.types != nil {
		t.Errorf("without types: %v, and the handler was asked about %q", err, one.types)
	}
	var plain postroom.Mux
	plain.On("d", answer(nil))
	chained, _ := postroom.Chain(&plain, func(next postroom.Handler) postroom.Handler { return next }).(interface {
		CheckSubscription(types []string, order string) error
	})
	if err := chained.CheckSubscription([]string{"d"}, "Unordered"); err != nil {
		t.Errorf("of its own type: %v", err)
	}
	if err := chained.CheckSubscription([]string{"d", "e"}, "Unordered"); err == nil || !strings.Contains(err.Error(), "has type e, for which there is no handler") {
		t.Errorf("of another type: %v", err)
	}
}
