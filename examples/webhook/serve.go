package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/webhook"
)

// schemes returns a scheme for each endpoint. The bytes of the secret are the key of all of
// them; if it begins with whsec_, the rest is base64.
func schemes(secret string) map[string]webhook.Scheme {
	key := secret
	if rest, found := strings.CutPrefix(secret, "whsec_"); found {
		decoded, _ := base64.StdEncoding.DecodeString(rest) // no key, which Check reports
		key = string(decoded)
	}
	return map[string]webhook.Scheme{
		"standard": webhook.Standard(base64.StdEncoding.EncodeToString([]byte(key))),
		"stripe":   webhook.Stripe(key),
		"github":   webhook.GitHub(key),
		"shopify":  webhook.Shopify(key),
		"slack":    webhook.Slack(key),
		"hmac":     webhook.HMAC{Secrets: []string{key}, Signature: "X-Signature", ID: "X-Webhook-Id", Type: "X-Webhook-Type"},
	}
}

// serve takes webhooks at an address until ctx ends, on servers of its own.
func serve(ctx context.Context, address, secret string, log *slog.Logger, progress io.Writer) error {
	return demo.With(ctx, devstack.StartPostgres, log, func(server *devstack.Postgres) error {
		db, err := demo.CreateDatabase(ctx, server, "webhook", workers+4)
		if err != nil {
			return err
		}
		defer db.Close()
		if err := db.Migrate(ctx, tablesSQL); err != nil {
			return err
		}
		in := inbox.New(db.Pool, nil, inbox.Config{Logger: log})
		mux, err := endpoints(ctx, in, db, secret, log)
		if err != nil {
			return err
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		fmt.Fprintf(progress, "webhooks are taken at http://%s/webhooks/; stop with Ctrl-C\n", listener.Addr())
		return postroom.Run(ctx, in, webServer{&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, listener})
	})
}

// endpoints registers the handler, and returns the receivers and GET /taken.
func endpoints(ctx context.Context, in *inbox.Inbox, db *demo.Database, secret string, log *slog.Logger) (*http.ServeMux, error) {
	const handler = "webhooks.take"
	in.Handle(inbox.Subscription{Name: handler, Workers: workers}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		_, err := tx.Exec(ctx, "INSERT INTO taken (source, webhook_id) VALUES ($1, $2)", strings.TrimPrefix(ev.Source, "/webhooks/"), ev.ID)
		return err
	}))
	mux := http.NewServeMux()
	for name, scheme := range schemes(secret) {
		receiver := webhook.New(in, webhook.Config{Source: "/webhooks/" + name, Handler: handler, Scheme: scheme, Logger: log})
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

// webServer runs an HTTP server until its context ends.
type webServer struct {
	*http.Server
	net.Listener
}

// Run serves, and then waits for the requests under way.
func (s webServer) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(s.Listener) }() // ends with Shutdown
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	err := s.Shutdown(context.WithoutCancel(ctx))
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
