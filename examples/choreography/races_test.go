package choreography

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/postroomtest"
	"github.com/postroom/postroom/postroomtest/servers"
)

// Events of different services overtake each other. In each order of arrival, each service ends
// in the right state.

// deliver makes one delivery to a handler and adds the types of the events that it wrote.
func deliver(t *testing.T, pool *pgxpool.Pool, h handler, eventType string, o Order, wrote []string) []string {
	t.Helper()
	ev := postroom.NewEvent(eventType, o)
	ev.Key = o.ID
	got := postroomtest.Apply(t, pool, postroom.JSON(h), ev)
	if got.Outcome != postroomtest.Applied {
		t.Fatalf("%s is %s: %v", eventType, got.Outcome, got.Err)
	}
	for _, ev := range got.Written {
		wrote = append(wrote, ev.Type)
	}
	return wrote
}

type handler = func(ctx context.Context, tx pgx.Tx, ev postroom.Event, o Order) error

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

func TestPaymentIsRightInEachOrderOfArrival(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, events string
		credit       int
		writes       string
		left         int // of the credit
	}{
		{"charged", orderPlaced, 100, paymentCharged, 60},
		{"declined", orderPlaced, 39, paymentDeclined, 39},
		{"no goods", orderPlaced + " " + stockShort, 100, paymentCharged + " " + paymentRefunded, 100},
		{"no time", orderPlaced + " " + orderExpired, 100, paymentCharged + " " + paymentRefunded, 100},
		{"no goods and no time", orderPlaced + " " + stockShort + " " + orderExpired, 100, paymentCharged + " " + paymentRefunded, 100},
		{"no time and no goods", orderPlaced + " " + orderExpired + " " + stockShort, 100, paymentCharged + " " + paymentRefunded, 100},
		{"declined, and no time", orderPlaced + " " + orderExpired, 39, paymentDeclined, 39},
		{"no time before the charge", orderExpired + " " + orderPlaced, 100, paymentVoided, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := tables(t, paymentTables+fmt.Sprintf("INSERT INTO account VALUES (7, %d, %[1]d)", tt.credit))
			s := &paymentService{outbox: outbox.New(outbox.Config{Source: "/payment"})}
			var wrote []string
			for _, eventType := range strings.Fields(tt.events) {
				h := s.refund
				if eventType == orderPlaced {
					h = s.charge
				}
				wrote = deliver(t, pool, h, eventType, Order{ID: "a", Customer: 7, Amount: 40}, wrote)
			}
			if got := strings.Join(wrote, " "); got != tt.writes {
				t.Errorf("it wrote %q, want %q", got, tt.writes)
			}
			if got := value(t, pool, "SELECT credit::text FROM account"); got != fmt.Sprint(tt.left) {
				t.Errorf("%s of the credit are left, want %d", got, tt.left)
			}
		})
	}
}

func TestStockIsRightInEachOrderOfArrival(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, events string
		quantity     int64
		sku          string
		writes       string
		left         int
	}{
		{"reserved", paymentCharged, 3, "x", stockReserved, 0},
		{"short", paymentCharged, 4, "x", stockShort, 3},
		{"reserved, and no time", paymentCharged + " " + orderExpired, 3, "x", stockReserved + " " + stockReleased, 3},
		{"short, and no time", paymentCharged + " " + orderExpired, 4, "x", stockShort, 3},
		{"no time before the charge", orderExpired + " " + paymentCharged, 3, "x", "", 3},
		{"supplier", paymentCharged, 3, "y", "", 3},
		{"supplier, and no time", paymentCharged + " " + orderExpired, 3, "y", "", 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := tables(t, stockTables+"INSERT INTO item VALUES ('x', false, 3, 3, 3), ('y', true, 0, 0, 0)")
			s := &stockService{outbox: outbox.New(outbox.Config{Source: "/stock"})}
			var wrote []string
			for _, eventType := range strings.Fields(tt.events) {
				h := s.release
				if eventType == paymentCharged {
					h = s.reserve
				}
				wrote = deliver(t, pool, h, eventType, Order{ID: "a", SKU: tt.sku, Quantity: tt.quantity}, wrote)
			}
			if got := strings.Join(wrote, " "); got != tt.writes {
				t.Errorf("it wrote %q, want %q", got, tt.writes)
			}
			if got := value(t, pool, "SELECT available::text FROM item WHERE sku = 'x'"); got != fmt.Sprint(tt.left) {
				t.Errorf("%s are left, want %d", got, tt.left)
			}
		})
	}
}

func TestOrderIsRightInEachOrderOfArrival(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, events  string
		writes, state string
	}{
		{"confirmed", stockReserved, orderConfirmed, "confirmed"},
		{"confirmed in time", stockReserved + " " + orderDeadline, orderConfirmed, "confirmed"},
		{"declined", paymentDeclined + " " + orderDeadline, orderCancelled, "cancelled"},
		{"no time", orderDeadline, orderExpired, "expired"},
		{"no time, voided", orderDeadline + " " + paymentVoided, orderExpired + " " + orderCancelled, "cancelled"},
		{"reserved too late", orderDeadline + " " + stockReserved + " " + paymentRefunded, orderExpired + " " + orderCancelled, "cancelled"},
		{"reserved after the end", orderDeadline + " " + paymentRefunded + " " + stockReserved, orderExpired + " " + orderCancelled, "cancelled"},
		{"declined after the deadline", orderDeadline + " " + paymentDeclined, orderExpired + " " + orderCancelled, "cancelled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := tables(t, orderTables)
			s := &orderService{pool: pool, outbox: outbox.New(outbox.Config{Source: "/order"})}
			o := Order{ID: "a", Customer: 7, SKU: "x", Quantity: 1, Amount: 40}
			for _, want := range []bool{true, false} { // the second time, the order exists
				if isNew, err := s.place(t.Context(), o, time.Hour); err != nil || isNew != want {
					t.Fatalf("place = %t, %v", isNew, err)
				}
			}
			postroomtest.RequireWritten(t, pool, postroomtest.Want{Type: orderPlaced, Key: o.ID}, postroomtest.Want{Type: orderDeadline, Key: o.ID})
			var wrote []string
			for _, eventType := range strings.Fields(tt.events) {
				h := map[string]handler{stockReserved: s.confirm, orderDeadline: s.expire}[eventType]
				if h == nil {
					h = s.cancel
				}
				wrote = deliver(t, pool, h, eventType, o, wrote)
			}
			if got := strings.Join(wrote, " "); got != tt.writes {
				t.Errorf("it wrote %q, want %q", got, tt.writes)
			}
			if got := value(t, pool, "SELECT state FROM orders"); got != tt.state {
				t.Errorf("it is %s, want %s", got, tt.state)
			}
		})
	}
}
