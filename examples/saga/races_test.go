package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/postroomtest"
	"github.com/postroom/postroom/postroomtest/servers"
	"github.com/postroom/postroom/saga"
)

// participant is a service's function.
type participant = func(ctx context.Context, tx pgx.Tx, cmd postroom.Event, o Order) (postroom.Event, error)

// deliver gives a command to a participant, and returns the type of its reply.
func deliver(t *testing.T, pool *pgxpool.Pool, f participant, eventType string, o Order) string {
	t.Helper()
	cmd := postroom.NewEvent(eventType, o)
	cmd.Key = o.ID
	got := postroomtest.Apply(t, pool, saga.Participant(outbox.New(outbox.Config{Source: "/test"}), f), cmd)
	if got.Outcome != postroomtest.Applied {
		t.Fatalf("%s is %s: %v", eventType, got.Outcome, got.Err)
	}
	if len(got.Written) == 0 {
		return "-"
	}
	return got.Written[0].Type
}

// value returns the text that a statement returns.
func value(t *testing.T, pool *pgxpool.Pool, sql string) (text string) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

func tables(t *testing.T, sql string) *pgxpool.Pool {
	t.Helper()
	pool := servers.Postgres(t)
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	return pool
}

// Participants handle do and undo, in the order that an ordered handler keeps.
func TestParticipants(t *testing.T) {
	t.Parallel()
	commands := map[string]participant{"payment.charge": charge, "payment.refund": refund, "stock.reserve": reserve, "stock.release": release}
	for _, tt := range []struct {
		name, commands string
		o              Order
		replies        string
		left           string
	}{
		{"charged", "payment.charge", Order{Amount: 40}, "payment.charged", "60"},
		{"declined", "payment.charge", Order{Amount: 101}, "payment.declined", "100"},
		{"refunded", "payment.charge payment.refund", Order{Amount: 40}, "payment.charged payment.refunded", "100"},
		{"declined, and refunded for want of a reply", "payment.charge payment.refund", Order{Amount: 101}, "payment.declined payment.refunded", "100"},
		{"reserved", "stock.reserve", Order{SKU: "x", Quantity: 3}, "stock.reserved", "0"},
		{"short", "stock.reserve", Order{SKU: "x", Quantity: 4}, "stock.short", "3"},
		{"released", "stock.reserve stock.release", Order{SKU: "x", Quantity: 2}, "stock.reserved stock.released", "3"},
		{"a supplier, and released for want of a reply", "stock.reserve stock.release", Order{SKU: "y", Quantity: 2}, "- stock.released", "3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, left := tables(t, paymentTables+"INSERT INTO account VALUES (7, 100, 100)"), "SELECT credit::text FROM account"
			if strings.HasPrefix(tt.commands, stock) {
				pool = tables(t, stockTables+"INSERT INTO item VALUES ('x', false, 3, 3, 3), ('y', true, 0, 0, 0)")
				left = "SELECT available::text FROM item WHERE sku = 'x'"
			}
			tt.o.ID, tt.o.Customer = "a", 7
			var replies []string
			for _, c := range strings.Fields(tt.commands) {
				replies = append(replies, deliver(t, pool, commands[c], c, tt.o))
			}
			if got := strings.Join(replies, " "); got != tt.replies {
				t.Errorf("it answered %q, want %q", got, tt.replies)
			}
			if got := value(t, pool, left); got != tt.left {
				t.Errorf("%s are left, want %s", got, tt.left)
			}
		})
	}
}

// The ways of an order through its saga.
func TestCheckout(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) *saga.Trial[Order] {
		return saga.Test(t, checkout(time.Minute)).Begin(Order{ID: "a"})
	}
	t.Run("confirmed", func(t *testing.T) {
		begin(t).Sends("payment.charge").Gets("payment.charged", nil).
			Sends("stock.reserve").Gets("stock.reserved", nil).
			Sends("order.confirmed").Ends(saga.Done)
	})
	t.Run("declined", func(t *testing.T) {
		begin(t).Sends("payment.charge").Gets("payment.declined", Order{Reason: reasonDeclined}).
			Holds("the reason", func(o Order) bool { return o.Reason == reasonDeclined }).
			Sends("order.cancelled").Ends(saga.Undone)
	})
	t.Run("out of stock", func(t *testing.T) {
		begin(t).Sends("payment.charge").Gets("payment.charged", nil).
			Sends("stock.reserve").Gets("stock.short", Order{Reason: reasonStock}).
			Sends("payment.refund").Gets("payment.refunded", nil).
			Sends("order.cancelled").Ends(saga.Undone)
	})
	t.Run("out of time", func(t *testing.T) {
		begin(t).Sends("payment.charge").Gets("payment.charged", nil).
			Sends("stock.reserve").Deadline().
			Sends("stock.release").Gets("stock.released", nil).
			Sends("payment.refund").Gets("payment.refunded", nil).
			Sends("order.cancelled").Ends(saga.Undone)
	})
}

// An order is placed once, with its saga.
func TestPlaceTwice(t *testing.T) {
	t.Parallel()
	pool := tables(t, orderTables)
	s := &orderService{pool: pool, checkout: saga.New(pool, outbox.New(outbox.Config{Source: "/order"}), checkout(time.Hour))}
	for _, want := range []bool{true, false} { // the second time, the order exists
		if isNew, err := s.place(t.Context(), Order{ID: "a", Customer: 7, SKU: "x", Quantity: 1, Amount: 40}); err != nil || isNew != want {
			t.Fatalf("place = %t, %v", isNew, err)
		}
	}
	postroomtest.RequireWritten(t, pool, postroomtest.Want{Type: "payment.charge", Key: "a"}, postroomtest.Want{Type: "order.checkout.deadline", Key: "a"})
}
