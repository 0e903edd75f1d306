package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/internal/session"
)

// store is the table of keys, and the connections on which it is reached.
type store struct {
	pool     *pgxpool.Pool
	sessions *session.Pool
	schema   string
	sql      statements
	cfg      *Config
}

// advise returns an error of a statement of ours with what to do about it.
func (s *store) advise(err error) error {
	return remedy.Explain(err, remedy.Use{Grant: "idempotency", Schema: s.schema, DB: s.pool})
}

// bounded returns a context for a use of the database: it does not end with the caller's,
// which would break the connection off.
func (s *store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StoreTimeout)
}

// look returns the row of a key, or nil where there is none, without a transaction.
func (s *store) look(ctx context.Context, k Key) (*row, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.lookIn(ctx, s.pool, k)
}

func (s *store) lookIn(ctx context.Context, db querier, k Key) (*row, error) {
	rows, _ := db.Query(ctx, s.sql.Look, k.Scope, k.Principal, k.Value) // collecting reports the error
	f, err := pgx.CollectOneRow(rows, scanRow)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return f, err
}

// querier is a pool, or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// touch keeps an answer that was just repeated for longer.
func (s *store) touch(ctx context.Context, op *operation) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if _, err := s.pool.Exec(ctx, s.sql.Touch, op.key.Scope, op.key.Principal, op.key.Value, op.rules.TTL); err != nil {
		s.cfg.Logger.WarnContext(ctx, "the time of an idempotency key was not extended", "error", err)
	}
}

// record returns the row with its answer as it was given.
func (s *store) record(ctx context.Context, f *row) (Record, error) {
	rec := f.Record
	if len(f.headers) > 0 {
		var err error
		if rec.Response.Header, err = readHeaders(f.headers); err != nil {
			return rec, fmt.Errorf("read headers: %w", err)
		}
	}
	if s.cfg.Codec != nil && rec.Response.Body != nil {
		body, err := guard.Apart(0, func() ([]byte, error) { return s.cfg.Codec.Decode(ctx, f.Key, rec.Response.Body) })
		if err != nil {
			return rec, fmt.Errorf("decode body: %w", guard.Seal(err))
		}
		rec.Response.Body = body
	}
	return rec, nil
}

// keep makes the columns of an answer.
func (s *store) keep(ctx context.Context, k Key, resp Response, ref string, dropped bool) (kept, error) {
	out := kept{status: resp.Status, dropped: dropped}
	switch {
	case ref != "":
		out.ref, out.dropped = ref, false
		return out, nil
	case dropped:
		return out, nil
	}
	if len(resp.Header) > 0 {
		text, err := writeHeaders(resp.Header)
		if err != nil {
			return out, fmt.Errorf("write headers: %w", err)
		}
		out.headers = string(text)
	}
	out.body = resp.Body
	if s.cfg.Codec != nil && resp.Body != nil {
		body, err := guard.Apart(0, func() ([]byte, error) { return s.cfg.Codec.Encode(ctx, k, resp.Body) })
		if err != nil {
			return out, fmt.Errorf("encode body: %w", guard.Seal(err))
		}
		out.body = body
	}
	return out, nil
}

// stored returns a key as the database has it: a principal that is a secret, is long or is
// no text is a digest there; and so is one that looks like a digest, which would else be
// the same as the principal that it is the digest of.
func (s *store) stored(k Key) Key {
	if s.cfg.HashPrincipal || len(k.Principal) > maxPartLen || !isText(k.Principal) || isDigest(k.Principal) {
		sum := sha256.Sum256([]byte(k.Principal))
		k.Principal = hex.EncodeToString(sum[:])
	}
	return k
}

// isDigest reports whether s could be the digest of a principal.
func isDigest(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}
