package postmill_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postmill"
)

// restartVariable has the URL at which a test restarts a server. Watermill's suite runs a command
// to restart the server. The command is this test binary, which then only requests this URL.
const restartVariable = "POSTMILL_TEST_RESTART"

// askForRestart does the work of that command.
func askForRestart(url string) error {
	resp, err := http.Get(url) //nolint:noctx,gosec // the URL is that of the test
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusNoContent {
		err = fmt.Errorf("restart: %s: %s", resp.Status, text)
	}
	return err
}

// restartCommand returns a command that runs restart in this process.
func restartCommand(t *testing.T, restart func(ctx context.Context) error) []string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := restart(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(server.Close)
	t.Setenv(restartVariable, server.URL)
	program, err := os.Executable()
	must(t, err)
	return []string{program}
}

// This is Watermill's own test of a server that restarts while 10,000 messages are under way. Here
// PostgreSQL and NATS are each killed twice.
func TestReconnect(t *testing.T) {
	if !isLong() {
		t.Skip("it takes a minute: set POSTROOM_SOAK=1")
	}
	db, broker := durable(t, 500), devtest.OwnNATS(t)
	b := newRigOf(t, poolOf(t, db.URL(), manyConns()), broker.URL())
	for name, restart := range map[string]func(ctx context.Context) error{
		"PostgreSQL": func(ctx context.Context) error {
			if err := db.Kill(); err != nil {
				return err
			}
			return db.Restart(ctx)
		},
		"NATS": func(ctx context.Context) error {
			if err := broker.Kill(); err != nil {
				return err
			}
			return broker.Restart(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			features := tests.Features{ConsumerGroups: true, Persistent: true, RestartServiceCommand: restartCommand(t, restart)}
			tests.TestReconnect(t, tests.TestContext{TestID: tests.NewTestID(), Features: features}, func(*testing.T) (message.Publisher, message.Subscriber) {
				return postmill.NewPublisher(shop, postmill.PublisherConfig{Pool: b.pool}),
					b.subscriber(postmill.SubscriberConfig{Group: name, Subscription: atOnce(inbox.Subscription{Workers: 8})})
			})
		})
	}
}
