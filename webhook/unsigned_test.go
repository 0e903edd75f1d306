package webhook_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
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
			receiver := webhook.NewReceiver(in, webhook.ReceiverConfig{Source: "/acme", Handler: "apply", Scheme: tt.scheme, Patience: patience, Logger: silent})
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

// A setting that names neither a header nor a member of the body is a fault.
func TestHMACNamesHeadersOrPaths(t *testing.T) {
	t.Parallel()
	for name, faulty := range map[string]bool{
		"X-Type": false, "x_type": false, ".type": false, ".event.type": false, "": false,
		"event.type": true, "X Type": true, "X-Type:": true, "Typ\n": true, "Tÿp": true, ".": true, ".event.": true, ".event..type": true,
	} {
		for setting, s := range map[string]webhook.HMAC{
			"Type":      {Secrets: []string{"s"}, Signature: "X-S", ID: ".id", Type: name},
			"ID":        {Secrets: []string{"s"}, Signature: "X-S", ID: name},
			"Signature": {Secrets: []string{"s"}, Signature: name, ID: ".id"},
			"Time":      {Secrets: []string{"s"}, Signature: "X-S", ID: ".id", Time: name, Signed: "{time}.{body}"},
		} {
			want := faulty || setting != "Type" && name == "" || (setting == "Signature" || setting == "Time") && strings.HasPrefix(name, ".")
			_, err := s.Verify(http.Header{}, nil, time.Now())
			if got := errors.Is(err, postroom.ErrUnrecoverable); got != want {
				t.Errorf("%s %q: %v, faulty: %t", setting, name, err, want)
			}
		}
	}
}

// A receiver says that it ignores requests without a type, and that it ignored all of its first
// requests. A receiver that stored a request ignores others silently.
func TestReceiverTellsThatItIgnoresAll(t *testing.T) {
	t.Parallel()
	const other, none = "all requests so far have other types", "it has no type"
	for _, tt := range []struct {
		name   string
		bodies []string
		want   string
	}{
		{"ten other types", slices.Repeat([]string{`{"type":"refunded"}`}, 10), other},
		{"nine other types", slices.Repeat([]string{`{"type":"refunded"}`}, 9), ""},
		{"one was stored", append([]string{`{"type":"paid"}`}, slices.Repeat([]string{`{"type":"refunded"}`}, 20)...), ""},
		{"no type", []string{`{"event":"paid"}`}, none},
	} {
		e := newEndpoint(t, func(c *webhook.ReceiverConfig) { c.Types = []string{"standard.paid"} })
		for i, body := range tt.bodies {
			e.want(signed(t, fmt.Sprint("id", i), body), 200, "")
		}
		for _, line := range []string{other, none} {
			if got, want := strings.Count(e.log.String(), line), strings.Count(tt.want, line); got != want {
				t.Errorf("%s: %d lines with %q, want %d:\n%s", tt.name, got, line, want, e.log)
			}
		}
	}
}
