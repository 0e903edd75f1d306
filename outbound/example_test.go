package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/outbound"
)

type order struct {
	ID     string
	Amount int
}

// payments is a client of a vendor who recognises keys.
type payments struct {
	api  *outbound.Client
	base string
}

// Charge charges an amount, once for each key.
func (p *payments) Charge(ctx context.Context, key string, o order) (string, error) {
	form := url.Values{"amount": {fmt.Sprint(o.Amount)}, "order": {o.ID}}.Encode()
	req, err := http.NewRequestWithContext(outbound.WithKey(ctx, key), http.MethodPost, p.base+"/v1/charges", strings.NewReader(form))
	if err != nil {
		return "", postroom.NotApplied(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	charge, err := p.api.Fetch(req)
	return string(charge), err
}

// A step of an event's handler calls a vendor with the step's key. The error of a call says whether
// the vendor may have acted. If it certainly did nothing, the step begins anew. If it may have acted,
// the step calls again with the same key.
func Example() {
	var (
		pool *pgxpool.Pool
		nc   *nats.Conn
	)
	vendor := &payments{base: "https://api.vendor.example", api: outbound.NewClient(outbound.Config{
		Protocol: outbound.Stripe(),
		Attempts: 2, // the inbox tries events again on its own schedule
	})}
	in := inbox.New(pool, nc, inbox.Config{})
	in.HandleExternal(inbox.Subscription{
		Name: "billing.charge", Stream: "SHOP", Types: []string{"order.placed"}, VendorWindow: 24 * time.Hour,
	}, inbox.External(func(ctx context.Context, attempt *inbox.Attempt, o order) error {
		_, err := inbox.Step(ctx, attempt, "charge", func(ctx context.Context, key string) (string, error) {
			return vendor.Charge(ctx, key, o)
		})
		return outbound.ForHandler(err)
	}))
}

// A vendor that fails for a moment gets the same key each time, and charges once.
func ExampleClient_Fetch() {
	charges := make(map[string]int)
	attempts := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempts++
		charges[r.Header.Get("Idempotency-Key")]++
		if attempts < 3 {
			w.WriteHeader(http.StatusServiceUnavailable) // after it has charged
			return
		}
		fmt.Fprint(w, "ch_1")
	}))
	defer server.Close()
	vendor := &payments{api: outbound.NewClient(outbound.Config{Logger: quiet}), base: server.URL}

	charge, err := vendor.Charge(context.Background(), "order-7", order{ID: "7", Amount: 4200})
	fmt.Println(charge, err, attempts, len(charges))
	// Output: ch_1 <nil> 3 1
}

// An error has a text, and facts that a program can use.
func ExampleError() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusPaymentRequired)
		fmt.Fprint(w, `{"code":"card_declined"}`)
	}))
	defer server.Close()
	vendor := &payments{api: outbound.NewClient(outbound.Config{}), base: server.URL}

	_, err := vendor.Charge(context.Background(), "order-8", order{ID: "8", Amount: 4200})
	var failed *outbound.Error
	if errors.As(err, &failed) && failed.Last != nil {
		fmt.Println(failed.Last.Status, string(failed.Last.Body))
	}
	fmt.Println(failed.Class, failed.Attempts, errors.Is(err, postroom.ErrNotApplied))
	// Output:
	// 402 {"code":"card_declined"}
	// invalid 1 true
}
