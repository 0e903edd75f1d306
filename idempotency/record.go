package idempotency

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/idempotency/internal/answer"
	"github.com/postroom/postroom/idempotency/internal/claim"
	"github.com/postroom/postroom/internal/guard"
)

// State is the state of an operation.
type State string

// The states of an operation. Transaction mode stores only complete operations.
const (
	StatePending  State = "pending"  // an attempt claimed the key, and runs or died
	StateFailed   State = "failed"   // an attempt failed, and the next attempt continues
	StateComplete State = "complete" // the operation is done and its answer is kept
)

// Response is a kept answer.
type Response struct {
	Status int
	Header http.Header // set by the handler, or about the body; a removed header has no values
	Body   []byte
}

// Record is what the guard stores for a key.
type Record struct {
	Key

	Fingerprint Fingerprint
	State       State
	Attempts    int
	Point       string // the last phase or call that is done

	CreatedAt, CompletedAt, ExpiresAt time.Time

	Response Response
	Ref      string // the reference from which Route.Render makes the answer, if KeepRef was called
	Dropped  bool   // the answer was too large to be kept

	// Undecoded is set if the Codec returned an error for the answer. Then Response.Body has the
	// stored form. Only [Config.Archive] gets a record with Undecoded.
	Undecoded bool
}

// row is a row of the table, as it was read.
type row struct {
	Record

	fence   int64
	headers []byte
	live    bool // if true, the row has not expired
	leased  bool // an attempt holds the key
	begun   bool // attempts in lease mode have done or begun steps
}

// counts reports whether the row is still valid.
//
//guard:what-is-held-counts 2 false
//guard:what-has-expired-does-not-count true
func (f *row) counts() bool { return f.live || f.leased }

func scanRow(from pgx.CollectableRow) (*row, error) {
	f := new(row)
	var print []byte
	var point, ref *string
	var status *int
	var completed *time.Time
	err := from.Scan(&f.Scope, &f.Principal, &f.Value, &print, &f.State, &f.Attempts, &f.fence, &point,
		&status, &f.headers, &f.Response.Body, &ref, &f.Dropped, &f.CreatedAt, &completed, &f.ExpiresAt, &f.live, &f.leased, &f.begun)
	if err != nil {
		return nil, err
	}
	copy(f.Fingerprint[:], print)
	//guard:a-returned-key-is-hashed-once remove
	f.digested = isDigest(f.Principal) // a name that looks like a digest is never stored
	f.Point, f.Ref = value(point), value(ref)
	f.Response.Status, f.CompletedAt = value(status), value(completed)
	return f, nil
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// record returns the row with its decoded answer.
func (f *row) record(ctx context.Context, codec Codec) (Record, error) {
	rec := f.Record
	if len(f.headers) > 0 {
		var err error
		if rec.Response.Header, err = answer.DecodeHeader(f.headers); err != nil {
			return rec, fmt.Errorf("read headers: %w", err)
		}
	}
	if codec != nil && rec.Response.Body != nil {
		body, err := guard.Apart(0, func() ([]byte, error) { return codec.Decode(ctx, f.Key, rec.Response.Body) })
		if err != nil {
			return rec, fmt.Errorf("decode body: %w", guard.Seal(err))
		}
		rec.Response.Body = body
	}
	return rec, nil
}

// keep returns the columns for an answer.
func keep(ctx context.Context, codec Codec, k Key, resp Response, ref string, dropped bool) (claim.Columns, error) {
	out := claim.Columns{Status: resp.Status, Dropped: dropped}
	switch {
	case ref != "":
		out.Ref, out.Dropped = ref, false
		return out, nil
	case dropped:
		return out, nil
	}
	if len(resp.Header) > 0 {
		text, err := answer.EncodeHeader(resp.Header)
		if err != nil {
			return out, fmt.Errorf("write headers: %w", err)
		}
		out.Headers = string(text)
	}
	out.Body = resp.Body
	if codec != nil && resp.Body != nil {
		body, err := guard.Apart(0, func() ([]byte, error) { return codec.Encode(ctx, k, resp.Body) })
		if err != nil {
			return out, fmt.Errorf("encode body: %w", guard.Seal(err))
		}
		out.Body = body
	}
	return out, nil
}
