package outbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

// BenchmarkProducer measures a transaction of eight clients with one event in
// it, of 512 bytes, against the same transaction without one, on a server that
// waits for its disk. The ways take turns of a quarter of a second, so that a
// disturbance of the machine meets all; a figure is the median of the turns.
func BenchmarkProducer(b *testing.B) {
	const clients, turn = 8, 250 * time.Millisecond
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
	defer pool.Close()
	if _, err := schema.Migrate(b.Context(), pool, ""); err != nil {
		b.Fatal(err)
	}
	if _, err := pool.Exec(b.Context(), "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, amount int)"); err != nil {
		b.Fatal(err)
	}

	const insertOrder = "INSERT INTO orders (amount) VALUES ($1)"
	body := strings.Repeat("x", 510)
	event := func() postroom.Event {
		ev := postroom.NewEvent("order.placed", body)
		ev.Key = ev.ID
		return ev
	}
	inTx := func(write func(ctx context.Context, tx pgx.Tx) error) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, insertOrder, 7); err != nil {
					return err
				}
				return write(ctx, tx)
			})
		}
	}
	kinds := []struct {
		name string
		run  func(ctx context.Context) error
	}{
		{"without", inTx(func(context.Context, pgx.Tx) error { return nil })},
		{"Write", inTx(func(ctx context.Context, tx pgx.Tx) error { return shop.Write(ctx, tx, event()) })},
		{"Write-of-10", inTx(func(ctx context.Context, tx pgx.Tx) error {
			return shop.Write(ctx, tx, event(), event(), event(), event(), event(), event(), event(), event(), event(), event())
		})},
		{"Queue", func(ctx context.Context) error {
			var batch pgx.Batch
			batch.Queue(insertOrder, 7)
			if err := shop.Queue(&batch, event()); err != nil {
				return err
			}
			return pool.SendBatch(ctx, &batch).Close()
		}},
	}
	rates := make([][]float64, len(kinds))
	ratios := make([][]float64, len(kinds))
	for b.Loop() {
		var reference float64
		for i, kind := range kinds {
			var done atomic.Int64
			var wg sync.WaitGroup
			errs := make([]error, clients)
			start := time.Now()
			for c := range clients {
				wg.Go(func() {
					for errs[c] == nil && time.Since(start) < turn {
						errs[c] = kind.run(b.Context())
						done.Add(1)
					}
				})
			}
			wg.Wait()
			if err := errors.Join(errs...); err != nil {
				b.Fatal(err)
			}
			rate := float64(done.Load()) / time.Since(start).Seconds()
			if i == 0 {
				reference = rate
			}
			rates[i], ratios[i] = append(rates[i], rate), append(ratios[i], rate/reference)
		}
	}
	for i, kind := range kinds {
		b.ReportMetric(median(rates[i]), kind.name+"/s")
		if i > 0 {
			b.ReportMetric(median(ratios[i]), kind.name+"/without")
		}
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
