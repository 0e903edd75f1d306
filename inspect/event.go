package inspect

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrNotFound says that nothing is left of an event where it was looked for; the error
// says where that was.
var ErrNotFound = errors.New("nothing is known of this event")

// Event returns the way of the event with the given id and source, and of every event
// with the id where source is empty. In the broker it searches for half a second at
// the most. It returns [ErrNotFound] where nothing is left of it.
//
// A ledger is looked up by source and id: where nothing but its rows is left, the
// source has to be given. An event that a subscription decides under a key of its own
// (DedupeKey) is found in the ledger only while it is held, or after it was discarded.
func (i *Inspector) Event(ctx context.Context, source, id string) (*Journey, error) {
	j := newJourney(id)
	if source != "" {
		j.Sources = []string{source}
	}
	var subs []subscription
	err := i.look(ctx, func(m *moment) (err error) {
		if subs, err = m.subscriptions(); err != nil {
			return err
		}
		return m.trace(j, source)
	})
	if err != nil {
		return nil, fmt.Errorf("inspect: event: %w", i.advise(err))
	}
	i.search(ctx, j, subs)
	if err := i.look(ctx, func(m *moment) error { return m.ledger(j) }); err != nil {
		return nil, fmt.Errorf("inspect: event: %w", i.advise(err))
	}
	j.undecided(subs)
	j.noTaker(subs)
	if j.empty(source) {
		return nil, fmt.Errorf("inspect: event %s: %w: looked %s", name(source, id), ErrNotFound, j.whereLooked(source))
	}
	return j, nil
}

func newJourney(id string) *Journey {
	return &Journey{
		ID: id, Sources: []string{}, Logged: []Logged{}, InStream: []Stored{}, Decided: []Decision{}, Held: []HeldAt{}, Discarded: []HeldAt{},
		Steps: []Step{}, Revisions: []Revision{}, Replays: []Replay{}, Audit: []Action{}, Undecided: []string{}, Cause: []Logged{},
		Caused: []Related{}, Notes: []string{},
	}
}

// trace reads what is found by the event's id.
func (m *moment) trace(j *Journey, source string) (err error) {
	if j.Logged, err = rows(m, "the log", m.sql.logged, scanLogged, source, j.ID); err != nil {
		return err
	}
	if j.Held, err = rows(m, "what is held", m.sql.eventHeld, scanHeld, source, j.ID); err != nil {
		return err
	}
	if j.Discarded, err = rows(m, "what is discarded", m.sql.eventArchived, scanHeld, source, j.ID); err != nil {
		return err
	}
	if j.Replays, err = rows(m, "replays", m.sql.replays, scanReplay, source, j.ID); err != nil {
		return err
	}
	if j.Revisions, err = rows(m, "revisions", m.sql.revisions, scanRevision, j.ID); err != nil {
		return err
	}
	j.Audit, err = rows(m, "audit", m.sql.auditEvent, scanAction, j.ID, "", "", "", nil, int64(math.MaxInt64), defaultLimit, source)
	if err != nil {
		return err
	}
	slices.Reverse(j.Audit) // the first comes first
	if err := m.relatives(j); err != nil {
		return err
	}
	if source != "" {
		return nil
	}
	sources, err := rows(m, "sources", m.sql.traces, func(row pgx.CollectableRow, s *string) error { return row.Scan(s) }, j.ID)
	for _, s := range sources {
		j.from(s)
	}
	for _, l := range j.Logged {
		j.from(l.Source)
	}
	for _, h := range slices.Concat(j.Held, j.Discarded) {
		j.from(h.Source)
	}
	return err
}

// relatives reads what caused the event, and what it caused.
func (m *moment) relatives(j *Journey) (err error) {
	if j.Caused, err = rows(m, "what it caused", m.sql.caused, scanRelated, j.ID); err != nil {
		return err
	}
	cause := ""
	for _, l := range j.Logged {
		cause = l.Causation
	}
	for _, h := range slices.Concat(j.Held, j.Discarded) {
		cause = h.Causation
	}
	if cause == "" {
		return nil
	}
	j.Cause, err = rows(m, "its cause", m.sql.logged, scanLogged, "", cause)
	if len(j.Cause) == 0 {
		j.note("its cause, %s, is not in this log: it is of another service, or older than the log", cause)
	}
	return err
}

// ledger reads what is found by the event's source and id.
func (m *moment) ledger(j *Journey) (err error) {
	keys := []string{}
	for _, s := range j.Sources {
		keys = append(keys, s+" "+j.ID)
	}
	handlers, derived := []string{}, []string{}
	for _, h := range slices.Concat(j.Held, j.Discarded) {
		if h.DedupeKey != "" {
			handlers, derived = append(handlers, h.Handler), append(derived, h.DedupeKey)
		}
	}
	if j.Decided, err = rows(m, "the ledger", m.sql.decided, scanDecision, keys, handlers, derived); err != nil {
		return err
	}
	handlers, derived = handlers[:0:0], derived[:0:0]
	for n := range j.Decided {
		d := &j.Decided[n]
		for _, h := range slices.Concat(j.Held, j.Discarded) {
			if h.Handler == d.Handler && h.DedupeKey == d.DedupeKey {
				d.State = h.State
			}
		}
		handlers, derived = append(handlers, d.Handler), append(derived, d.DedupeKey)
	}
	if len(j.Sources) == 0 {
		j.note("the ledger was not asked: it is looked up by source and id, so give the source")
	}
	j.Steps, err = rows(m, "receipts", m.sql.receipts, scanStep, handlers, derived)
	return err
}

// undecided notes which handlers should have the event, and have not decided it.
func (j *Journey) undecided(subs []subscription) {
	subjects := j.subjects()
	for _, s := range subs {
		decided := slices.ContainsFunc(j.Decided, func(d Decision) bool { return d.Handler == s.Handler })
		if !decided && slices.ContainsFunc(subjects, s.takes) {
			j.Undecided = append(j.Undecided, s.Handler)
		}
	}
	if len(j.Undecided) > 0 {
		j.note("a handler that decides under a key of its own (DedupeKey) is found only while it holds the event, or after that was discarded")
	}
}

// subjects returns those under which the event is known.
func (j *Journey) subjects() []string {
	var all []string
	for _, l := range j.Logged {
		all = append(all, l.Subject)
	}
	for _, s := range j.InStream {
		if s.Found {
			all = append(all, s.Subject)
		}
	}
	for _, h := range slices.Concat(j.Held, j.Discarded) {
		all = append(all, h.Subject)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// from notes a source.
func (j *Journey) from(source string) {
	if source != "" && !slices.Contains(j.Sources, source) {
		j.Sources = append(j.Sources, source)
	}
}

func (j *Journey) note(format string, args ...any) {
	j.Notes = append(j.Notes, fmt.Sprintf(format, args...))
}

// empty reports whether nothing is known of the event. What it caused, and an action
// without a source, are found by its id alone, and may be another's.
func (j *Journey) empty(source string) bool {
	found := slices.ContainsFunc(j.InStream, func(s Stored) bool { return s.Found })
	its := slices.ContainsFunc(j.Audit, func(a Action) bool { return a.Source == source })
	return !found && !its && len(j.Logged)+len(j.Decided)+len(j.Held)+len(j.Discarded)+len(j.Replays) == 0 &&
		(source != "" || len(j.Audit)+len(j.Caused)+len(j.Revisions) == 0)
}

// whereLooked says where nothing was found.
func (j *Journey) whereLooked(source string) string {
	places := []string{"in the log, in held, in the archive, in replays and in the audit"}
	if source == "" {
		places = append(places, "and not in the ledger, which is looked up by source and id: give the source")
	} else {
		places = append(places, "in the ledger of every handler")
	}
	for _, s := range j.InStream {
		places = append(places, fmt.Sprintf("in stream %s from %s on (%d messages)", s.Stream, s.From.Format("2006-01-02T15:04:05Z"), s.Looked))
	}
	switch {
	case !j.Broker.Asked:
		places = append(places, "and the broker was not asked")
	case j.Broker.Fault != "":
		places = append(places, "and the broker did not answer: "+j.Broker.Fault)
	case len(j.InStream) == 0:
		places = append(places, "and in no stream: when it was written is not known")
	}
	return strings.Join(places, "; ")
}

// name is how an event is written.
func name(source, id string) string {
	if source == "" {
		return id
	}
	return source + " " + id
}
