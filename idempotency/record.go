package idempotency

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/text"
)

// State is how far an operation is.
type State string

// States. Transaction mode knows only complete: before it there is no row.
const (
	StatePending  State = "pending"  // an attempt has claimed it, or died
	StateFailed   State = "failed"   // an attempt gave up; the next goes on
	StateComplete State = "complete" // answered
)

// Response is an answer as it is kept.
type Response struct {
	Status int
	Header http.Header // as the handler set it; what it took away has no values
	Body   []byte
}

// Record is what is kept of a key.
type Record struct {
	Key

	Fingerprint Fingerprint
	State       State
	Attempts    int
	Point       string // the last phase that is done

	CreatedAt, CompletedAt, ExpiresAt time.Time

	Response Response
	Ref      string // what the answer is made of, where it is not kept itself
	Dropped  bool   // the answer was too large to be kept
}

// row is a row of the table, as it was seen.
type row struct {
	Record

	fence   int64
	headers []byte
	live    bool // it has not expired
	leased  bool // an attempt holds it
	begun   bool // attempts of lease mode have done steps of it, or may have
}

// counts reports whether the row is more than a leftover.
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

// record returns the row with its answer as it was given.
func (f *row) record(ctx context.Context, codec Codec) (Record, error) {
	rec := f.Record
	if len(f.headers) > 0 {
		var err error
		if rec.Response.Header, err = readHeaders(f.headers); err != nil {
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

// kept are the columns of an answer.
type kept struct {
	status  int
	headers any // JSON as a string, or nil
	body    []byte
	ref     any // a string, or nil
	dropped bool
}

// keep makes the columns of an answer.
func keep(ctx context.Context, codec Codec, k Key, resp Response, ref string, dropped bool) (kept, error) {
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
	if codec != nil && resp.Body != nil {
		body, err := guard.Apart(0, func() ([]byte, error) { return codec.Encode(ctx, k, resp.Body) })
		if err != nil {
			return out, fmt.Errorf("encode body: %w", guard.Seal(err))
		}
		out.body = body
	}
	return out, nil
}

// rawValue is a header's value that is no text, such as one in Latin-1: JSON would change
// it.
type rawValue struct {
	Bytes []byte `json:"bytes"`
}

// writeHeaders makes JSON of headers.
func writeHeaders(h http.Header) ([]byte, error) {
	out := make(map[string][]any, len(h))
	for name, values := range h {
		out[name] = []any{}
		for _, v := range values {
			if text.Valid(v) {
				out[name] = append(out[name], v)
			} else {
				out[name] = append(out[name], rawValue{[]byte(v)})
			}
		}
	}
	return json.Marshal(out)
}

// readHeaders reads what writeHeaders made.
func readHeaders(text []byte) (http.Header, error) {
	h := make(http.Header)
	if json.Unmarshal(text, &h) == nil {
		return h, nil
	}
	var in map[string][]json.RawMessage
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, err
	}
	for name, values := range in {
		h[name] = nil // of what was read above in part
		for _, v := range values {
			var s string
			if err := json.Unmarshal(v, &s); err != nil {
				var raw rawValue
				if err := json.Unmarshal(v, &raw); err != nil {
					return nil, err
				}
				s = string(raw.Bytes)
			}
			h[name] = append(h[name], s)
		}
	}
	return h, nil
}
