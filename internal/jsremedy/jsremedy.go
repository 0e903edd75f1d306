// Package jsremedy says how to repair a broker that has no JetStream for this user. All
// parts of Postroom use the same texts.
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
	StartIt  = "the server runs without JetStream, or the servers that have it are away: start nats-server with -js"
	EnableIt = "the account of this user has no JetStream: enable it in the server's configuration, accounts { NAME { jetstream: enabled } }"
)

// Explain adds advice to an error of a request to the JetStream API, if the error says
// that there is no JetStream. It returns any other error unchanged. The result wraps err.
func Explain(err error) error {
	do := Do(err)
	if do == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, do)
}

// Do returns the advice for an error of a request to the JetStream API. If the error does
// not say that there is no JetStream, Do returns "".
func Do(err error) string {
	switch {
	//guard:an-account-without-jetstream-is-told-apart false
	case IsOfAccount(err):
		return EnableIt
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return StartIt
	}
	return ""
}

// Split splits a text that ends with a result of [Do] at the first colon of this result. It returns
// the text before the colon (cause) and the advice after it (do). For any other text, do is "".
func Split(text string) (cause, do string) {
	for _, known := range []string{StartIt, EnableIt} {
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
