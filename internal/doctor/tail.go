package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/messages"
	"github.com/postroom/postroom/internal/wildcard"
	"github.com/postroom/postroom/internal/wire"
)

const (
	// maxTailEvents is how many published events compareTail looks for in a stream, at most.
	maxTailEvents = 200
	// newestFirst is how many of the newest messages compareTail reads first.
	newestFirst = 2000
	// tailTimeout limits how long compareTail reads a stream.
	tailTimeout = 2 * time.Second
	// maxTailSubjects is the most subjects of a filter. If there are more, filterOf returns none.
	maxTailSubjects = 20
	// skew is how much the clocks of the broker's servers may differ from each other. The doctor
	// measures only how much the clock of one of them differs from the database's clock.
	skew = time.Minute
)

// TailCheck compares the end of a stream with the newest events that the relay recorded as
// published to it.
type TailCheck struct {
	Stream   string      `json:"stream"`
	Compared int         `json:"compared"`          // how many events were compared
	Missing  []LostEvent `json:"missing"`           // the events that the stream lacks, the newest first
	Note     string      `json:"note,omitempty"`    // why only some events, or none, were compared, or where others are
	Unknown  bool        `json:"unknown,omitempty"` // the stream could not be examined; Note says why

	moved bool // other streams have some of the events; Note says which
}

// LostEvent is an event that was published and is not in its stream.
type LostEvent struct {
	Seq     int64  `json:"seq"` // its seq in the log
	Source  string `json:"source"`
	EventID string `json:"event_id"`
	Subject string `json:"subject"`
}

// publishedEvent is an event that the relay recorded as published.
type publishedEvent struct {
	Seq                      int64
	Source, EventID, Subject string
	CreatedAt                time.Time
}

// eventName identifies an event in a stream. The message id does not identify it, because an event
// that an operator published again has another message id. The name is unique, because a source and
// an id have no white space.
func eventName(source, id string) string { return source + " " + id }

// compareTails looks for the newest published events in their streams. It reads the log
// first, because an event is in its stream before the log records it as published.
func compareTails(ctx context.Context, e *examination, streams []*stream) ([]TailCheck, error) {
	database, err := e.databaseClock(ctx)
	if err != nil {
		return nil, err
	}
	newest, err := query[publishedEvent](ctx, e, e.d.sql.PublishedEvents)
	if err != nil {
		return nil, fmt.Errorf("read the newest published events: %w", err)
	}
	var tails []TailCheck
	for _, s := range streams {
		//guard:a-named-stream-that-was-not-examined-is-reported false
		if s.err != nil && len(s.handlers) == 0 { // otherwise the positions of its handlers say it
			tails = append(tails, TailCheck{Stream: s.name, Missing: []LostEvent{}, Note: fmt.Sprintf("could not be compared: %v", s.err), Unknown: true})
		}
		if s.info == nil || len(s.info.Config.Subjects) == 0 {
			continue
		}
		events := slices.DeleteFunc(slices.Clone(newest), func(p publishedEvent) bool { return !s.takes(p.Subject) })
		tail, err := s.compareTail(ctx, events[:min(len(events), maxTailEvents)], database)
		if err != nil {
			tail.Note, tail.Unknown = fmt.Sprintf("could not be compared: %v", err), true
		}
		tails = append(tails, tail)
	}
	return tails, nil
}

// compareTail looks for events in the stream.
func (s *stream) compareTail(ctx context.Context, events []publishedEvent, database clock) (TailCheck, error) {
	tail := TailCheck{Stream: s.name, Missing: []LostEvent{}}
	if s.info.Config.Retention != jetstream.LimitsPolicy {
		tail.Note = "it keeps events only until they are consumed: an event that it lacks was consumed, or lost"
		return tail, nil
	}
	ctx, cancel := context.WithTimeout(ctx, tailTimeout+brokerTimeout)
	defer cancel()
	before := time.Now()
	info, err := s.handle.Info(ctx) // after the log was read
	if err != nil {
		return tail, fmt.Errorf("look up stream %s: %w", s.name, err)
	}
	broker := measureClock(before, info.TimeStamp, time.Now())
	onBroker := func(at time.Time) time.Time { return at.Add(broker.ahead - database.ahead) }
	events = slices.DeleteFunc(events, func(p publishedEvent) bool { return mayHaveDropped(info, onBroker(p.CreatedAt)) })
	if tail.Compared = len(events); len(events) == 0 {
		tail.Note = "no event of the log is so recent that the stream must still have it"
		return tail, nil
	}
	since := storedSince(info.TimeStamp, events, onBroker)
	missing, read, err := s.findMissing(ctx, info, events, since)
	if err != nil {
		return tail, err
	}
	if read && len(missing) > 0 {
		missing = s.findElsewhere(ctx, missing, since, &tail)
	}
	if !read {
		tail.Compared -= len(missing)
		tail.Note = fmt.Sprintf("it has more messages since then than can be read in %s: the search for %d events is not complete", tailTimeout, len(missing))
		return tail, nil
	}
	for _, p := range missing {
		tail.Missing = append(tail.Missing, LostEvent{Seq: p.Seq, Source: p.Source, EventID: p.EventID, Subject: p.Subject})
	}
	return tail, nil
}

// mostOthers is how many other streams findElsewhere asks, at most.
const mostOthers = 100

// findElsewhere looks for events that the stream lacks in the other streams: a stream may have stored
// their subject when they were published, and not store it any more. It returns the events that no
// other stream has, and describes the rest in the tail. It does not look into copies of streams.
func (s *stream) findElsewhere(ctx context.Context, missing []publishedEvent, since time.Time, tail *TailCheck) []publishedEvent {
	js, err := jetstream.New(s.nc)
	if err != nil {
		return missing
	}
	asked := 0
	var notes []string
	others := js.ListStreams(ctx)
	for info := range others.Info() {
		//guard:a-copy-of-a-stream-does-not-count false
		if info.Config.Name == s.name || info.State.LastTime.Before(since.Add(-skew)) || info.Config.Mirror != nil || len(info.Config.Sources) > 0 {
			continue
		}
		if asked++; asked > mostOthers || len(missing) == 0 {
			break
		}
		handle, err := js.Stream(ctx, info.Config.Name)
		if err != nil {
			continue
		}
		other := &stream{name: info.Config.Name, nc: s.nc, handle: handle, info: info}
		left, _, err := other.findMissing(ctx, info, missing, since)
		if n := len(missing) - len(left); err == nil && n > 0 {
			verb, subjects := "are", "their subjects"
			if n == 1 {
				verb, subjects = "is", "its subject"
			}
			notes = append(notes, fmt.Sprintf("%d of the newest published events %s in the stream %s, which stored %s before", n, verb, other.name, subjects))
			//guard:an-event-whose-subject-was-moved-is-not-lost remove
			missing = left
		}
	}
	tail.moved = len(notes) > 0
	if err := others.Err(); err != nil {
		notes = append(notes, fmt.Sprintf("whether other streams have them was not checked: %v (may this user publish to $JS.API.STREAM.LIST?)", err))
	}
	tail.Note = strings.Join(notes, "; ")
	return missing
}

// storedSince returns a time since which the stream has stored all of the events, which are the newest
// first. If a clock was wrong when an event was written, it returns the zero time: since the beginning.
func storedSince(now time.Time, events []publishedEvent, onBroker func(time.Time) time.Time) time.Time {
	since := now
	for _, p := range events {
		at := onBroker(p.CreatedAt)
		//guard:an-event-from-the-future-is-looked-for-everywhere false
		if at.After(since.Add(skew)) {
			return time.Time{}
		}
		if at.Before(since) {
			since = at
		}
	}
	return since
}

// mayHaveDropped reports whether a stream may have dropped messages that it stored at the
// given time or later, because of their age or a limit.
func mayHaveDropped(info *jetstream.StreamInfo, at time.Time) bool {
	cfg, state := info.Config, info.State
	if cfg.MaxAge == 0 && cfg.MaxMsgs <= 0 && cfg.MaxBytes <= 0 && cfg.MaxMsgsPerSubject <= 0 {
		return false // without a limit the stream drops no message
	}
	at = at.Add(-skew)
	if cfg.MaxAge > 0 && at.Before(info.TimeStamp.Add(-cfg.MaxAge).Add(2*skew)) {
		return true
	}
	return state.Msgs > 0 && state.FirstSeq > 1 && at.Before(state.FirstTime)
}

// findMissing reads the headers of the messages since a time, and returns the events that are not
// among these messages. The result read reports whether findMissing read all of the messages or
// found all events. The method reads the newest messages first, because nearly always all events
// are among them, and because there may be too many messages to read all of them.
func (s *stream) findMissing(ctx context.Context, info *jetstream.StreamInfo, events []publishedEvent, since time.Time) (missing []publishedEvent, read bool, err error) {
	if info.State.Msgs == 0 {
		return events, true, nil
	}
	cfg := jetstream.ConsumerConfig{
		Description: "postroom doctor", AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true, MemoryStorage: true, Replicas: 1,
		InactiveThreshold: time.Minute, FilterSubjects: filterOf(events),
	}
	last, end := info.State.LastSeq, time.Now().Add(tailTimeout)
	if last > newestFirst {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, last-newestFirst+1
		missing, _, err = s.missingAmong(ctx, cfg, last, end, events)
		if err != nil || len(missing) == 0 {
			return missing, err == nil, err
		}
	}
	cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverAllPolicy, 0
	if !since.IsZero() {
		since = since.Add(-skew)
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
	}
	return s.missingAmong(ctx, cfg, last, end, events)
}

// missingAmong returns the events that are not among the messages of a consumer up to a sequence.
// The result read reports whether that sequence was reached in time, or all events were found.
func (s *stream) missingAmong(ctx context.Context, cfg jetstream.ConsumerConfig, last uint64, end time.Time, events []publishedEvent) (missing []publishedEvent, read bool, err error) {
	consumer, err := s.handle.CreateConsumer(ctx, cfg)
	if err != nil {
		return nil, false, fmt.Errorf("read stream %s: %w", s.name, err)
	}
	defer func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), brokerTimeout)
		defer cancel()
		_ = s.handle.DeleteConsumer(within, consumer.CachedInfo().Name) // the broker removes it after a minute anyway
	}()
	there, read, err := readNames(ctx, s.nc, consumer, last, end)
	missing = slices.DeleteFunc(slices.Clone(events), func(p publishedEvent) bool {
		return there[eventName(p.Source, p.EventID)]
	})
	return missing, read || len(missing) == 0, err
}

// filterOf returns the subjects of the events, or none if there are too many subjects.
func filterOf(events []publishedEvent) []string {
	var subjects []string
	for _, p := range events {
		subjects = append(subjects, p.Subject)
	}
	slices.Sort(subjects)
	subjects = wildcard.Union(nil, slices.Compact(subjects))
	if len(subjects) > maxTailSubjects {
		return nil
	}
	return subjects
}

// readNames returns the names of the events in a consumer's messages up to a sequence. The result
// read reports whether that sequence was reached in time.
func readNames(ctx context.Context, nc *nats.Conn, consumer jetstream.Consumer, last uint64, end time.Time) (there map[string]bool, read bool, err error) {
	there = make(map[string]bool)
	if consumer.CachedInfo().NumPending == 0 {
		return there, true, nil
	}
	within, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	for err == nil && !read {
		err = messages.Fetch(within, nc, consumer, 1000, func(msg *nats.Msg, meta *nats.MsgMetadata) (more bool, err error) {
			if ev, err := wire.Decode(msg.Subject, msg.Header, nil); err == nil {
				there[eventName(ev.Source, ev.ID)] = true
			}
			read = meta.NumPending == 0 || meta.Sequence.Stream >= last
			return !read, nil
		})
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return there, false, fmt.Errorf("read: %w", err)
	}
	return there, read, nil
}

func checkTails(ctx context.Context, e *examination) error {
	losses, err := e.loadLosses(ctx)
	for _, t := range losses.Streams {
		switch {
		case len(t.Missing) > 0:
			e.fault(t.Stream, "postroom reconcile --stream "+t.Stream+" looks for all missing events; with --repair it publishes them again",
				"%d of the %d newest published events are not in the stream: the broker lost events that it had acknowledged (%s)%s", len(t.Missing), t.Compared, t.list(), t.andNote())
		case t.moved:
			e.note(t.Stream, "%s", t.Note)
		case t.Unknown:
			e.skip(t.Stream, "see the error", "the stream %s", t.Note)
		case t.Note != "":
			e.ok(t.Stream, "the stream has %d of the newest published events; %s", t.Compared, t.Note)
		default:
			e.ok(t.Stream, "the stream has the newest published events (%d)", t.Compared)
		}
	}
	return err
}

// andNote returns the note as the continuation of a text.
func (t TailCheck) andNote() string {
	if t.Note == "" {
		return ""
	}
	return "; " + t.Note
}

// list names the missing events, by source and id.
func (t TailCheck) list() string {
	names := make([]string, len(t.Missing))
	for i, l := range t.Missing {
		names[i] = fmt.Sprintf("seq %d: %s", l.Seq, eventName(l.Source, l.EventID))
	}
	return firstOf(names)
}
