package inbox

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/gate"
	"github.com/postroom/postroom/inbox/internal/invoke"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/inbox/internal/signals"
	"github.com/postroom/postroom/inbox/internal/stream"
)

// handler is a registered handler: the user's function and its settings.
type handler struct {
	sub      Subscription
	window   delivery.Window
	apply    postroom.Handler
	external ExternalHandler // this field is set instead of the field apply
	log      *slog.Logger
	signals  *signals.Handler
	workers  int  // set when the inbox begins to run
	harmless bool // no event can end the process
	settles  int  // how many workers of an external handler may settle at the same time

	gate    *gate.Gate
	ledger  *ledger.Handler
	pending *stream.PendingCounter
}

func newHandler(in *Inbox, sub Subscription, apply postroom.Handler, external ExternalHandler) *handler {
	sub = sub.defaults(external != nil)
	h := &handler{
		sub: sub, window: in.cfg.window(sub), apply: apply, external: external,
		log: in.cfg.Logger.With("handler", sub.Name),
	}
	h.settles = externalSettles
	//guard:an-external-handler-needs-few-connections-of-a-small-pool false
	if in.pool != nil {
		h.settles = min(externalSettles, max(int(in.pool.Config().MaxConns)/2-1, 1))
	}
	h.signals = in.signals.Of(sub.Name, sub.Stream, h.log)
	of := stream.Config{Conn: in.nc, Handler: sub.Name, Stream: sub.Stream, Filter: sub.filter(), Instance: in.node.Instance}
	h.pending = stream.NewPendingCounter(of, h.isOrdered())
	h.gate = in.gates.Add(sub.Name, sub.Pause.gate().WithDefaults())
	h.ledger = ledger.NewHandler(in.db, sub.Name, sub.Isolation, sub.Timeout+h.grace())
	return h
}

// grace returns how long the inbox waits for a handler whose context ended.
func (h *handler) grace() time.Duration { return invoke.Grace(h.sub.Timeout) }

// lease returns how long a claim lasts: for an external handler, as long as the parameter renewed;
// for any other, long enough to abandon a handler that does not return, and to record its failure.
func (h *handler) lease(renewed time.Duration) time.Duration {
	if h.external != nil {
		return renewed
	}
	return h.sub.Timeout + 2*h.grace()
}

// connections returns how many connections of the pool a handler needs, or 0 if the handler gets a
// share of the remaining connections.
func (h *handler) connections() int {
	if h.external != nil {
		return min(h.sub.Workers, h.settles)
	}
	return h.sub.Workers
}

// leases returns how many connections of the pool renew the lease of a reader.
func (h *handler) leases() int {
	if h.isOrdered() {
		return 1
	}
	return 0
}

// failed returns how an event is held if its first attempt failed.
func (h *handler) failed(t delivery.Task, f delivery.Failure) delivery.Holding {
	return f.Hold(h.sub.Schedule, 1, h.sub.Attempts, 0, h.gate.Failed(t.Key, f))
}

// spared returns how many processes may die in a row while they have a claim on an event. After one
// more death, the event runs alone from then on. For an external handler, and for one that reads no
// stream, it is 1: a process that dies may have many long calls under way, or many claims that no
// worker had begun. If all these events ran alone, the other events would wait long. It is -1 if no
// event ever runs alone: see Intake.Harmless.
func (h *handler) spared() int32 {
	//guard:an-event-that-ends-no-process-never-runs-alone false
	if h.harmless {
		return -1
	}
	//guard:claims-that-no-worker-had-begun-do-not-run-alone 2 false
	if h.external != nil || h.sub.Stream == "" {
		return 1
	}
	return 0
}

func (h *handler) isOrdered() bool { return h.sub.Order != Unordered }

// blocks returns the key that an event held in the given way blocks or waits for, or "".
func (h *handler) blocks(d *delivery.Delivery, as delivery.Holding) string {
	if !h.isKeyed(d) || as.IsBesideTheOrder() || as.After == nil && h.sub.Order == SkipKey {
		return ""
	}
	return delivery.Bounded(d.Event.Key)
}

// owe returns what the ledger needs to hold an event.
func (h *handler) owe(d *delivery.Delivery, as delivery.Holding) ledger.Owed {
	return ledger.Owed{Handler: h.sub.Name, Blocking: h.blocks(d, as), D: d, H: as}
}

// announce logs what the handler reads. It is called when the inbox starts.
func (h *handler) announce(ctx context.Context) {
	stream, which, what := h.sub.Stream, "subjects", h.sub.Subjects
	if stream == "" {
		stream = "none: its events come from Accept"
	}
	if len(h.sub.Types) > 0 {
		which, what = "types", h.sub.Types
	}
	h.log.InfoContext(ctx, "handler begins", "stream", stream, "workers", h.workers, which, strings.Join(what, ", "),
		"ordered", h.isOrdered(), "external", h.external != nil)
}
