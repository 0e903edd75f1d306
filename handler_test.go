package postroom_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
)

// fakeTx is a transaction that does nothing. Tests only compare it with others.
type fakeTx struct{ pgx.Tx }

type contextKey struct{}

var errBoom = errors.New("boom")

func TestHandlerFuncPassesEverythingThrough(t *testing.T) {
	ctx := context.WithValue(t.Context(), contextKey{}, "here")
	tx := &fakeTx{}
	var gotTx pgx.Tx
	var gotID string
	var gotValue any
	h := postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		gotTx, gotID, gotValue = tx, ev.ID, ctx.Value(contextKey{})
		return errBoom
	})

	if err := h.Handle(ctx, tx, postroom.Event{ID: "e-1"}); err != errBoom { //nolint:errorlint // the very error
		t.Errorf("Handle = %v, want the function's error as it is", err)
	}
	if gotTx != pgx.Tx(tx) || gotID != "e-1" || gotValue != "here" {
		t.Errorf("the function saw tx %p, event %q and context value %v", gotTx, gotID, gotValue)
	}
}

func TestJSONHandlerDecodesThePayload(t *testing.T) {
	tx := &fakeTx{}
	var got []order
	h := postroom.JSON(func(_ context.Context, gotTx pgx.Tx, ev postroom.Event, o order) error {
		if gotTx != pgx.Tx(tx) || ev.Type != "order.placed" || len(ev.Data) == 0 {
			t.Errorf("the function saw tx %p and event %+v", gotTx, ev)
		}
		got = append(got, o)
		return errBoom
	})

	for _, data := range []string{`{"id":"o-1","amount":7}`, `{"id":"o-2"}`} {
		err := h.Handle(t.Context(), tx, postroom.Event{Type: "order.placed", Data: []byte(data)})
		if err != errBoom { //nolint:errorlint // the very error
			t.Errorf("Handle = %v, want the function's error as it is", err)
		}
	}
	if want := []order{{ID: "o-1", Amount: 7}, {ID: "o-2"}}; !slices.Equal(got, want) {
		t.Errorf("payloads %+v, want %+v: each its own", got, want)
	}
}

func TestJSONHandlerDoesNotRunOnDataThatDoesNotDecode(t *testing.T) {
	h := postroom.JSON(func(context.Context, pgx.Tx, postroom.Event, order) error {
		t.Error("the function ran")
		return nil
	})
	for _, tt := range undecodable {
		t.Run(tt.name, func(t *testing.T) {
			err := h.Handle(t.Context(), nil, postroom.Event{Type: "order.placed", Data: []byte(tt.data)})
			if !errors.Is(err, postroom.ErrPermanent) {
				t.Errorf("Handle = %v, want ErrPermanent", err)
			}
		})
	}
}

func TestChain(t *testing.T) {
	var trace []string
	note := func(name string) postroom.Middleware {
		return func(next postroom.Handler) postroom.Handler {
			return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				trace = append(trace, name)
				defer func() { trace = append(trace, "/"+name) }()
				return next.Handle(ctx, tx, ev)
			})
		}
	}
	stop := func(postroom.Handler) postroom.Handler {
		return postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error { return errBoom })
	}
	permanent := func(next postroom.Handler) postroom.Handler {
		return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			return postroom.Permanent(next.Handle(ctx, tx, ev))
		})
	}

	tests := []struct {
		name       string
		middleware []postroom.Middleware
		want       []string
		wantErr    error
	}{
		{"without middleware the handler runs", nil, []string{"h"}, nil},
		{"one wraps the handler", []postroom.Middleware{note("a")}, []string{"a", "h", "/a"}, nil},
		{"the first is outermost", []postroom.Middleware{note("a"), note("b"), note("c")}, []string{"a", "b", "c", "h", "/c", "/b", "/a"}, nil},
		{"one may keep the rest from running", []postroom.Middleware{note("a"), stop, note("b")}, []string{"a", "/a"}, errBoom},
		{"one may change the error", []postroom.Middleware{permanent, stop}, nil, postroom.ErrPermanent},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			trace = nil
			given := slices.Clone(tt.middleware)
			h := postroom.Chain(postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
				trace = append(trace, "h")
				return nil
			}), given...)

			for range 2 { // a chain may be used again
				trace = nil
				if err := h.Handle(t.Context(), nil, postroom.Event{}); !errors.Is(err, tt.wantErr) {
					t.Errorf("Handle = %v, want %v", err, tt.wantErr)
				}
				if !slices.Equal(trace, tt.want) {
					t.Errorf("ran %q, want %q", trace, tt.want)
				}
			}
		})
	}
}
