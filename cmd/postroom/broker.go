package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/natsjs"
)

// broker is the NATS server that a command uses.
type broker struct {
	getenv     func(string) string
	url, creds string
	denied     atomic.Pointer[string] // a permission that this user lacks
}

// How long to wait for a broker: until it says whether it has JetStream, and until it answers
// a request.
const (
	readyPatience  = 3 * time.Second
	brokerPatience = 10 * time.Second
)

func (b *broker) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.url, "nats-url", "", "NATS URL (env POSTROOM_NATS_URL, NATS_URL)")
	cmd.Flags().StringVar(&b.creds, "nats-creds", "", "file with the credentials of a NATS user")
	noFileCompletion(cmd, "nats-url")
}

func (b *broker) connect(more ...nats.Option) (*nats.Conn, error) {
	servers, origin := firstOf(b.getenv, b.url, "--nats-url", "POSTROOM_NATS_URL", "NATS_URL")
	if servers == "" {
		return nil, usagef("which broker? Give --nats-url or set POSTROOM_NATS_URL, for instance nats://localhost:4222")
	}
	for server := range strings.SplitSeq(servers, ",") {
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		// The parser's error is left out, because it contains the URL.
		if u, err := url.Parse(strings.TrimSpace(server)); err != nil || u.Host == "" || misplacedAt(server) {
			return nil, usagef("%s is no NATS URL; write nats://host:4222, several with commas between them", origin)
		}
	}
	options := append(append(natsjs.ConnectOptions(), nats.Name("postroom"), nats.ErrorHandler(b.note)), more...)
	if b.creds != "" {
		options = append(options, nats.UserCredentials(b.creds))
	}
	nc, err := nats.Connect(servers, options...)
	if err != nil {
		return nil, brokerError(origin, err)
	}
	return nc, nil
}

// brokerError adds to the error of a connection what to do. No error of the client contains
// a valid URL.
func brokerError(origin string, err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return fmt.Errorf("connect to the broker (%s): it refuses the user; see --nats-creds: %w", origin, err)
	case errors.Is(err, nats.ErrNoServers):
		return fmt.Errorf("connect to the broker (%s): is it running, and the address right? %w", origin, err)
	}
	return fmt.Errorf("connect to the broker (%s): %w", origin, err)
}

// note keeps the permission that this user lacks. The broker does not answer such a request,
// so that it ends with a timeout. A subject for answers that the user may not read matters
// most.
func (b *broker) note(_ *nats.Conn, _ *nats.Subscription, err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		report(os.Stderr, "postroom: the broker reports an error: %v\n", err)
		return
	}
	text := err.Error()
	if !b.denied.CompareAndSwap(nil, &text) && deniesReplies(text) {
		b.denied.Store(&text)
	}
}

// deniesReplies reports whether a user without this permission gets no answers.
func deniesReplies(denied string) bool { return strings.Contains(denied, "for Subscription to") }

// repliesDenied returns the missing permission because of which this user gets no answers,
// or "".
func (b *broker) repliesDenied() string {
	if denied := b.denied.Load(); denied != nil && deniesReplies(*denied) {
		return *denied
	}
	return ""
}

// permissionHint says what to do about a missing permission.
const permissionHint = "give this NATS user permission to publish to $JS.API.> and to subscribe to _INBOX.>, or name another with --nats-creds"

// explain returns err; or, if err says that no answer came, the permission that this user
// lacks.
func (b *broker) explain(err error) error {
	silent := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrPermissionViolation)
	denied := b.denied.Load()
	if denied == nil || !silent {
		return err
	}
	return fmt.Errorf("the broker does not let this user do that: %s; %s: %w", *denied, permissionHint, err)
}

// checkJetStream returns an error if the broker has no JetStream, or if this user gets no
// answers from it. Otherwise commands would find nothing, or would wait for long.
func (b *broker) checkJetStream(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.AccountInfo(ctx)
	}
	switch {
	case jsremedy.Do(err) != "":
		return fmt.Errorf("ask for JetStream: %w", jsremedy.Explain(err))
	case err != nil && b.repliesDenied() != "":
		return b.explain(err)
	}
	return nil // a user without this permission may still do what the command needs
}
