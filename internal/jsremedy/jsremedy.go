// Package jsremedy says what mends a broker that has no JetStream for us, in one way for
// all parts.
package jsremedy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What to do.
const (
	StartIt  = "the server runs without JetStream, or the servers that have it are away: start nats-server with -js"
	EnableIt = "the account of this user has no JetStream: enable it in the server's configuration, accounts { NAME { jetstream: enabled } }"
)

// Explain returns err, the error of a request to the API of JetStream, with what to do
// about it, if it says that there is no JetStream. It returns any other error as it
// is. The result wraps err.
func Explain(err error) error {
	do := Do(err)
	if do == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, do)
}

// Do returns what to do about an error of a request to the API of JetStream, empty if
// it does not say that there is none.
func Do(err error) string {
	switch {
	case IsOfAccount(err):
		return EnableIt
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return StartIt
	}
	return ""
}

// Split parts what [Do] returned, or a text that ends with it, into the cause and what to do.
// What to do is empty if the text is another.
func Split(text string) (cause, do string) {
	for _, known := range []string{StartIt, EnableIt} {
		if before, ok := strings.CutSuffix(text, known); ok {
			cause, do, _ = strings.Cut(known, ": ")
			return before + cause, do
		}
	}
	return text, ""
}

// IsOfAccount reports whether err says that the account has no JetStream. That is a fault
// of the set-up, while a server without it may be one of several.
func IsOfAccount(err error) bool { return errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) }
