package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postroom/postroom/internal/consumer"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/inspect"
)

// handlerChecks examine the handlers in the database.
var handlerChecks = []check{
	{"dedupe-window", tables, "", checkWindows},
	{"unknown-handler", tables, "a live process runs each handler that decided events or is subscribed", checkUnknown},
	{"handlers", tables, "no handler is paused, and a process reads the stream of each ordered handler", checkHandlers},
	{"overdue-events", tables, "no held event has been due for half a minute without a process that runs it", judged(inspect.FoundOverdue)},
	{"dead-events", tables, "", checkDead},
	{"replay", tables, "every replay is done, or a process runs it", judged(inspect.FoundReplayIdle)},
	{"sagas", tables, "no instance of a saga is stuck", judged(inspect.FoundSagaStuck)},
}

// A subscription is a row of postroom.subscription.
type subscription struct {
	Handler, Stream string
	Created         time.Time // when the stream was created
	Types           []string  // none means all events on its subjects
	Subjects        []string
	AckFloor        int64
	AckFloorID      string
	AckFloorStored  *time.Time
	SkippedThrough  int64 // up to this sequence, messages of subjects that were added later were skipped
	Ordered         bool
	Lives           bool // a live process runs the handler
	instance        string
}

// consumer returns the durable consumer's name, for a handler that is not ordered.
func (s subscription) consumer() string { return identity.Consumer(s.instance, s.Handler) }

// ackFloorPosition returns the position of the message at the handler's ack floor.
func (s subscription) ackFloorPosition() consumer.Position {
	f := consumer.Position{Seq: uint64(max(s.AckFloor, 0)), ID: s.AckFloorID}
	if s.AckFloorStored != nil {
		f.Stored = *s.AckFloorStored
	}
	return f
}

// checkUnknown looks for handlers that no live process runs.
func checkUnknown(ctx context.Context, e *examination) error {
	subs, err := e.loadSubscriptions(ctx)
	if err != nil {
		return err
	}
	type unknown struct {
		Handler    string
		Held, Owed int64
	}
	deciding, err := query[unknown](ctx, e, e.d.sql.UnknownHandlers)
	if err != nil {
		return err
	}
	told := make(map[string]bool)
	for _, u := range deciding {
		told[u.Handler] = true
		i := slices.IndexFunc(subs, func(s subscription) bool { return s.Handler == u.Handler })
		remedy := "start a process that runs it (a renamed handler is another handler)"
		switch {
		case u.Owed > 0:
			e.fault(u.Handler, remedy, "no live process runs this handler, and %s held for it", eventsAre(u.Owed, 10_000))
		case i >= 0:
			e.warn(u.Handler, remedy+retire(e.d.name, subs[i]), "no live process runs this handler: its events wait in the stream %s, and are lost to it when the stream drops them", subs[i].Stream)
		default:
			e.warn(u.Handler, remedy+"; if it was retired, its inbox rows are removed when they are old, and --ignore leaves out the finding until then: --ignore unknown-handler:"+u.Handler,
				"this handler decided events, %s held for it, and no live process runs it", eventsAre(u.Held, 10_000))
		}
	}
	for _, s := range subs {
		if !s.Lives && !told[s.Handler] {
			e.warn(s.Handler, "start a process that runs it (a renamed handler is another handler)"+retire(e.d.name, s),
				"no live process runs this handler: its events wait in the stream %s, and are lost to it when the stream drops them", s.Stream)
		}
	}
	return nil
}

// retire says how to remove a handler that is no longer used.
func retire(name string, s subscription) string {
	text := fmt.Sprintf("; if it was retired: DELETE FROM %s.subscription WHERE handler = '%s'", name, s.Handler)
	if !s.Ordered {
		text += fmt.Sprintf(", and nats consumer rm %s %s", s.Stream, s.consumer())
	}
	return text
}

// eventsAre returns "1 event is" or "2 events are". If n has reached the limit most, it returns
// "10000 events or more are".
func eventsAre(n, most int64) string {
	switch {
	case n >= most:
		return fmt.Sprintf("%d events or more are", n)
	case n == 1:
		return "1 event is"
	}
	return fmt.Sprintf("%d events are", n)
}

// judged returns a check that reports the findings of package inspect with one of the given codes.
func judged(codes ...string) func(ctx context.Context, e *examination) error {
	return func(ctx context.Context, e *examination) error {
		s, err := e.loadStatus(ctx)
		if err != nil {
			return err
		}
		for _, f := range s.Findings {
			if slices.Contains(codes, f.Code) && f.Handler != inspect.Outgoing { // checkRelay reports those of the relays
				e.warn(f.Handler, f.Remedy, "%s", f.Text)
			}
		}
		return nil
	}
}

func checkHandlers(ctx context.Context, e *examination) error {
	if err := judged(inspect.FoundPaused, inspect.FoundNoReader)(ctx, e); err != nil {
		return err
	}
	s, err := e.loadStatus(ctx)
	for _, note := range s.HandlerPauses() {
		e.note("", "%s", note)
	}
	return err
}

func checkDead(ctx context.Context, e *examination) error {
	kept, _, err := e.windows(ctx)
	if err != nil {
		return err
	}
	type old struct {
		Dead        int64
		DeadAge     float64
		Archived    int64
		ArchivedAge float64
	}
	o, err := queryOne[old](ctx, e, e.d.sql.OldDead, kept.least)
	if err != nil {
		return err
	}
	if o.Dead > 0 {
		e.warn("held", "decide about them: replay or discard them",
			"%s dead for longer than the inbox keeps its rows (%s), the oldest for %s: it seems that no operator decides about them",
			eventsAre(o.Dead, 10000), kept, duration(seconds(o.DeadAge)))
		return nil
	}
	text := "no event has been dead for longer than the inbox keeps its rows (%s)"
	if o.Archived > 0 {
		e.ok("held", text+"; %s discarded and keep their inbox rows, the oldest for %s", kept, eventsAre(o.Archived, 10000), duration(seconds(o.ArchivedAge)))
		return nil
	}
	e.ok("held", text, kept)
	return nil
}
