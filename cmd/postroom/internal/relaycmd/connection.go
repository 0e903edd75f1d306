package relaycmd

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/internal/repeat"
)

// newLogger returns a logger that writes lines as text or, if format is json, as JSON.
func newLogger(w io.Writer, format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

// permit tells an operator what to do if the NATS user of the relay lacks permissions.
const permit = "give the relay's NATS user permission to publish to the subjects of the events and to $JS.API.>, and to subscribe to _INBOX.>"

// connectOptions returns the options that only the connection of a relay has. If the broker does
// not answer, the connection keeps trying. The relay logs each change of the connection.
func connectOptions(log *slog.Logger) []nats.Option {
	lines := new(repeat.Lines) // while the broker refuses the user, each attempt to connect is an error
	return []nats.Option{
		nats.RetryOnFailedConnect(true),
		nats.ConnectHandler(func(nc *nats.Conn) { log.Info("connected to the broker", "url", nc.ConnectedUrlRedacted()) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // err is nil if this program closed the connection
				log.Warn("connection to the broker lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info("connected to the broker again", "url", nc.ConnectedUrlRedacted()) }),
		// The client reports missing permissions only to this function.
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				log.Warn("the broker does not let the relay do that", "error", err, "do", permit)
				return
			}
			lines.Warn(context.Background(), log, "the broker reports an error", jsremedy.Explain(err))
		}),
	}
}
