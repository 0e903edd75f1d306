package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/postroom/postroom/internal/eventsearch"
	"github.com/postroom/postroom/internal/held"
)

// EventFilter selects events. An event must match every field that is set. The zero value selects
// the newest 100 events.
type EventFilter struct {
	Key           string
	Type          string
	Source        string
	CorrelationID string
	CausationID   string

	// TraceID selects the events that were written in one trace. It is a trace id of 32 hexadecimal
	// digits, or a W3C traceparent header that contains the trace id.
	TraceID string

	// Any selects events that have this value as their id, key, correlation id, causation id or
	// trace id.
	Any string

	// Since and Until select events that were written at Since or later, and before Until. They
	// make an answer quicker, because Events reads only this part of the log. The answer may lack
	// an event if the database's clock was set back by more than a minute.
	Since, Until time.Time

	// After is the Next of the previous page. Empty selects the first page.
	After string

	// Limit is the largest number of events in a page.
	//
	// Defaults to 100; at most 1,000.
	Limit int
}

// EventPage is a page of events.
type EventPage struct {
	Events []EventSummary `json:"events"`

	// Next is the After of the next page. It is empty if this is the last page. For a page, Events
	// reads at most 200,000 rows of the log, and stops reading after about five seconds. So a page
	// with a Next can have fewer events than Limit, or none.
	Next string `json:"next,omitempty"`

	// Looked is how many rows of the log Events read for this page. Reached is when the oldest of
	// these rows was written.
	Looked  int       `json:"looked"`
	Reached time.Time `json:"reached,omitzero"`

	// Stopped says that the page ended because Events reached its limit of rows or of time.
	Stopped bool `json:"stopped"`
}

// EventSummary describes an event and its progress.
type EventSummary struct {
	Source        string    `json:"source"`
	EventID       string    `json:"event_id"`
	Type          string    `json:"type"`
	Key           string    `json:"key,omitempty"`
	CorrelationID string    `json:"correlation_id,omitempty"`
	CausationID   string    `json:"causation_id,omitempty"`
	TraceID       string    `json:"trace_id,omitempty"`
	LoggedAt      time.Time `json:"logged_at"`

	// Seq is the event's number in the log, and Published is its state there. Both are zero if the
	// log does not have the event, because another service wrote it or retention removed it. Such
	// an event was found because it is held or was discarded.
	Seq       int64        `json:"seq,omitzero"`
	Published PublishState `json:"published,omitempty"`

	// Handlers are the handlers that have decided the event or for which it is held. They include
	// Outgoing if the event is held on its way to the broker.
	Handlers []HandlerState `json:"handlers"`
}

// Done is the state of an event that took effect at a handler.
const Done held.State = "done"

// HandlerState is the state of an event at a handler.
type HandlerState struct {
	Handler string     `json:"handler"`
	State   held.State `json:"state"`

	// Database is set in a tree: it is the number of the handler's database. 0 is the database of
	// the first inspector that was passed to Tree.
	Database int `json:"database"`
}

// Events returns the events that match, newest first. It searches the log (the table outbox). It
// also returns events that the log does not have, if they are held or were discarded. It reads the
// tables held and archive backwards, from the event that was held last. Only for CausationID,
// Events uses an index of the log. To match any other property, it reads the log from its end.
func (i *Inspector) Events(ctx context.Context, f EventFilter) (*EventPage, error) {
	s := eventsearch.Selection{
		Key: f.Key, Type: f.Type, Source: f.Source, CorrelationID: f.CorrelationID, CausationID: f.CausationID, Any: f.Any, Since: f.Since, Until: f.Until,
	}
	s.TraceID, _ = eventsearch.TraceIDOf(f.TraceID) // Validate refuses an invalid trace id
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
		s.Handlers[n] = HandlerState{Handler: h.Name, State: held.State(h.State), Database: h.Database}
	}
	return s
}
