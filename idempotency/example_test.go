package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/outbound"
)

// postOffice sends parcels. It accepts no keys, but can be asked about a reference.
type postOffice struct {
	api  *outbound.Client
	base string
}

// Send sends a parcel, and returns its number.
func (p *postOffice) Send(ctx context.Context, reference, to string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.base+"/parcels?reference="+reference, strings.NewReader(to))
	if err != nil {
		return "", postroom.NotApplied(err)
	}
	number, err := p.api.Fetch(req) // its error says whether the vendor may have acted
	return string(number), err
}

// Find returns the number of the parcel with a reference, and whether there is one.
func (p *postOffice) Find(ctx context.Context, reference string) (string, bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+"/parcels?reference="+reference, nil)
	if err != nil {
		return "", false, err
	}
	number, err := p.api.Fetch(req)
	var failed *outbound.Error
	if errors.As(err, &failed) && failed.Last != nil && failed.Last.Status == http.StatusNotFound {
		return "", false, nil
	}
	return string(number), err == nil, err
}

// A request that may be repeated calls a vendor that accepts no keys. If the process ends during
// the call, the next attempt asks the vendor, and does not send a second parcel.
func ExampleCall() {
	var pool *pgxpool.Pool
	guard := idempotency.New(pool, idempotency.Config{Principal: customer})
	post := &postOffice{base: "https://post.example", api: outbound.NewClient(outbound.Config{Protocol: outbound.NoKeys()})}

	ship := func(w http.ResponseWriter, r *http.Request) {
		order := r.PathValue("order")
		number, err := idempotency.Call(r.Context(), "parcel", func(ctx context.Context, key string) (string, error) {
			return post.Send(ctx, key, order)
		}, postroom.Lookup(post.Find))
		if err != nil {
			http.Error(w, "the parcel could not be sent yet", http.StatusServiceUnavailable) // this answer is not kept, so the same key can be used again
			return
		}
		_, err = idempotency.Phase(r.Context(), "note", func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
			_, err := tx.Exec(ctx, "UPDATE orders SET parcel = $2 WHERE id = $1", order, number)
			return struct{}{}, err
		})
		if err != nil {
			http.Error(w, "the parcel could not be noted yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, number)
	}
	route := idempotency.Route{Mode: idempotency.LeaseMode, Lease: time.Minute}
	http.Handle("POST /orders/{order}/parcel", guard.Handler(route, http.HandlerFunc(ship)))
}
