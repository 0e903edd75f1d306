package inbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
)

func self() float64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func backends(port string) (sum float64) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range all {
		cmd, _ := os.ReadFile(filepath.Dir(f) + "/cmdline")
		if !strings.Contains(string(cmd), "127.0.0.1(") || !strings.HasPrefix(string(cmd), "postgres: ") || !strings.Contains(string(cmd), "zz") {
			continue
		}
		b, _ := os.ReadFile(f)
		s := string(b)
		s = s[strings.LastIndex(s, ")")+2:]
		fs := strings.Fields(s)
		var u, k float64
		fmt.Sscan(fs[11], &u)
		fmt.Sscan(fs[12], &k)
		sum += (u + k) / 100
	}
	return
}

func TestZZ(t *testing.T) {
	server := devtest.OwnPostgres(t, devstack.Config{Durable: true})
	_ = migrated(t, server.URL())
	cfg, _ := pgxpool.ParseConfig(server.URL())
	cfg.MaxConns, cfg.MinConns = 40, 36
	admin, _ := pgx.Connect(t.Context(), server.URL())
	admin.Exec(t.Context(), "CREATE ROLE zz SUPERUSER LOGIN")
	cfg.ConnConfig.User = "zz"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	decide, _ := os.ReadFile("sql/decide.sql")
	pool.Exec(t.Context(), "CREATE TABLE effect (handler text, event text, n serial)")
	var n atomic.Int64
	digest := make([]byte, 16)
	plain := "INSERT INTO postroom.inbox (handler, dedupe_key, digest) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
	eff := "INSERT INTO effect (handler, event) VALUES ($1, $2)"
	three := func(sql string, args ...any) func(ctx context.Context, key string) error {
		return func(ctx context.Context, key string) error {
			c, err := pool.Acquire(ctx)
			if err != nil {
				return err
			}
			defer c.Release()
			b := &pgx.Batch{}
			b.BeginTx(pgx.TxOptions{})
			b.Queue(sql, append([]any{"h", key, digest}, args...)...)
			br := c.SendBatch(ctx, b)
			br.Exec()
			br.Exec()
			tx := br.Tx()
			br.Close()
			tx.Exec(ctx, eff, "h", key)
			return tx.Commit(ctx)
		}
	}
	variants := map[string]func(ctx context.Context, key string) error{
		"loop": func(ctx context.Context, key string) error {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return err
			}
			tx.Exec(ctx, plain, "h", key, digest)
			tx.Exec(ctx, eff, "h", key)
			return tx.Commit(ctx)
		},
		"loop3 (begin batch, plain sql)": three(plain),
		"ours (begin batch, decide.sql)": three(string(decide), "35000"),
	}
	if os.Getenv("NOCHECK") != "" {
		pool.Exec(t.Context(), `ALTER TABLE postroom.inbox DROP CONSTRAINT inbox_handler_check, DROP CONSTRAINT inbox_dedupe_key_check, DROP CONSTRAINT inbox_digest_check, DROP CONSTRAINT inbox_handler_reserved`)
	}
	for round := range 3 {
		for name, f := range variants {
			pool.Exec(t.Context(), "TRUNCATE postroom.inbox, postroom.held, effect")
			pool.Exec(t.Context(), "CHECKPOINT")
			var wg sync.WaitGroup
			began := time.Now()
			s0, b0 := self(), backends("")
			var done atomic.Int64
			for range 32 {
				wg.Go(func() {
					for done.Load() < 8000 {
						if err := f(t.Context(), fmt.Sprint("/shop 00000000-0000-7000-8000-", n.Add(1))); err != nil {
							t.Error(err)
							return
						}
						done.Add(1)
					}
				})
			}
			wg.Wait()
			d := float64(done.Load())
			fmt.Printf("%d %-40s %8.0f/s client %.1f us, postgres %.1f us\n", round, name, d/time.Since(began).Seconds(), (self()-s0)/d*1e6, (backends("")-b0)/d*1e6)
		}
	}
}
