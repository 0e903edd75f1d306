package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

// BenchmarkHandler measures requests over HTTP of eight clients that insert a row, on a server that
// waits for its disk: in a plain transaction, with a table of keys written by hand, with a
// guard in front, and repeated. The ways take turns of a quarter of a second, so that a
// disturbance of the machine meets all; a figure is the median of the turns.
func BenchmarkHandler(b *testing.B) {
	const clients, turn = 8, 250 * time.Millisecond
	r := newRace(b, clients)
	rates, ratios := make([][]float64, len(r.kinds)), make([][]float64, len(r.kinds))
	for b.Loop() {
		var reference float64
		for i, kind := range r.kinds {
			var done atomic.Int64
			var wg sync.WaitGroup
			errs := make([]error, clients)
			start := time.Now()
			for c := range clients {
				wg.Go(func() {
					for errs[c] == nil && time.Since(start) < turn {
						errs[c] = kind.request()
						done.Add(1)
					}
				})
			}
			wg.Wait()
			if err := errors.Join(errs...); err != nil {
				b.Fatalf("%s: %v", kind.name, err)
			}
			rate := float64(done.Load()) / time.Since(start).Seconds()
			if i == 0 {
				reference = rate
			}
			rates[i], ratios[i] = append(rates[i], rate), append(ratios[i], rate/reference)
		}
	}
	for i, kind := range r.kinds {
		b.ReportMetric(median(rates[i]), kind.name+"/s")
		if i > 0 {
			b.ReportMetric(median(ratios[i]), kind.name+"/plain")
		}
	}
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

// race has the ways that are measured against each other.
type race struct {
	pool  *pgxpool.Pool
	n     atomic.Int64
	kinds []way
}

type way struct {
	name    string
	request func() error
}

const (
	insertPayment = "INSERT INTO payment (amount) VALUES ($1) RETURNING id"
	requestBody   = `{"charge_id": "ch_9ab", "amount": 1000.0, "note": "`
)

func newRace(b *testing.B, clients int32) *race {
	b.Helper()
	server := devtest.OwnPostgres(b, devstack.Config{Durable: true})
	url, err := server.CreateDatabase(b.Context(), "bench", "")
	if err != nil {
		b.Fatal(err)
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		b.Fatal(err)
	}
	cfg.MaxConns = clients
	pool, err := pgxpool.NewWithConfig(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if _, err := schema.Migrate(b.Context(), pool, ""); err != nil {
		b.Fatal(err)
	}
	_, err = pool.Exec(b.Context(), `
		CREATE TABLE payment (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, amount int);
		CREATE TABLE by_hand (key text PRIMARY KEY, hash bytea NOT NULL, status int, body bytea, expires_at timestamptz NOT NULL);
		CREATE INDEX ON by_hand (expires_at)`)
	if err != nil {
		b.Fatal(err)
	}
	r := &race{pool: pool}
	r.enter(b)
	return r
}

// enter sets up the ways, behind one server.
func (r *race) enter(b *testing.B) {
	b.Helper()
	pay := func(w http.ResponseWriter, ctx context.Context, tx pgx.Tx) error {
		var id int64
		if err := tx.QueryRow(ctx, insertPayment, 1000).Scan(&id); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":%d,"status":"paid","note":%q}`, id, strings.Repeat("x", 200))
		return nil
	}
	plain := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_ = pgx.BeginFunc(req.Context(), r.pool, func(tx pgx.Tx) error { return pay(w, req.Context(), tx) })
	})
	byHand := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		err := pgx.BeginFunc(req.Context(), r.pool, func(tx pgx.Tx) error {
			tag, err := tx.Exec(req.Context(), "INSERT INTO by_hand (key, hash, expires_at) VALUES ($1, $2, now() + interval '1 day') ON CONFLICT DO NOTHING",
				req.Header.Get("Idempotency-Key"), []byte("a hash of the request's body"))
			if err != nil || tag.RowsAffected() == 0 {
				return errors.Join(err, errors.New("taken"))
			}
			if err := pay(w, req.Context(), tx); err != nil {
				return err
			}
			_, err = tx.Exec(req.Context(), "UPDATE by_hand SET status = 201, body = $2 WHERE key = $1", req.Header.Get("Idempotency-Key"), []byte(strings.Repeat("x", 230)))
			return err
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	guard := idempotency.New(r.pool, idempotency.Config{Principal: func(*http.Request) (string, error) { return "customer-7", nil }})
	mux := http.NewServeMux()
	mux.Handle("POST /plain", plain)
	mux.Handle("POST /hand", byHand)
	mux.Handle("POST /guard", guard.Handler(idempotency.Route{}, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_ = pay(w, req.Context(), idempotency.Tx(req.Context())) // the answer has the status
	})))
	server := httptest.NewServer(mux)
	b.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	body := requestBody + strings.Repeat("n", 400) + `"}`
	send := func(path string, fresh bool) func() error {
		return func() error {
			n := r.n.Add(1)
			if !fresh {
				n %= 500
			}
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, server.URL+path, strings.NewReader(body))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Idempotency-Key", fmt.Sprintf("8e03978e-40d5-43e8-bc93-%012d-%t", n, fresh))
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusCreated {
				return fmt.Errorf("%d: %s, %w", resp.StatusCode, text, err)
			}
			return nil
		}
	}
	r.kinds = []way{{"plain", send("/plain", true)}, {"hand", send("/hand", true)}, {"guard", send("/guard", true)}, {"replay", replays(send("/guard", false))}}
}

// replays uses every key once before the measurement.
func replays(request func() error) func() error {
	var once sync.Once
	return func() (err error) {
		once.Do(func() {
			for range 500 {
				err = errors.Join(err, request())
			}
		})
		return errors.Join(err, request())
	}
}
