package webhooktest_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postroomtest/webhooktest"
	"github.com/postroom/postroom/webhook"
)

func TestMain(m *testing.M) { devtest.Main(m) }

const (
	newSecret = "whsec_bmV3IHNlY3JldCBvZiB0ZXN0cw=="
	oldSecret = "whsec_b2xkIHNlY3JldCBvZiB0ZXN0cw=="
)

func hmac(secrets ...string) webhook.Scheme {
	return webhook.HMAC{Secrets: secrets, Signature: "X-Signature", ID: "X-Id", Type: "X-Type", Time: "X-Time", Signed: "{id}.{time}.{body}"}
}

func signer(s webhook.Scheme) webhooktest.Sign {
	return func(h http.Header, id string, at time.Time, body []byte) error {
		return webhook.Sign(s, h, webhook.Message{ID: id, Type: "test", Time: at}, body)
	}
}

// A receiver keeps all rules, with each scheme.
func TestReceiverConforms(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY)"); err != nil {
		t.Fatal(err)
	}
	in := inbox.New(pool, nil, inbox.Config{Logger: slog.New(slog.DiscardHandler)})
	in.Handle(inbox.Subscription{Name: "apply", Workers: 1}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect DEFAULT VALUES")
		return err
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for _, tt := range []struct {
		name     string
		scheme   func(secrets ...string) webhook.Scheme
		unsigned []string
		untimed  bool
	}{
		{"standard", webhook.Standard, nil, false},
		{"stripe", webhook.Stripe, nil, false},
		{"github", webhook.GitHub, []string{"X-GitHub-Delivery", "X-GitHub-Event"}, true},
		{"shopify", webhook.Shopify, []string{"X-Shopify-Webhook-Id", "X-Shopify-Topic"}, true},
		{"slack", webhook.Slack, nil, false},
		{"hmac", hmac, []string{"X-Type"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(webhook.NewReceiver(in, webhook.ReceiverConfig{
				Source: "/" + tt.name, Handler: "apply", Scheme: tt.scheme(newSecret, oldSecret), MaxBody: 10_000, Patience: time.Minute,
				Logger: slog.New(slog.DiscardHandler),
			}))
			defer server.Close()
			webhooktest.Test(t, webhooktest.Endpoint{
				URL: server.URL, Sign: signer(tt.scheme(newSecret)), SignOld: signer(tt.scheme(oldSecret)), Unsigned: tt.unsigned, Untimed: tt.untimed, MaxBody: 10_000,
				Body: func(id string) string { return `{"id":"` + id + `","event_id":"` + id + `"}` },
				Effects: func() (n int, err error) {
					return n, pool.QueryRow(t.Context(), "SELECT count(*) FROM effect").Scan(&n)
				},
				Patience: 5 * time.Minute,
			})
		})
	}
}

const faultyVar = "POSTROOM_TEST_FAULTY"

// TestFaulty is run by TestFaultsAreFound, in its own process, and fails there.
func TestFaulty(t *testing.T) {
	if os.Getenv(faultyVar) == "" {
		t.Skip("it is a part of TestFaultsAreFound")
	}
	var effects, broken atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			broken.Add(1)
			return
		}
		fmt.Fprint(w, effects.Add(1))
	}))
	defer func() {
		server.Close()
		t.Logf("requests that were not completed: %d", broken.Load())
	}()
	s := signer(webhook.Standard(newSecret))
	webhooktest.Test(t, webhooktest.Endpoint{
		URL: server.URL, Sign: s, SignOld: s, Body: func(string) string { return "{}" },
		Effects: func() (int, error) { return int(effects.Load()), nil },
	})
}

// An endpoint that verifies nothing and recognises nothing fails every part of the test that it can
// fail.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFaulty$", "-test.v")
	cmd.Env = append(os.Environ(), faultyVar+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("the process did not fail")
	}
	for _, want := range []string{
		"FAIL: TestFaulty/a_request_has_one_effect", "4 effects, want 1", "FAIL: TestFaulty/of_many_requests_at_once", "FAIL: TestFaulty/a_change_of_any_byte",
		"FAIL: TestFaulty/a_request_of_another_time", "PASS: TestFaulty/a_request_signed_with_either_secret", "FAIL: TestFaulty/a_request_without_a_signature",
		"PASS: TestFaulty/a_header_that_is_sent_twice", "FAIL: TestFaulty/a_huge_body", "FAIL: TestFaulty/another_method", "want 401", "want 413", "want 405",
		"requests that were not completed: 50",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}
