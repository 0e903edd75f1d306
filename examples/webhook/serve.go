package main

import (
	"context"
	_ "embed" // the statement
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/webhook"
)

//go:embed sql/taken.sql
var takenSQL string

// keyOf returns the key of a secret. If the secret begins with whsec_, the rest of the secret is
// the key in base64. Otherwise the secret is the key.
func keyOf(secret string) (string, error) {
	rest, found := strings.CutPrefix(secret, "whsec_")
	if !found {
		return secret, nil
	}
	key, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return "", errors.New("WEBHOOK_SECRET is not base64 after whsec_") // without err, which has a part of the secret
	}
	return string(key), nil
}

// schemes returns a scheme for each endpoint. All of them use the same key.
func schemes(key string) map[string]webhook.Scheme {
	return map[string]webhook.Scheme{
		"standard": webhook.Standard(base64.StdEncoding.EncodeToString([]byte(key))),
		"stripe":   webhook.Stripe(key),
		"github":   webhook.GitHub(key),
		"shopify":  webhook.Shopify(key),
		"slack":    webhook.Slack(key),
		"hmac":     webhook.HMAC{Secrets: []string{key}, Signature: "X-Signature", ID: "X-Webhook-Id", Type: "X-Webhook-Type"},
	}
}

// serve receives webhooks at an address until ctx ends. It stores them in a database of its own.
func serve(ctx context.Context, server *devstack.Postgres, address, secret string, log *slog.Logger, progress io.Writer) error {
	db, err := demo.OpenDatabase(ctx, server, "webhook", workers+4, tablesSQL)
	if err != nil {
		return err
	}
	defer db.Close()
	in := inbox.New(db.Pool, nil, inbox.Config{Logger: log})
	mux, err := endpoints(ctx, in, db, secret, log)
	if err != nil {
		return err
	}
	web, err := demo.Listen(address, mux, log)
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "webhooks are taken at %s/webhooks/; stop with Ctrl-C\n", web.URL())
	return postroom.Run(ctx, in, web)
}

// endpoints adds the handler to the inbox. It returns an http.ServeMux with the receivers and GET
// /taken.
func endpoints(ctx context.Context, in *inbox.Inbox, db *demo.Database, secret string, log *slog.Logger) (*http.ServeMux, error) {
	const handler = "webhooks.take"
	key, err := keyOf(secret)
	if err != nil {
		return nil, err
	}
	in.Handle(inbox.Subscription{Name: handler, Workers: workers}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		_, err := tx.Exec(ctx, "INSERT INTO taken (source, webhook_id) VALUES ($1, $2)", strings.TrimPrefix(ev.Source, "/webhooks/"), ev.ID)
		return err
	}))
	mux := http.NewServeMux()
	for name, scheme := range schemes(key) {
		receiver := webhook.NewReceiver(in, webhook.ReceiverConfig{Source: "/webhooks/" + name, Handler: handler, Scheme: scheme, Logger: log})
		if err := receiver.Check(ctx); err != nil {
			return nil, fmt.Errorf("set WEBHOOK_SECRET: %w", err)
		}
		mux.Handle("/webhooks/"+name, receiver)
	}
	mux.HandleFunc("GET /taken", func(w http.ResponseWriter, r *http.Request) {
		taken := make(map[string]int64)
		if err := db.Pool.QueryRow(r.Context(), takenSQL).Scan(&taken); err != nil {
			http.Error(w, "the database is away", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(taken) // the client may be gone
	})
	return mux, nil
}
