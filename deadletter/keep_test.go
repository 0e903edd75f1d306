package deadletter_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/deadletter"
)

// An export has the exact bytes that were held, even if they only look like JSON.
func TestExportKeepsBytes(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(1, 1, 1)
	const data, raw = "\"\xff\x9b2J\"", "X-Name: \xe9\r\n"
	n.exec("UPDATE postroom.held SET data = $1, raw_headers = $2", []byte(data), []byte(raw))
	var line bytes.Buffer
	if _, err := n.store.Export(t.Context(), deadletter.Filter{}, &line, deadletter.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Data []byte `json:"data_base64"`
		Raw  []byte `json:"raw_headers_base64"`
	}
	if err := json.Unmarshal(line.Bytes(), &got); err != nil || string(got.Data) != data || string(got.Raw) != raw {
		t.Errorf("%q and %q of %s (%v), want %s", got.Data, got.Raw, line.String(), err, base64.StdEncoding.EncodeToString([]byte(data)))
	}
}

// commits is a database whose commits end in a given way.
type commits struct {
	*pgxpool.Pool

	end func(ctx context.Context, tx pgx.Tx) error
}

func (c *commits) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := c.Pool.Begin(ctx)
	return &committing{tx, c.end}, err
}

type committing struct {
	pgx.Tx

	end func(ctx context.Context, tx pgx.Tx) error
}

func (c *committing) Commit(ctx context.Context) error { return c.end(ctx, c.Tx) }

// If the outcome of a purge is unknown, its error says so. The text that it wrote may be the only
// copy.
func TestPurgeOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(4, 1, 1)
	if _, err := n.store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, n.by); err != nil {
		t.Fatal(err)
	}
	refusal := &pgconn.PgError{Code: "40001"}
	shutdown := &pgconn.PgError{Code: "57P01"}
	tests := []struct {
		name    string
		end     func(ctx context.Context, tx pgx.Tx) error
		unknown bool
		left    int64
	}{
		{"the server refuses it", func(context.Context, pgx.Tx) error { return refusal }, false, 4},
		{"the connection is lost before it", func(context.Context, pgx.Tx) error { return io.ErrUnexpectedEOF }, true, 4},
		{"the server shuts down", func(context.Context, pgx.Tx) error { return shutdown }, true, 4},
		{"the answer to it is lost", func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(tx.Commit(ctx), io.ErrUnexpectedEOF)
		}, true, 0},
	}
	for _, tt := range tests {
		store := deadletter.New(&commits{n.pool, tt.end}, deadletter.Config{})
		var w strings.Builder
		_, err := store.Purge(t.Context(), &w, deadletter.PurgeOptions{Before: time.Now().Add(time.Hour)}, n.by)
		if err == nil || errors.Is(err, deadletter.ErrUnknownOutcome) != tt.unknown {
			t.Errorf("%s: %v, want ErrUnsure: %v", tt.name, err, tt.unknown)
		}
		if lines := strings.Count(w.String(), "\n"); lines != 4 {
			t.Errorf("%s: %d lines", tt.name, lines)
		}
		n.want(tt.name+": in the archive", tt.left, "SELECT count(*) FROM postroom.archive")
	}
	var w strings.Builder
	if _, err := n.store.Purge(t.Context(), &w, deadletter.PurgeOptions{Before: time.Now().Add(time.Hour)}, n.by); !errors.Is(err, deadletter.ErrNoMatch) || errors.Is(err, deadletter.ErrUnknownOutcome) {
		t.Errorf("a purge of nothing = %v", err)
	}
}

// The history shows who discarded an event and why, even if many events were discarded together.
func TestShowWhoDiscardedMany(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(3, 1, 1)
	if _, err := n.store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{Limit: 2}, n.by); err != nil {
		t.Fatal(err)
	}
	if _, err := n.store.Discard(t.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, n.by); err != nil { // the last event, by itself
		t.Fatal(err)
	}
	for _, id := range []int64{1, 2, 3} {
		w, err := n.store.Get(t.Context(), id)
		if err != nil || len(w.History) != 1 || w.History[0].Action != "discard" || w.History[0].Actor != n.by.Actor || w.History[0].Reason != n.by.Reason {
			t.Errorf("event %d: %+v, %v", id, w.History, err)
		}
	}
}
