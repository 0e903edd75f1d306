package measure

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // for the SQL statements
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/schema"
)

// repeated is the number of keys that the repeated requests share.
const repeated = 1000

var (
	//go:embed sql/keys.sql
	keysSQL string
	//go:embed sql/keys_empty.sql
	keysEmptySQL string
	//go:embed sql/entry.sql
	entrySQL string
	//go:embed sql/key_claim.sql
	keyClaimSQL string
	//go:embed sql/key_keep.sql
	keyKeepSQL string
)

// An endpoint is a service that clients call over HTTP.
type endpoint struct {
	*producer

	entry       string
	claim, keep string // statements for the table of keys that is written by hand
	schema      string
	log         *slog.Logger

	client *http.Client
	url    string
}

// A change is what a request changes in the database.
type change func(e *endpoint, ctx context.Context, tx pgx.Tx) error

// httpTrial measures how many requests a handler, the result of handle, answers per second.
func httpTrial(replays bool, handle func(e *endpoint, do change) http.Handler, do change) trial {
	return func(ctx context.Context, b *bench) (_ sample, err error) {
		e, err := openEndpoint(ctx, b)
		if err != nil {
			return sample{}, err
		}
		stop, err := e.serve(handle(e, do))
		if err != nil {
			return sample{}, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		if !replays {
			return throughput(ctx, b, func(ctx context.Context) error { return e.request(ctx, e.serial.Add(1)) })
		}
		for n := range int64(repeated) {
			if err := e.request(ctx, n); err != nil {
				return sample{}, err
			}
		}
		return throughput(ctx, b, func(ctx context.Context) error { return e.request(ctx, e.serial.Add(1)%repeated) })
	}
}

// openEndpoint returns an endpoint with empty tables.
func openEndpoint(ctx context.Context, b *bench) (*endpoint, error) {
	name, created, err := b.createLog(ctx, "requests")
	if err != nil {
		return nil, err
	}
	if created {
		if _, err := b.pool.Exec(ctx, schema.In(name, keysSQL)); err != nil {
			return nil, fmt.Errorf("create tables: %w", err)
		}
	}
	if _, err := b.pool.Exec(ctx, schema.In(name, keysEmptySQL)); err != nil {
		return nil, fmt.Errorf("empty tables: %w", err)
	}
	return &endpoint{
		producer: producerIn(b, name), schema: name, log: warnings(b.cfg.Logger),
		entry: schema.In(name, entrySQL), claim: schema.In(name, keyClaimSQL), keep: schema.In(name, keyKeepSQL),
	}, b.rest(ctx)
}

// serve answers requests on the loopback interface until its result stop is called.
func (e *endpoint) serve(handler http.Handler) (stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	e.client, e.url = &http.Client{Transport: transport}, "http://"+listener.Addr().String()
	mux := http.NewServeMux()
	mux.Handle("POST /orders", handler)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return func() error {
		transport.CloseIdleConnections()
		err := server.Close()
		if serving := <-ended; !errors.Is(serving, http.ErrServerClosed) {
			err = errors.Join(err, serving)
		}
		return err
	}, nil
}

// request sends a request with the given key and reads the answer.
func (e *endpoint) request(ctx context.Context, key int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/orders", bytes.NewReader(e.data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", fmt.Sprintf("8e03978e-40d5-43e8-bc93-%012d", key))
	resp, err := e.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusCreated {
		err = fmt.Errorf("the answer is %d: %.200s", resp.StatusCode, text)
	}
	return err
}

// place inserts an order.
func (e *endpoint) place(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, e.order, "customer", 100)
	return err
}

// pay inserts an order and a ledger entry, and writes an event.
func (e *endpoint) pay(ctx context.Context, tx pgx.Tx) error {
	if err := e.place(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, e.entry, "customer", 100); err != nil {
		return err
	}
	return e.outbox.Write(ctx, tx, e.event())
}

// answered is the body of the answer to each request.
var answered = []byte(`{"status": "placed", "amount": 100}`)

// answer sends the answer to a request whose handler returned err.
func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(answered) // if the answer does not arrive, the client reports it
}

// unguarded handles each request in its own transaction.
func (e *endpoint) unguarded(do change) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			answer(w, err)
			return
		}
		answer(w, pgx.BeginFunc(r.Context(), e.pool, func(tx pgx.Tx) error { return do(e, r.Context(), tx) }))
	})
}

// byHand handles requests with a table of keys, as a service would do without Postroom: it inserts
// the key before the change, and stores the answer after the change.
func (e *endpoint) byHand(do change) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			answer(w, err)
			return
		}
		sum, key := sha256.Sum256(text), r.Header.Get("Idempotency-Key")
		answer(w, pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, e.claim, key, sum[:])
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				return errors.New("the key is taken")
			}
			if err := do(e, ctx, tx); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, e.keep, key, http.StatusCreated, answered)
			return err
		}))
	})
}

// guarded handles requests behind a guard of package idempotency, in transaction mode.
func (e *endpoint) guarded(do change) http.Handler {
	guard := idempotency.New(e.pool, idempotency.Config{
		Schema: e.schema, Principal: func(*http.Request) (string, error) { return "customer", nil },
	})
	return guard.Handler(idempotency.Route{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, do(e, r.Context(), idempotency.Tx(r.Context())))
	}))
}
