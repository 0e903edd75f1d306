// Package preflight checks whether an inbox could start. It compares the settings with the settings
// of other processes, and checks the isolation level, the handlers and the streams. It changes
// nothing.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/internal/jsremedy"
)

var (
	// ErrStreamLimit says that a limit of the stream or of the account does not allow
	// what a handler needs.
	ErrStreamLimit = errors.New("the stream has a limit with which the handler cannot work")

	// ErrIsolation says that the database's default isolation level is not read committed. An
	// ordered handler needs this level.
	ErrIsolation = errors.New("an ordered handler needs default_transaction_isolation to be read committed")
)

// Inbox is the inbox to check.
type Inbox struct {
	Conn     *nats.Conn
	Database ledger.Upkeep
	Handlers []Handler
	Log      *slog.Logger

	// Advise adds advice to an error of the database or the broker.
	Advise func(error) error
}

// Handler is a handler of the inbox.
type Handler struct {
	Name    string
	Stream  string   // empty if the handler reads no stream
	Types   []string // nil if the subscription has Subjects
	Filter  []string // the subjects that the handler reads
	Order   string   // the name of the subscription's order, such as HoldKey
	Ordered bool
	Window  delivery.Window
	Log     *slog.Logger
	Runs    any // the user's handler; nil if it is a function
}

// Check returns why the inbox cannot start, or nil. A person must correct an error that
// matches postroom.ErrUnrecoverable. Any other error is an outage.
func (in *Inbox) Check(ctx context.Context) error {
	if err := in.checkAllButStreams(ctx); err != nil {
		return err
	}
	faults, _, err := in.checkStreams(ctx)
	for _, f := range faults {
		err = errors.Join(err, f.err)
	}
	return err
}

// Start returns why the inbox does not start, or nil. It is like Check, but the stream of one handler
// does not stop the other handlers: if it is missing, does not suit the handler or does not answer,
// Start logs that. It returns the error of a stream only if no other handler can run, or if the
// handler is new, because the name of the stream may then be wrong.
func (in *Inbox) Start(ctx context.Context) error {
	if err := in.checkAllButStreams(ctx); err != nil {
		return err
	}
	faults, sound, err := in.checkStreams(ctx)
	if err != nil {
		return err
	}
	for _, f := range faults {
		known := false
		//guard:the-stream-of-one-handler-does-not-stop-the-others false
		if sound {
			if known, err = in.Database.Known(ctx, f.handler.Name); err != nil {
				return in.Advise(err)
			}
		}
		if !known {
			return f.err
		}
	}
	for _, f := range faults {
		f.handler.Log.ErrorContext(ctx, "handler cannot read its stream, the other handlers begin", "error", f.err)
	}
	return nil
}

func (in *Inbox) checkAllButStreams(ctx context.Context) error {
	if err := in.tellDiffering(ctx); err != nil {
		return in.Advise(err)
	}
	if err := in.checkIsolation(ctx); err != nil {
		return in.Advise(err)
	}
	if in.Conn != nil && slices.ContainsFunc(in.Handlers, func(h Handler) bool { return h.Stream != "" }) {
		//guard:an-inbox-refuses-an-old-broker 0 = error(nil)
		if err := jsremedy.CheckVersion(in.Conn); err != nil {
			return postroom.Unrecoverable(err)
		}
	}
	return checkHandlers(ctx, in.Handlers)
}

// streamFault says why a handler cannot use its stream.
type streamFault struct {
	handler Handler
	err     error
}

// checkStreams checks the streams of the handlers. The result sound reports whether there is a handler
// without a fault.
func (in *Inbox) checkStreams(ctx context.Context) (faults []streamFault, sound bool, err error) {
	known := make(map[string]error) // the error of each stream whose limits were checked, or that did not answer
	for _, h := range in.Handlers {
		if h.Stream == "" {
			sound = true
			continue
		}
		js, err := jetstream.New(in.Conn)
		if err != nil {
			return nil, false, err
		}
		fault, looked := known[h.Stream]
		if fault == nil {
			var stream jetstream.Stream
			stream, fault = in.checkStream(ctx, js, h)
			switch {
			case fault == nil && !looked:
				fault = in.checkLimits(ctx, js, stream)
				known[h.Stream] = fault
			case errors.Is(fault, context.DeadlineExceeded): // do not wait for this stream again
				known[h.Stream] = fault
			}
		}
		if fault == nil {
			sound = true
			continue
		}
		faults = append(faults, streamFault{h, fault})
	}
	return faults, sound, nil
}

// CheckConnection returns why the handlers cannot use the connection to the broker, or
// nil. It does no I/O.
func (in *Inbox) CheckConnection() error {
	switch {
	case !slices.ContainsFunc(in.Handlers, func(h Handler) bool { return h.Stream != "" }):
		return nil
	case in.Conn == nil:
		return errors.New("there is no connection to NATS, and a handler that reads a stream")
	case in.Conn.Opts.MaxReconnect >= 0 || !in.Conn.Opts.AllowReconnect:
		return errors.New("the connection to NATS has bounded reconnects, after which it is closed for good: connect with nats.MaxReconnects(-1), or with natsjs.ConnectOptions()")
	}
	return nil
}

// tellDiffering logs a warning if another process runs one of these handlers with a different
// DedupeWindow. That is not an error, because the longer DedupeWindow counts.
func (in *Inbox) tellDiffering(ctx context.Context) error {
	windows := make([]delivery.Window, len(in.Handlers))
	for i, h := range in.Handlers {
		windows[i] = h.Window
	}
	all, err := in.Database.OtherWindows(ctx, windows)
	for _, d := range all {
		h := in.Handlers[slices.IndexFunc(in.Handlers, func(h Handler) bool { return h.Name == d.Handler })]
		h.Log.WarnContext(ctx, "another process has a different DedupeWindow for this handler, the longer one counts",
			"dedupe_window", h.Window.Keep, "process", d.Process, "its_dedupe_window", d.Keep)
	}
	return err
}

// checkIsolation returns an error if there is an ordered handler and the default isolation level is
// not read committed. At a higher level, a statement that waited for a key would not see the
// changes that were committed meanwhile.
func (in *Inbox) checkIsolation(ctx context.Context) error {
	if !slices.ContainsFunc(in.Handlers, func(h Handler) bool { return h.Ordered }) {
		return nil
	}
	isolation, err := in.Database.Isolation(ctx)
	if err != nil {
		return err
	}
	if isolation != "read committed" {
		return postroom.Unrecoverable(fmt.Errorf("%w: it is %s; set it for the role of this process", ErrIsolation, isolation))
	}
	return nil
}

// checkStream looks up a handler's stream, and returns an error if the handler cannot use it.
func (in *Inbox) checkStream(ctx context.Context, js jetstream.JetStream, h Handler) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, h.Stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, postroom.Unrecoverable(fmt.Errorf(
			"stream %s of handler %s: %w: create it with 'postroom stream ensure' or natsjs.EnsureStream", h.Stream, h.Name, err))
	case jsremedy.IsOfAccount(err):
		return nil, fmt.Errorf("look up stream %s: %w", h.Stream, postroom.Unrecoverable(jsremedy.Explain(err)))
	case err != nil:
		return nil, fmt.Errorf("look up stream %s: %w", h.Stream, in.Advise(err))
	case h.Ordered && stream.CachedInfo().Config.Retention != jetstream.LimitsPolicy:
		return nil, postroom.Unrecoverable(fmt.Errorf(
			"stream %s of handler %s keeps events for its consumers only, and an ordered handler has no lasting consumer: give the stream limits retention", h.Stream, h.Name))
	}
	return stream, nil
}
