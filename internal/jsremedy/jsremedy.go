// Package jsremedy says how to repair a broker that refuses this user, or that has no JetStream for
// the user. All parts of Postroom use the same texts. Revive repairs a connection that no longer gets
// answers.
package jsremedy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The texts of the advice.
const (
	StartIt     = "the server runs without JetStream, or the servers that have it are away: start nats-server with -js"
	CorrectUser = "the broker refuses the user: correct its password or credentials"
	EnableIt    = "the account of this user has no JetStream: enable it in the server's configuration, accounts { NAME { jetstream: enabled } }"
)

// Explain adds advice to an error of a connection or of a request to the JetStream API, if the error
// says that the broker refuses the user, or that there is no JetStream. It returns any other error
// unchanged. The result wraps err.
func Explain(err error) error {
	do := Do(err)
	if do == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, do)
}

// Do returns the advice for an error that Explain knows, and "" for any other error.
func Do(err error) string {
	switch {
	//guard:an-account-without-jetstream-is-told-apart false
	case IsOfAccount(err):
		return EnableIt
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return StartIt
	case IsOfUser(err):
		return CorrectUser
	}
	return ""
}

// IsOfUser reports whether err says that the broker refuses the user: the password is wrong, or the
// credentials have expired or are revoked.
func IsOfUser(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}

// Closed returns the error of a connection that is closed for good, with its cause.
func Closed(nc *nats.Conn) error {
	switch last := nc.LastError(); {
	case IsOfUser(last):
		return fmt.Errorf("%w: %w: %s, and connect with natsjs.ConnectOptions(), with which the client tries again", nats.ErrConnectionClosed, last, CorrectUser)
	case last != nil && !errors.Is(last, nats.ErrConnectionClosed):
		return fmt.Errorf("%w: %w", nats.ErrConnectionClosed, last)
	}
	return nats.ErrConnectionClosed
}

// Split splits a text that ends with a result of [Do], or with the advice of [CheckVersion], at the
// first colon of this result. It returns the text before the colon (cause) and the advice after it
// (do). For any other text, do is "".
func Split(text string) (cause, do string) {
	for _, known := range []string{StartIt, EnableIt, CorrectUser, lacking} {
		if before, ok := strings.CutSuffix(text, known); ok {
			cause, do, _ = strings.Cut(known, ": ")
			return before + cause, do
		}
	}
	return text, ""
}

// IsOfAccount reports whether err says that the account has no JetStream. That is a fault of the
// set-up. A server without JetStream is not a fault, because it may be one of several servers.
func IsOfAccount(err error) bool { return errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) }
