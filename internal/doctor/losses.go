package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/consumer"
	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/schema"
)

// StreamVerdict says whether a stream matches a handler's position in it.
type StreamVerdict string

const (
	// Intact says that the stream matches the handler's position.
	Intact StreamVerdict = "intact"

	// Recreated says that the stream was deleted and created again.
	Recreated StreamVerdict = "recreated"

	// LostTail says that the stream lost messages that it had acknowledged: it ends before them, or
	// has other messages in their place.
	LostTail StreamVerdict = "lost_tail"

	// AgedOut says that the stream dropped messages that the handler may not have read.
	AgedOut StreamVerdict = "aged_out"

	// Undecided says that messages were acknowledged that the handler has not decided.
	Undecided StreamVerdict = "undecided"

	// Missing says that the stream does not exist.
	Missing StreamVerdict = "missing"

	// Unknown says that the stream could not be examined.
	Unknown StreamVerdict = "unknown"
)

// HandlerPosition is a handler's position in its stream, and whether the stream still matches that
// position.
type HandlerPosition struct {
	Handler  string        `json:"handler"`
	Stream   string        `json:"stream"`
	Ordered  bool          `json:"ordered"`
	AckFloor uint64        `json:"ack_floor"` // every event up to this sequence is decided
	FirstSeq uint64        `json:"first_seq"`
	LastSeq  uint64        `json:"last_seq"`
	Verdict  StreamVerdict `json:"verdict"`
	Text     string        `json:"text,omitempty"` // why the verdict is not Intact

	// Undecided has the messages that were acknowledged and that the handler has not decided. Only
	// the first 10,000 messages above the recorded position are examined.
	Undecided []UndecidedMessage `json:"undecided,omitempty"`
}

// Losses says which events and messages the broker lost, as far as the database shows.
type Losses struct {
	Handlers []HandlerPosition `json:"handlers"`
	Streams  []TailCheck       `json:"streams"`
}

// Any reports whether the broker lost anything.
func (l Losses) Any() bool {
	for _, s := range l.Handlers {
		if s.Verdict != Intact && s.Verdict != Unknown {
			return true
		}
	}
	for _, t := range l.Streams {
		if len(t.Missing) > 0 {
			return true
		}
	}
	return false
}

// Compared reports whether at least one handler's position or one stream could be examined.
func (l Losses) Compared() bool {
	//guard:a-stream-that-was-not-examined-was-not-compared 1.2.1 = @1 != ""
	return slices.ContainsFunc(l.Handlers, func(h HandlerPosition) bool { return h.Verdict != Unknown }) ||
		slices.ContainsFunc(l.Streams, func(t TailCheck) bool { return !t.Unknown })
}

// Losses compares streams with the position of each handler in the database, and with the newest
// events that the relay recorded as published. It returns an error if the database or the broker
// cannot be asked. If the broker says nothing about single streams, it returns no error: see
// [Losses.Compared].
func (d *Doctor) Losses(ctx context.Context) (Losses, error) {
	e, err := d.begin(ctx)
	if err != nil {
		return Losses{}, err
	}
	if d.nc == nil || !d.nc.IsConnected() {
		return Losses{}, errors.New("doctor: there is no connection to the broker")
	}
	if err := schema.Require(ctx, d.db, d.name); err != nil {
		return Losses{}, fmt.Errorf("doctor: %w", remedy.Explain(err, remedy.Use{Grant: "operator", Schema: d.name, DB: d.db}))
	}
	losses, err := e.loadLosses(ctx)
	if err != nil {
		return losses, fmt.Errorf("doctor: %w", jsremedy.Explain(remedy.Explain(err, remedy.Use{Grant: "operator", Schema: d.name, DB: d.db})))
	}
	return losses, nil
}

// handlerPosition compares a stream with a handler's position in it.
func (s *stream) handlerPosition(ctx context.Context, sub subscription) HandlerPosition {
	at := HandlerPosition{Handler: sub.Handler, Stream: s.name, Ordered: sub.Ordered, AckFloor: uint64(max(sub.AckFloor, 0)), Verdict: Intact}
	judge := func(v StreamVerdict, format string, args ...any) HandlerPosition {
		at.Verdict, at.Text = v, fmt.Sprintf(format, args...)
		return at
	}
	switch {
	case s.err != nil:
		return judge(Unknown, "%v", s.err)
	case s.info == nil:
		return judge(Missing, "the stream does not exist: create it with 'postroom stream ensure'")
	}
	state := s.info.State
	at.FirstSeq, at.LastSeq = state.FirstSeq, state.LastSeq
	if !s.info.Created.Truncate(time.Microsecond).Equal(sub.Created) {
		return judge(Recreated, "the stream was created at %s; the handler had read an earlier stream, created at %s, whose messages are gone",
			s.info.Created.UTC().Format(time.RFC3339), sub.Created.UTC().Format(time.RFC3339))
	}
	reads := false
	if !sub.Ordered {
		durable, err := durable(ctx, s, sub)
		if err != nil {
			return judge(Unknown, "%v", err)
		}
		if durable != nil {
			at.AckFloor, reads = consumer.Floor(sub.AckFloor, durable), durable.NumWaiting > 0
		}
	}
	if at.AckFloor > state.LastSeq {
		return judge(LostTail, "every event up to %d is decided, and the stream ends at %d: the broker lost at least %s that it had acknowledged",
			at.AckFloor, state.LastSeq, countOf(at.AckFloor-state.LastSeq, "message"))
	}
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	kept, err := sub.ackFloorPosition().IsIn(ctx, s.handle, state)
	switch {
	case err != nil:
		return judge(Unknown, "%v", err)
	case !kept:
		return judge(LostTail, "the message at %d is not the one that was decided there: the broker lost messages, and stored others in their place", sub.AckFloor)
	case at.AckFloor+1 < state.FirstSeq && !reads:
		// If a process waits for messages of the consumer, the consumer has delivered all of its
		// messages. Its floor may still be below the first message of the stream, if the
		// messages between them were for other handlers.
		return judge(AgedOut, "the handler has decided every event up to %d, and the stream begins at %d: it may have dropped up to %s that the handler had not read",
			at.AckFloor, state.FirstSeq, countOf(state.FirstSeq-at.AckFloor-1, "message"))
	}
	return at
}

func checkLosses(ctx context.Context, e *examination) error {
	losses, err := e.loadLosses(ctx)
	had, intact := len(e.findings), 0
	for _, s := range losses.Handlers {
		switch s.Verdict {
		case Intact:
			intact++
		case Missing: // checkStreams reports it
		case Unknown:
			e.skip(s.Handler, "see the error", "the stream %s could not be compared with the handler's position: %s", s.Stream, s.Text)
		case AgedOut:
			e.fault(s.Handler, "look for the missed events in the log of the producers; give the stream a longer max_age", "stream %s: %s", s.Stream, s.Text)
		case Undecided:
			e.fault(s.Handler, "start a process of the handler, if none runs: within two minutes it finds these messages and handles them. 'postroom stream check' names them",
				"stream %s: %s", s.Stream, s.Text)
		case Recreated, LostTail:
			e.fault(s.Handler, "publish the missing events again: see lost-tail. When a process of the handler starts or reconnects, it reads again from a position before the loss; the inbox recognises repeated events",
				"stream %s: %s", s.Stream, s.Text)
		}
	}
	if err == nil && len(e.findings) == had {
		e.ok("", "the streams have the messages that handlers decided last (%s)", countOf(intact, "handler"))
	}
	return err
}

func checkRetention(ctx context.Context, e *examination) error {
	_, trusted, err := e.windows(ctx)
	if err != nil {
		return err
	}
	return e.each(ctx, func(s *stream) {
		had, kept := len(e.findings), s.info.Config.MaxAge
		if kept == 0 {
			e.ok(s.name, "it keeps messages for ever; events that are older than %s are held as too_old", duration(trusted.least))
			return
		}
		if s.log && kept < e.d.cfg.Retention {
			e.warn(s.name, fmt.Sprintf("nats stream edit %s --max-age %s, or give relays a shorter --retention", s.name, e.d.cfg.Retention),
				"it keeps messages for %s, and the log keeps events for %s: if the stream lacks an event, nothing shows whether the broker lost it or it grew too old", duration(kept), duration(e.d.cfg.Retention))
		}
		for _, sub := range s.handlers {
			lag, err := s.lag(ctx, sub)
			switch {
			case err != nil:
				e.skip(sub.Handler, e.remedyOf(err), "could not check how far the handler is behind: %v", err)
			case lag > kept/2:
				e.warn(sub.Handler, fmt.Sprintf("start processes of the handler, or nats stream edit %s --max-age %s", s.name, 4*kept),
					"its next event has waited for %s, and the stream %s drops messages after %s", duration(lag), s.name, duration(kept))
			}
		}
		if len(e.findings) == had {
			e.ok(s.name, "it keeps messages for %s, and no handler is behind for half of that", duration(kept))
		}
	})
}

// lag returns the age of the next message that a handler has not read.
func (s *stream) lag(ctx context.Context, sub subscription) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	from := uint64(max(sub.AckFloor, 0))
	if !sub.Ordered {
		durable, err := durable(ctx, s, sub)
		if err != nil {
			return 0, err
		}
		if durable != nil && durable.NumPending == 0 && durable.NumAckPending == 0 {
			return 0, nil
		}
		if durable != nil {
			from = consumer.Floor(sub.AckFloor, durable)
		}
	}
	var lag time.Duration
	for _, subject := range sub.Subjects {
		msg, err := consumer.GetMsg(ctx, s.handle, from+1, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("look up the next message of %s: %w", subject, err)
		}
		lag = max(lag, s.info.TimeStamp.Sub(msg.Time))
	}
	return lag, nil
}
