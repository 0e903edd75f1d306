package main

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
)

// Commands work through a pooler that keeps no prepared statements, without a setting in the URL,
// while other clients use its few connections.
func TestCommandsThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	r := withPublished(t, 30, 0)
	url := devtest.PoolerURL(t, databaseURL(r.pool), devstack.PoolerConfig{Size: 3})
	r.env["POSTROOM_DATABASE_URL"], r.env["POSTROOM_NATS_URL"] = url, r.nc.ConnectedUrl()
	defer workBeside(t, url)()
	for range 3 { // if a command leaves something on a connection, a later command finds it
		for line, want := range map[string]int{
			"migrate status":            exitOK,
			"migrate up":                exitOK,
			"status":                    exitOK,
			"tables":                    exitOK,
			"handlers":                  exitOK,
			"keys":                      exitOK,
			"audit":                     exitOK,
			"events show e30":           exitOK,
			"dead groups":               exitOK,
			"dead list":                 exitOK,
			"reconcile":                 exitOK,
			"stream check":              exitOK,
			"republish list":            exitOK,
			"republish --all --dry-run": exitOK,
			"republish --key k1 --reason again --yes": exitOK,
			"republish cancel 1":                      exitFailed, // the republish is done
			"doctor":                                  exitTodo,   // messages of this stream can be removed
		} {
			got := postroom(t, r.env, strings.Fields(line)...)
			if got.code != want || strings.Contains(got.errors, "prepared statement") {
				t.Errorf("%s: exit status %d, want %d: %s%s", line, got.code, want, got.out, got.errors)
			}
		}
	}
}

// The commands that make webhooks due work through such a pooler, too.
func TestWebhookCommandsThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	env := environment{"POSTROOM_DATABASE_URL": devtest.PoolerURL(t, databaseURL(s.pool), devstack.PoolerConfig{Size: 3})}
	postroom(t, env, "webhook", "add", "https://example.com", "--id", "e").want(t, exitOK)
	for range 3 {
		postroom(t, env, "webhook", "test", "e").want(t, exitOK)
		postroom(t, env, "webhook", "resend", "e", "--since", "1h", "--type", "order.placed", "--no-accounts").want(t, exitOK)
	}
}

// workBeside has clients of a pooler send statements, until the returned function is
// called.
func workBeside(t *testing.T, url string) (stop func()) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url+"&default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	for range 4 {
		busy.Go(func() {
			for ctx.Err() == nil {
				if _, err := pool.Exec(ctx, "SELECT $1::int, pg_sleep(0.001)", 1); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	return func() { cancel(); busy.Wait(); pool.Close() }
}
