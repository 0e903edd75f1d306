package webhook_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/webhook"
)

// A captured request is sent again under other types, which its signature does not cover. It takes
// effect once, and makes no dead letters.
func TestCapturedRequestUnderOtherTypes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		scheme webhook.Scheme
		header string
	}{
		"GitHub":             {webhook.IDFromBody(webhook.GitHub("s")), "X-GitHub-Event"},
		"Shopify":            {webhook.IDFromBody(webhook.Shopify("s")), "X-Shopify-Topic"},
		"HMAC":               {webhook.IDFromBody(webhook.HMAC{Secrets: []string{"s"}, Signature: "X-S", ID: "X-Id", Type: "X-Type"}), "X-Type"},
		"HMAC, id is signed": {webhook.HMAC{Secrets: []string{"s"}, Signature: "X-S", ID: ".id", Type: "X-Type"}, "X-Type"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			if _, err := pool.Exec(t.Context(), "CREATE TABLE effect (id text)"); err != nil {
				t.Fatal(err)
			}
			in := inbox.New(pool, nil, inbox.Config{Logger: silent})
			in.Declare(inbox.Subscription{Name: "apply"})
			receiver := webhook.New(in, webhook.Config{Source: "/acme", Handler: "apply", Scheme: tt.scheme, Patience: patience, Logger: silent})
			captured := request(t, tt.scheme, "first", "paid", `{"id":"a"}`)
			for _, kind := range []string{"paid", "refunded", "x", "y", "z"} {
				req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"id":"a"}`))
				req.Header = captured.Header.Clone()
				req.Header.Set(tt.header, kind)
				w := httptest.NewRecorder()
				if receiver.ServeHTTP(w, req); w.Code != http.StatusOK {
					t.Errorf("%s: answered %d %s", kind, w.Code, w.Body)
				}
			}
			if n := count(t, pool, "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL"); n != 0 {
				t.Fatalf("%d dead letters", n)
			}
			applied(t, pool, 1)
		})
	}
}

// A scheme whose type an attacker can change in a captured request says so. For the other schemes,
// no header changes the type.
func TestSchemesSayWhetherTheyLeaveTheTypeUnsigned(t *testing.T) {
	t.Parallel()
	for _, v := range vectors() {
		s := v.make(v.secret)
		original, err := v.verify()
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		changes := false
		for name := range v.header {
			m, err := s.Verify(v.with(name, "other"), []byte(v.body), v.now())
			changes = changes || err == nil && m.Type != original.Type
		}
		if changes != original.UnsignedType {
			t.Errorf("%s: UnsignedType is %t, but a header changes the type: %t", v.name, original.UnsignedType, changes)
		}
	}
}
