package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/examples/internal/demotest"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/webhook"
)

// Each endpoint takes a webhook that its provider signed with the secret, once, and nothing
// else.
func TestServe(t *testing.T) {
	db, err := demo.OpenDatabase(t.Context(), demotest.Postgres(t), "webhook", workers+4, tablesSQL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	log := slog.New(slog.DiscardHandler)
	if _, err := endpoints(t.Context(), inbox.New(db.Pool, nil, inbox.Config{Logger: log}), db, "", log); err == nil {
		t.Error("there is no secret, and no error")
	}
	in := inbox.New(db.Pool, nil, inbox.Config{Logger: log})
	mux, err := endpoints(t.Context(), in, db, "whsec_"+base64.StdEncoding.EncodeToString([]byte("a secret")), log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	server := httptest.NewServer(mux)
	defer server.Close()
	call := func(method, path string, h http.Header, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = h
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	body := `{"id":"a","event_id":"a","type":"event_callback","event":{"type":"b"}}`
	for _, secret := range []string{"a secret", "another"} {
		for name, scheme := range schemes(secret) {
			h := http.Header{}
			if err := webhook.Sign(scheme, h, webhook.Message{ID: "a", Type: "b", Time: time.Now()}, []byte(body)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if status, text := call(http.MethodPost, "/webhooks/"+name, h, body); (status == http.StatusOK) != (secret == "a secret") {
					t.Errorf("%s, signed with %q: %d %s", name, secret, status, text)
				}
			}
		}
	}
	const want = `{"github":1,"hmac":1,"shopify":1,"slack":1,"standard":1,"stripe":1}` + "\n"
	last := ""
	devtest.Eventually(t, time.Minute, fmt.Sprintf("%s to be taken", want), func() bool {
		_, last = call(http.MethodGet, "/taken", nil, "")
		return last == want
	})
}

// A secret that was typed wrongly is an error, and not another key. The error does not contain it.
func TestKeyOfASecret(t *testing.T) {
	t.Parallel()
	for secret, want := range map[string]string{"plain": "plain", "whsec_YWJj": "abc", "": ""} {
		if key, err := keyOf(secret); err != nil || key != want {
			t.Errorf("keyOf(%q) = %q, %v, want %q", secret, key, err, want)
		}
	}
	if key, err := keyOf("whsec_YWJj*"); err == nil || key != "" || strings.Contains(err.Error(), "YWJ") {
		t.Errorf("keyOf of a wrong secret = %q, %v", key, err)
	}
}
