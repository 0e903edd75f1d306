// Package broker connects to the broker that the command line or the environment names.
package broker

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

	"github.com/postroom/postroom/cmd/postroom/internal/address"
	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/natsjs"
)

// Target is the NATS server that a command uses.
type Target struct {
	getenv     func(string) string
	url, creds string
	denied     atomic.Pointer[string] // the broker's error about a permission that this user lacks
}

// readyPatience is how long CheckJetStream waits for the broker's answer.
const readyPatience = 3 * time.Second

// New returns a Target for the broker that the environment names. Flags can name another broker.
func New(getenv func(string) string) *Target { return &Target{getenv: getenv} }

// IsGiven reports whether a flag or the environment names a broker.
func (b *Target) IsGiven() bool {
	url, _ := address.First(b.getenv, b.url, "--nats-url", "POSTROOM_NATS_URL", "NATS_URL")
	return url != ""
}

// AddFlags adds the flags that name the broker and its user.
func (b *Target) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.url, "nats-url", "", "NATS URL (env POSTROOM_NATS_URL, NATS_URL)")
	cmd.Flags().StringVar(&b.creds, "nats-creds", "", "file with the credentials of a NATS user")
	command.NoFileCompletion(cmd, "nats-url")
	argument.Conditions(cmd, "nats-url", "nats-creds")
}

// Connect connects to the broker.
func (b *Target) Connect(more ...nats.Option) (*nats.Conn, error) {
	servers, origin := address.First(b.getenv, b.url, "--nats-url", "POSTROOM_NATS_URL", "NATS_URL")
	if servers == "" {
		return nil, exit.Usagef("which broker? Give --nats-url or set POSTROOM_NATS_URL, for instance nats://localhost:4222")
	}
	for server := range strings.SplitSeq(servers, ",") {
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		// The error does not contain the parser's error, because the parser's error contains the
		// URL.
		if u, err := url.Parse(strings.TrimSpace(server)); err != nil || u.Host == "" || address.Misplaced(server) {
			return nil, exit.Usagef("%s is not a NATS URL: write nats://host:4222, and separate several URLs with commas", origin)
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

// brokerError adds advice to the error of a failed connection. The new error contains err, and does
// not reveal a password: no error of the NATS client contains a valid URL.
func brokerError(origin string, err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return fmt.Errorf("connect to the broker (%s): it refuses the user; see --nats-creds: %w", origin, err)
	case errors.Is(err, nats.ErrNoServers):
		return fmt.Errorf("connect to the broker (%s): is it running, and is the address right? %w", origin, err)
	}
	return fmt.Errorf("connect to the broker (%s): %w", origin, err)
}

// note keeps an error about a permission that this user lacks, and prints any other error. A
// request that the broker denies ends only with a timeout, to which Explain adds the kept error. If
// the user lacks several permissions, note prefers the permission to receive replies.
func (b *Target) note(_ *nats.Conn, _ *nats.Subscription, err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		output.Report(os.Stderr, "postroom: the broker reports an error: %v\n", err)
		return
	}
	text := err.Error()
	if !b.denied.CompareAndSwap(nil, &text) && deniesReplies(text) {
		b.denied.Store(&text)
	}
}

// deniesReplies reports whether the denied permission is the permission to receive replies.
func deniesReplies(denied string) bool { return strings.Contains(denied, "for Subscription to") }

// RepliesDenied returns the denied permission to receive replies, or "" if none was denied.
func (b *Target) RepliesDenied() string {
	if denied := b.denied.Load(); denied != nil && deniesReplies(*denied) {
		return *denied
	}
	return ""
}

// PermissionHint says what a person can do about a missing permission.
const PermissionHint = "give this NATS user permission to publish to $JS.API.> and to subscribe to _INBOX.>, or name another with --nats-creds"

// Explain returns err. If err means that the broker did not answer, and the broker denied a
// permission before, the returned error also names this permission.
func (b *Target) Explain(err error) error {
	silent := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrPermissionViolation)
	denied := b.Denied()
	if denied == "" || !silent {
		return err
	}
	return fmt.Errorf("%s: %w", denied, err)
}

// Denied says which permission the broker denied, and what a person can do about it. It returns ""
// if the broker denied none.
func (b *Target) Denied() string {
	if denied := b.denied.Load(); denied != nil {
		return "the broker does not let this user do that: " + *denied + "; " + PermissionHint
	}
	return ""
}

// CheckJetStream returns an error if the broker has no JetStream, or if this user receives no
// replies from it. Without this check, commands would find nothing or would wait for a long time.
func (b *Target) CheckJetStream(ctx context.Context, nc *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.AccountInfo(ctx)
	}
	switch {
	case jsremedy.Do(err) != "":
		return fmt.Errorf("ask for JetStream: %w", jsremedy.Explain(err))
	case err != nil && b.RepliesDenied() != "":
		return b.Explain(err)
	}
	return nil // a user who may not ask for JetStream may still have the rights that the command needs
}
