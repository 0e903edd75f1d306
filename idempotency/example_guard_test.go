package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
)

// A request that is repeated with its key is answered as the first time, and has one
// effect. The handler writes in the transaction that keeps its answer.
func ExampleGuard_Handler() {
	servers := devtest.ForExample() // a migrated database
	defer servers.Close()
	ctx := context.Background()
	servers.Exec(ctx, "CREATE TABLE shop_order (id serial, item text)")

	guard := idempotency.New(servers.Pool, idempotency.Config{Principal: idempotency.Anonymous})
	mux := http.NewServeMux()
	mux.Handle("POST /orders", guard.Handler(idempotency.Route{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		item, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		var id int
		tx := idempotency.Tx(r.Context())
		if err := tx.QueryRow(r.Context(), "INSERT INTO shop_order (item) VALUES ($1) RETURNING id", string(item)).Scan(&id); err != nil {
			http.Error(w, "the order cannot be stored", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "order %d: %s", id, item)
	})))
	fmt.Println("check:", guard.Check(ctx))

	for _, item := range []string{"a chair", "a chair", "a table"} {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(item))
		r.Header.Set("Idempotency-Key", "7f3c")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code == http.StatusUnprocessableEntity { // the key belongs to another request
			fmt.Println(w.Code)
			continue
		}
		fmt.Println(w.Code, w.Body, "replayed:", w.Header().Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// check: <nil>
	// 201 order 1: a chair replayed: false
	// 201 order 1: a chair replayed: true
	// 422
}

// A call without HTTP is done once, too. A second call returns the result of the first call.
// Another input with the same key is refused.
func ExampleDo() {
	servers := devtest.ForExample()
	defer servers.Close()
	ctx := context.Background()
	guard := idempotency.New(servers.Pool, idempotency.Config{})

	invoice := func(amount int) (int, error) {
		op := idempotency.Operation{Scope: "invoice", Key: "2026-11/acme", Input: amount}
		number, _, err := idempotency.Do(ctx, guard, op, func(_ context.Context, _ pgx.Tx) (int, error) {
			fmt.Println("an invoice is written")
			return 4711, nil
		})
		return number, err
	}
	fmt.Println(invoice(100))
	fmt.Println(invoice(100))
	_, err := invoice(200)
	fmt.Println("mismatch:", errors.Is(err, idempotency.ErrMismatch))
	// Output:
	// an invoice is written
	// 4711 <nil>
	// 4711 <nil>
	// mismatch: true
}
