package webhooks

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	_ "embed" // for the SQL statements
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/schema"
)

var (
	//go:embed sql/keep.sql
	keepSQL string
	//go:embed sql/take.sql
	takeSQL string
)

// ByHand returns a handler that receives webhooks as a service would without Postroom: it verifies
// the signature, inserts a row and answers.
func ByHand(pool *pgxpool.Pool, schemaName string) http.Handler {
	keep := schema.In(schemaName, keepSQL)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := verify(r.Header, body); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		var event struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(body, &event); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if _, err := pool.Exec(r.Context(), keep, r.Header.Get("webhook-id"), event.Type, body); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}

// verify checks the time and the signature of a request of Standard Webhooks.
func verify(h http.Header, body []byte) error {
	at := h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return errors.New("its time is wrong")
	}
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = io.WriteString(mac, h.Get("webhook-id")+"."+at+".")
	_, _ = mac.Write(body)
	sent, _ := strings.CutPrefix(h.Get("webhook-signature"), "v1,")
	signature, err := base64.StdEncoding.DecodeString(sent)
	if err != nil || !hmac.Equal(signature, mac.Sum(nil)) {
		return errors.New("its signature is wrong")
	}
	return nil
}

// Keep stores webhooks as jobs for [Work].
func Keep(ctx context.Context, pool *pgxpool.Pool, schemaName string, jobs int, data []byte) error {
	keep := schema.In(schemaName, keepSQL)
	for left := jobs; left > 0; {
		batch := &pgx.Batch{}
		for range min(left, 1000) {
			batch.Queue(keep, fmt.Sprint(left), "bench", data)
			left--
		}
		if err := pool.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("keep webhooks: %w", err)
		}
	}
	return nil
}

// Work runs workers until they have done the given number of jobs. Each job has its own
// transaction.
func Work(ctx context.Context, pool *pgxpool.Pool, schemaName string, jobs int, effect Effect) error {
	take := schema.In(schemaName, takeSQL)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	var done atomic.Int64
	for range Workers {
		all.Go(func() {
			for done.Load() < int64(jobs) && ctx.Err() == nil {
				took := int64(0)
				err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					tag, err := tx.Exec(ctx, take)
					if took = tag.RowsAffected(); err != nil || took == 0 { // there is no job left, because other workers have the last jobs
						return err
					}
					return effect(ctx, tx)
				})
				if err != nil {
					fail(err)
				}
				done.Add(took)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
