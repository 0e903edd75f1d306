package inbox

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/invoke"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/inbox/internal/signals"
	"github.com/postroom/postroom/inbox/internal/stream"
	"github.com/postroom/postroom/internal/guard"
)

// handler is what was registered: a user's function, and how it is to be run.
type handler struct {
	sub      Subscription
	apply    postroom.Handler
	external ExternalHandler // in place of apply
	log      *slog.Logger
	signals  *signals.Handler
	workers  int // set when the inbox begins to run

	ledger  *ledger.Handler
	pending *stream.Pending
}

func newHandler(in *Inbox, sub Subscription, apply postroom.Handler, external ExternalHandler) *handler {
	sub = sub.defaults(external != nil)
	h := &handler{
		sub: sub, apply: apply, external: external,
		log: in.cfg.Logger.With("handler", sub.Name), signals: in.signals.Of(sub.Name, sub.Stream),
	}
	of := stream.Config{Conn: in.nc, Handler: sub.Name, Stream: sub.Stream, Filter: sub.filter(), Instance: in.node.Instance}
	h.pending = stream.NewPending(of, h.isOrdered())
	h.ledger = ledger.NewHandler(in.db, sub.Name, sub.Isolation, sub.Timeout+h.grace())
	return h
}

// grace is how long a handler is waited for after its context ended.
func (h *handler) grace() time.Duration { return invoke.Grace(h.sub.Timeout) }

// lease is how long a claim lasts, unless it is renewed, as that of an external handler
// is: until a handler that does not return is left behind, and its process has noted that.
func (h *handler) lease(renewed time.Duration) time.Duration {
	if h.external != nil {
		return renewed
	}
	return h.sub.Timeout + 2*h.grace()
}

// connections is how many connections of the pool a handler needs for itself; none
// where it takes what is left.
func (h *handler) connections() int {
	if h.external != nil {
		return min(h.sub.Workers, externalSettles)
	}
	return h.sub.Workers
}

// leases is how many connections of the pool a handler needs to keep its leases.
func (h *handler) leases() int {
	if h.isOrdered() {
		return 1
	}
	return 0
}

// failed returns how an event is held after an attempt that failed.
func (h *handler) failed(attempts, most int, f delivery.Failure) delivery.Holding {
	return delivery.Holding{Failure: &f, Attempts: attempts, After: f.Next(h.sub.Schedule, attempts, most)}
}

// spared is how many claims on an event may run out before it runs alone. Calls that
// take long are many in a process that dies, and each that runs alone stops all else.
func (h *handler) spared() int32 {
	if h.external != nil {
		return 1
	}
	return 0
}

// report tells of a failed attempt what its record in held does not show at once.
func (h *handler) report(ctx context.Context, t delivery.Task, err error) {
	var panicked *guard.PanicError
	if errors.As(err, &panicked) {
		h.log.ErrorContext(ctx, "handler panicked", "event_id", t.Event.ID, "type", t.Event.Type, "dedupe_key", t.Key,
			"error", err, "stack", panicked.Stack)
	}
}

func (h *handler) isOrdered() bool { return h.sub.Order != Unordered }

// blocks returns the key that an event blocks, or waits for, when it is held so; or
// nothing.
func (h *handler) blocks(d *delivery.Delivery, as delivery.Holding) string {
	if !h.isKeyed(d) || as.IsBesideTheOrder() || as.After == nil && h.sub.Order == SkipKey {
		return ""
	}
	return delivery.Bounded(d.Event.Key)
}

// owe returns an event as it is to be held.
func (h *handler) owe(d *delivery.Delivery, as delivery.Holding) ledger.Owed {
	return ledger.Owed{Handler: h.sub.Name, Blocking: h.blocks(d, as), D: d, H: as}
}

// announce logs what the handler reads, when an inbox begins.
func (h *handler) announce(ctx context.Context) {
	stream, which, what := h.sub.Stream, "subjects", h.sub.Subjects
	if stream == "" {
		stream = "none: its events are accepted"
	}
	if len(h.sub.Types) > 0 {
		which, what = "types", h.sub.Types
	}
	h.log.InfoContext(ctx, "handler begins", "stream", stream, "workers", h.workers, which, strings.Join(what, ", "),
		"ordered", h.isOrdered(), "external", h.external != nil)
}
