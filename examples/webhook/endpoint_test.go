package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/postroomtest/servers"
)

// newEndpoint returns an endpoint on a database of the test's own, and the key that
// it takes.
func newEndpoint(t *testing.T) (*endpoint, []byte, *pgxpool.Pool) {
	t.Helper()
	pool := servers.Postgres(t)
	in := inbox.New(pool, nil, inbox.Config{})
	in.Handle(inbox.Subscription{Name: handlerName, Workers: 1}, postroom.JSON(apply))
	v, err := newVerifier(vectorSecret)
	if err != nil {
		t.Fatal(err)
	}
	return &endpoint{verifier: v, inbox: in, log: slog.New(slog.DiscardHandler)}, v.keys[0], pool
}

// call sends a body, signed with a key, and returns the answer.
func call(ctx context.Context, e *endpoint, key []byte, id, body string) *httptest.ResponseRecorder {
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, source, strings.NewReader(body))
	req.Header.Set(headerID, id)
	req.Header.Set(headerTimestamp, stamp)
	req.Header.Set(headerSignature, sign(key, id, stamp, []byte(body)))
	w := httptest.NewRecorder()
	e.ServeHTTP(w, req)
	return w
}

const (
	captureBody = `{"type":"payment.captured","timestamp":"2026-11-21T10:00:00Z","data":{"payment":"pay_1","amount":100}}`
	changedBody = `{"type":"payment.captured","timestamp":"2026-11-21T10:00:00Z","data":{"payment":"pay_1","amount":101}}`
)

func TestAnswers(t *testing.T) {
	t.Parallel()
	e, key, pool := newEndpoint(t)
	for _, tt := range []struct {
		name, id, body string
		key            []byte
		status         int
		rows, conflict int // of the ledger, and of these conflicts, after it
	}{
		{"forged", "msg_1", captureBody, []byte("guessed"), http.StatusUnauthorized, 0, 0},
		{"too large", "msg_1", captureBody + strings.Repeat(" ", maxBody), key, http.StatusRequestEntityTooLarge, 0, 0},
		{"no JSON", "msg_1", "payment", key, http.StatusBadRequest, 0, 0},
		{"no type", "msg_1", "{}", key, http.StatusBadRequest, 0, 0},
		{"id that is none of an event", "msg#1", captureBody, key, http.StatusBadRequest, 0, 0},
		{"type that nobody handles", "msg_1", `{"type":"invoice.sent"}`, key, http.StatusOK, 0, 0},
		{"stored", "msg_1", captureBody, key, http.StatusOK, 1, 0},
		{"duplicate", "msg_1", captureBody, key, http.StatusOK, 1, 0},
		{"forged under an id that is taken", "msg_1", changedBody, []byte("guessed"), http.StatusUnauthorized, 1, 0},
		{"another body under its id", "msg_1", changedBody, key, http.StatusOK, 2, 1},
		{"and again", "msg_1", changedBody, key, http.StatusOK, 2, 1},
		{"another webhook", "msg_2", captureBody, key, http.StatusOK, 3, 1},
	} {
		if got := call(t.Context(), e, tt.key, tt.id, tt.body); got.Code != tt.status {
			t.Errorf("%s: answer is %d %s, want %d", tt.name, got.Code, got.Body, tt.status)
		}
		var rows, conflicts int
		err := pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM postroom.inbox),
			(SELECT count(*) FROM postroom.held WHERE class = 'conflict' AND dead_at IS NOT NULL)`).Scan(&rows, &conflicts)
		if err != nil {
			t.Fatal(err)
		}
		if rows != tt.rows || conflicts != tt.conflict {
			t.Errorf("%s: %d rows and %d conflicts, want %d and %d", tt.name, rows, conflicts, tt.rows, tt.conflict)
		}
	}
}

// What cannot be stored is to be sent again, and nothing says why it was refused.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	e, key, pool := newEndpoint(t)
	pool.Close()
	got := call(t.Context(), e, key, "msg_1", captureBody)
	if got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "" {
		t.Errorf("answer is %d, Retry-After %q", got.Code, got.Header().Get("Retry-After"))
	}
	if got := call(t.Context(), e, []byte("guessed"), "msg_1", captureBody); got.Code != http.StatusUnauthorized || strings.Contains(got.Body.String(), "signature") {
		t.Errorf("answer is %d %s", got.Code, got.Body)
	}
}
