package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/postroom/postroom/internal/eventsearch"
)

// EventFilter says which events to return: those that have all properties that are set. The zero
// value returns the newest hundred events.
//
// Wide because these are the properties of an event.
type EventFilter struct {
	Key           string
	Type          string
	Source        string
	CorrelationID string
	CausationID   string

	// TraceID selects the events that were written in one trace. It has 32 hexadecimal digits, or
	// is the W3C header traceparent that contains them.
	TraceID string

	// Any selects events that have this value as their id, key, correlation id, causation id or
	// trace id.
	Any string

	// Since and Until select events that were written at Since or later, and before Until. With
	// them an answer is quicker, because only their part of the log is read. Events may be missing
	// if the database's clock was set back by more than a minute.
	Since, Until time.Time

	// After is where the page begins: the Next of the previous page.
	After string

	// Limit is how many events a page has at most.
	//
	// Defaults to 100; at most 1,000.
	Limit int
}

// EventPage is a page of events.
type EventPage struct {
	Events []EventSummary `json:"events"`

	// Next is where the next page begins. It is empty if this is the last page. A page reads
	// 200,000 rows of the log at most, for about five seconds. So a page with a Next can have fewer
	// events than Limit, or none.
	Next string `json:"next,omitempty"`

	// Looked is how many rows of the log the page read. Reached is when the oldest of them was
	// written.
	Looked  int       `json:"looked"`
	Reached time.Time `json:"reached,omitzero"`

	// Stopped says that the page ended because it must not read more rows.
	Stopped bool `json:"stopped"`
}

// EventSummary says what an event is, and how far it is.
//
// Wide because it describes an event in one document.
type EventSummary struct {
	Source        string    `json:"source"`
	EventID       string    `json:"event_id"`
	Type          string    `json:"type"`
	Key           string    `json:"key,omitempty"`
	CorrelationID string    `json:"correlation_id,omitempty"`
	CausationID   string    `json:"causation_id,omitempty"`
	TraceID       string    `json:"trace_id,omitempty"`
	LoggedAt      time.Time `json:"logged_at"`

	// Seq is the event's place in the log, and Published its state there. They are zero if the log
	// does not have the event: another service wrote it, or retention removed it. Such an event is
	// known because it is held or was discarded.
	Seq       int64        `json:"seq,omitzero"`
	Published PublishState `json:"published,omitempty"`

	// Handlers are the handlers that have decided the event or for which it is held. Outgoing is
	// among them if the event is held on its way to the broker.
	Handlers []HandlerState `json:"handlers"`
}

// Done is the state of an event that took effect at a handler.
const Done State = "done"

// HandlerState is the state of an event at a handler.
type HandlerState struct {
	Handler string `json:"handler"`
	State   State  `json:"state"`

	// Database is the database of the handler in a tree. 0 is the database of the first inspector
	// that Tree was given.
	Database int `json:"database"`
}

// Events returns the events that match, newest first. Most of them are in the log. Events that the
// log does not have, but that are held or were discarded, stand among them by time. Of these, a
// page reads those first that were held last. The log has an index only for CausationID; for other
// properties a page reads the log from its end.
func (i *Inspector) Events(ctx context.Context, f EventFilter) (*EventPage, error) {
	s := eventsearch.Selection{
		Key: f.Key, Type: f.Type, Source: f.Source, CorrelationID: f.CorrelationID, CausationID: f.CausationID, Any: f.Any, Since: f.Since, Until: f.Until,
	}
	s.TraceID, _ = eventsearch.TraceIDOf(f.TraceID) // Validate refuses an invalid one
	if id, ok := eventsearch.TraceIDOf(f.Any); ok {
		s.Any = id
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("inspect: events: %w", err)
	}
	page := &EventPage{Events: []EventSummary{}}
	err := i.inTx(ctx, func(m *view) error {
		found, err := m.events.Page(m.ctx, m.tx, s, f.After, limit(f.Limit))
		if err != nil {
			return err
		}
		page.Next, page.Looked, page.Reached, page.Stopped = found.Next, found.Looked, utc(found.Reached), found.Stopped
		page.Events, err = summaries(m, found.Events)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("inspect: events: %w", i.explain(err))
	}
	return page, nil
}

// summaries returns the events with their states at the handlers.
func summaries(m *view, events []eventsearch.Event) ([]EventSummary, error) {
	if err := m.events.Handlers(m.ctx, m.tx, events); err != nil {
		return nil, err
	}
	all := make([]EventSummary, len(events))
	for n := range events {
		all[n] = summary(&events[n])
	}
	return all, nil
}

func summary(e *eventsearch.Event) EventSummary {
	s := EventSummary{
		Source: e.Source, EventID: e.ID, Type: e.Type, Key: e.Key, CorrelationID: e.CorrelationID, CausationID: e.CausationID, TraceID: e.TraceID,
		LoggedAt: utc(e.LoggedAt), Seq: e.Seq, Published: PublishState(e.State), Handlers: make([]HandlerState, len(e.Handlers)),
	}
	for n, h := range e.Handlers {
		s.Handlers[n] = HandlerState{Handler: h.Name, State: State(h.State), Database: h.Database}
	}
	return s
}
