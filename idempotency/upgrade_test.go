package idempotency_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/idempotency"
)

// before changes all rows to rows of the version that rounded numbers to doubles. If nothing was
// rounded, the fingerprints of that version differ from those of today only in the byte that says
// so.
func (r *rig) before() {
	r.exec("UPDATE postroom.idempotency SET fingerprint = set_byte(fingerprint, 0, get_byte(fingerprint, 0) & 127)")
}

// A request that was under way during an upgrade is neither refused nor mistaken for
// another. If the row does not show which it is, the client is told to send the request again.
func TestRowsOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{Key: idempotency.KeyFormat{Strict: true}}, r.refund)
	for _, tt := range []struct {
		name, first, then string
		status            int // of the second request
	}{
		{"the same", `{"amount":1000.10,"id":"a"}`, `{"id":"a","amount":1000.1}`, 201},
		{"another", `{"amount":1000.10}`, `{"amount":1000.11}`, 422},
		{"a long id", `{"id":1234567890123456789}`, ` {"id":1234567890123456789}`, 201},
		{"another long id", `{"id":1234567890123456789}`, `{"id":1234567890123456788}`, 422},
		{"rounded once", `{"amount":9007199254740.993}`, `{"amount":9007199254740.993}`, 503},
		{"rounded to another", `{"amount":9007199254740.993}`, `{"amount":9007199254740.992}`, 503},
		{"no double", `{"amount":1e999}`, `{"amount":1e999}`, 503},
		{"no JSON", `{"amount":1e`, `{"amount":1e`, 201},
	} {
		if w := r.send(path, sending{key: `"` + tt.name + `"`, body: tt.first}); w.Code != 201 {
			t.Fatalf("%s: %d %s", tt.name, w.Code, w.Body)
		}
		r.before()
		calls := r.calls.Load()
		if w := r.send(path, sending{key: `"` + tt.name + `"`, body: tt.then}); w.Code != tt.status || r.calls.Load() != calls {
			t.Errorf("%s: %d %s after %d calls, want %d after none", tt.name, w.Code, w.Body, r.calls.Load()-calls, tt.status)
		}
	}
}

// Inputs of Do are compared in the same way.
func TestInputsOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	do := func(key string, input any) (idempotency.Outcome, error) {
		op := idempotency.Operation{Scope: "pay", Key: key, Input: input}
		_, outcome, err := idempotency.Do(r.Context(), r.guard, op, func(context.Context, pgx.Tx) (int, error) { return 1, nil })
		return outcome, err
	}
	for key, input := range map[string]any{"few": 12.5, "many": 0.30000000000000004} {
		if _, err := do(key, input); err != nil {
			t.Fatal(err)
		}
	}
	r.before()
	if outcome, err := do("few", 12.5); err != nil || outcome != idempotency.Replayed {
		t.Errorf("%v, %v, want the stored answer", outcome, err)
	}
	if _, err := do("few", 12.6); !errors.Is(err, idempotency.ErrMismatch) {
		t.Errorf("%v, want a mismatch", err)
	}
	if _, err := do("many", 0.30000000000000004); !errors.Is(err, idempotency.ErrUnavailable) {
		t.Errorf("%v, want an error that asks the client to retry", err)
	}
}
