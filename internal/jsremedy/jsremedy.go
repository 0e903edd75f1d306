// Package jsremedy says what mends a broker that has no JetStream for us, in one way for
// all parts.
package jsremedy

import (
	"errors"
	"fmt"

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

// IsOfAccount reports whether err says that the account has no JetStream. That is a fault
// of the set-up, while a server without it may be one of several.
func IsOfAccount(err error) bool { return errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) }
