package inbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// typed is the effect of a handler that knows its type.
func typed(eventType string) postroom.TypedHandler {
	return postroom.NewType[string](eventType, nil).Handler(func(ctx context.Context, tx pgx.Tx, ev postroom.Event, _ string) error {
		return effect("typed").Handle(ctx, tx, ev)
	})
}

// A subscription without Types reads the types of its handler.
func TestSubscriptionTakesTheTypesOfItsHandler(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	placed, paid := b.stream+".placed", b.stream+".paid"
	same := func(next postroom.Handler) postroom.Handler { return next }
	all := map[string]postroom.Handler{
		"one": typed(placed), "mux": postroom.NewMux(typed(placed), typed(paid)), "chain": postroom.Chain(postroom.NewMux(typed(placed), typed(paid)), same), "ordered": typed(placed),
	}
	for name, h := range all {
		sub := inbox.Subscription{Name: name, Stream: b.stream, Workers: 1}
		if name == "ordered" {
			sub.Order = inbox.HoldKey
		}
		b.in.Handle(sub, postroom.Chain(h, func(next postroom.Handler) postroom.Handler {
			return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				return errors.Join(next.Handle(ctx, tx, ev), effect(name).Handle(ctx, tx, ev))
			})
		}))
	}
	if err := b.in.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.publish("a")
	b.publishEvent(postroom.Event{ID: "b", Source: "/shop", Type: paid, Data: []byte(`"b"`)})
	b.publishEvent(postroom.Event{ID: "c", Source: "/shop", Type: b.stream + ".lost", Data: []byte(`"c"`)})
	b.run()
	b.eventually("the effects", func() bool {
		return len(b.effects("one"))+len(b.effects("mux"))+len(b.effects("chain"))+len(b.effects("ordered")) == 6
	})
	b.drained()
	b.wantOnce("one", "a")
	b.wantOnce("mux", "a", "b")
	b.wantOnce("chain", "a", "b")
	b.wantOnce("ordered", "a")
	var types []string
	if err := b.pool.QueryRow(t.Context(), "SELECT types FROM postroom.subscription WHERE handler = 'mux'").Scan(&types); err != nil || !slices.Equal(types, []string{paid, placed}) {
		t.Errorf("the types of the handler are recorded as %q, %v", types, err)
	}
}

// Check compares the types of a subscription with those of its handler, in both directions.
func TestCheckComparesTypesInBothDirections(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	late := postroom.NewMux(typed("a.b"))
	tests := map[string]struct {
		types []string
		h     postroom.Handler
		after func()
		wants []string
	}{
		"a handler of one type":                  {[]string{"a.b"}, typed("a.b"), nil, nil},
		"a type that a handler lacks":            {[]string{"a.b", "c.d"}, typed("a.b"), nil, []string{"subscription has type c.d"}},
		"a type that the subscription lacks":     {[]string{"a.b"}, postroom.NewMux(typed("a.b"), typed("c.d")), nil, []string{"it handles c.d,"}},
		"both":                                   {[]string{"e.f"}, typed("a.b"), nil, []string{"subscription has type e.f", "it handles a.b,"}},
		"no types, and a handler that has none":  {nil, &postroom.Mux{}, nil, []string{"Types or Subjects"}},
		"no types, and a handler that gets more": {nil, late, func() { late.On("c.d", effect("x")) }, []string{"it handles c.d,", "before you call Handle"}},
	}
	for name, tt := range tests {
		in := inbox.New(b.pool, b.nc, inbox.Config{})
		sub := b.subscription("billing")
		sub.Types = tt.types
		in.Handle(sub, tt.h)
		if tt.after != nil {
			tt.after()
		}
		err := in.Check(t.Context())
		if (err != nil) != (len(tt.wants) > 0) || err != nil && !errors.Is(err, postroom.ErrUnrecoverable) {
			t.Errorf("%s: Check = %v, want %q", name, err, tt.wants)
		}
		for _, want := range tt.wants {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: Check = %v, want %q in it", name, err, want)
			}
		}
	}
}
