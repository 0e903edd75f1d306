package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
)

// Events of different services overtake each other. Whatever comes first, each
// service ends where it should.

type handler func(ctx context.Context, tx pgx.Tx, ev postroom.Event, o Order) error

// deliver gives an event to a handler, in a transaction of its own.
func deliver(t *testing.T, pool *pgxpool.Pool, h handler, eventType string, o Order) {
	t.Helper()
	ev := postroom.NewEvent(eventType, o)
	ev.Key = o.ID
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return h(t.Context(), tx, ev, o) })
	if err != nil {
		t.Fatal(err)
	}
}

// column returns what a statement returns, in one line.
func column(t *testing.T, pool *pgxpool.Pool, sql string) string {
	t.Helper()
	rows, _ := pool.Query(t.Context(), sql) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func tables(t *testing.T, sql string) *pgxpool.Pool {
	t.Helper()
	pool := devtest.Pool(t)
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	return pool
}

const wrote = "SELECT type::text FROM postroom.outbox ORDER BY seq"

func TestPaymentWhateverComesFirst(t *testing.T) {
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
			for _, eventType := range strings.Fields(tt.events) {
				h := s.refund
				if eventType == orderPlaced {
					h = s.charge
				}
				deliver(t, pool, h, eventType, Order{ID: "a", Customer: 7, Amount: 40})
			}
			if got := column(t, pool, wrote); got != tt.writes {
				t.Errorf("it wrote %q, want %q", got, tt.writes)
			}
			if got := column(t, pool, "SELECT credit::text FROM account"); got != fmt.Sprint(tt.left) {
				t.Errorf("%s of the credit are left, want %d", got, tt.left)
			}
		})
	}
}

func TestStockWhateverComesFirst(t *testing.T) {
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
			for _, eventType := range strings.Fields(tt.events) {
				h := s.release
				if eventType == paymentCharged {
					h = s.reserve
				}
				deliver(t, pool, h, eventType, Order{ID: "a", SKU: tt.sku, Quantity: tt.quantity})
			}
			if got := column(t, pool, wrote); got != tt.writes {
				t.Errorf("it wrote %q, want %q", got, tt.writes)
			}
			if got := column(t, pool, "SELECT available::text FROM item WHERE sku = 'x'"); got != fmt.Sprint(tt.left) {
				t.Errorf("%s are left, want %d", got, tt.left)
			}
		})
	}
}

func TestOrderWhateverComesFirst(t *testing.T) {
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
			for _, want := range []bool{true, false} { // the second time, it is there
				if isNew, err := s.place(t.Context(), o, time.Hour); err != nil || isNew != want {
					t.Fatalf("place = %t, %v", isNew, err)
				}
			}
			for _, eventType := range strings.Fields(tt.events) {
				h := map[string]handler{stockReserved: s.confirm, orderDeadline: s.expire}[eventType]
				if h == nil {
					h = s.cancel
				}
				deliver(t, pool, h, eventType, o)
			}
			if got, want := column(t, pool, wrote), orderPlaced+" "+orderDeadline+" "+tt.writes; got != want {
				t.Errorf("it wrote %q, want %q", got, want)
			}
			if got := column(t, pool, "SELECT state FROM orders"); got != tt.state {
				t.Errorf("it is %s, want %s", got, tt.state)
			}
		})
	}
}
