package inspect

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/eventtype"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/identity"
)

// ErrNotFound says that the event was not found. The error names the places that were searched.
var ErrNotFound = errors.New("nothing is known about this event")

func newEventTrace(id string) *EventTrace {
	return &EventTrace{
		EventID: id, Sources: []string{}, LogEntries: []LogEntry{}, Streams: []StreamSearch{}, Decisions: []Decision{}, Held: []held.Row{}, Discarded: []held.Row{},
		Steps: []Step{}, Revisions: []Revision{}, Replays: []ReplayItem{}, Republishes: []RepublishItem{}, Audit: []AuditEntry{}, Undecided: []string{}, CausedBy: []LogEntry{},
		Caused: []RelatedEvent{}, Sagas: []SagaStep{}, Notes: []string{},
	}
}

// readByID reads all rows that can be found by the event's id.
func (m *view) readByID(j *EventTrace, source string) (err error) {
	if j.LogEntries, err = rows(m, "the log", m.sql.LogEntries, scanLogEntry, source, j.EventID); err != nil {
		return err
	}
	isHeld, discarded, err := m.held.OfEvent(m.ctx, m.tx, source, j.EventID)
	if err != nil {
		return err
	}
	j.Held, j.Discarded = isHeld, discarded
	if j.Replays, err = rows(m, "replays", m.sql.ReplayItems, scanReplayItem, source, j.EventID); err != nil {
		return err
	}
	if len(j.LogEntries) > 0 {
		seqs := make([]int64, len(j.LogEntries))
		for n, l := range j.LogEntries {
			seqs[n] = l.Seq
		}
		if j.Republishes, err = rows(m, "requests to publish again", m.sql.EventRepublishes, scanRepublishItem, seqs); err != nil {
			return err
		}
	}
	if j.Revisions, err = rows(m, "revisions", m.sql.Revisions, scanRevision, j.EventID); err != nil {
		return err
	}
	j.Audit, err = rows(m, "audit", m.sql.AuditEvent, scanAuditEntry, j.EventID, "", "", "", nil, int64(math.MaxInt64), defaultLimit, source, 0)
	if err != nil {
		return err
	}
	j.Audit = slices.DeleteFunc(j.Audit, func(a AuditEntry) bool { return a.ReplayID != 0 && a.EventID == "" }) // Replays has them
	slices.Reverse(j.Audit)                                                                                     // the oldest first
	if err := m.readRelated(j); err != nil {
		return err
	}
	if source != "" {
		return nil
	}
	sources, err := rows(m, "sources", m.sql.Sources, func(row pgx.CollectableRow, s *string) error { return row.Scan(s) }, j.EventID)
	for _, s := range sources {
		j.addSource(s)
	}
	for _, l := range j.LogEntries {
		j.addSource(l.Source)
	}
	for _, h := range slices.Concat(j.Held, j.Discarded) {
		j.addSource(h.Source)
	}
	return err
}

// readRelated reads the events that caused this event, and the events that this event caused. If
// several sources have an event with this id, each event may have its own cause.
func (m *view) readRelated(j *EventTrace) (err error) {
	if j.Caused, err = rows(m, "what it caused", m.sql.CausedEvents, scanRelatedEvent, j.EventID); err != nil {
		return err
	}
	var causes []string
	for _, l := range j.LogEntries {
		causes = append(causes, l.CausationID)
	}
	for _, h := range slices.Concat(j.Held, j.Discarded) {
		causes = append(causes, h.CausationID)
	}
	slices.Sort(causes)
	for _, cause := range slices.Compact(causes) {
		if cause == "" {
			continue
		}
		found, err := rows(m, "its cause", m.sql.LogEntries, scanLogEntry, "", cause)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			j.note("its cause, %s, is not in this log: another service wrote it, or retention removed it", cause)
		}
		j.CausedBy = append(j.CausedBy, found...)
	}
	return nil
}

// readLedger reads the event's rows in the inbox, its receipts, and its steps of sagas.
func (m *view) readLedger(j *EventTrace) (err error) {
	keys := []string{}
	for _, s := range j.Sources {
		//guard:a-source-with-spaces-is-found 2 = @1+" "+identity.Bounded(@2)
		keys = append(keys, identity.DedupeKey(s, j.EventID))
	}
	handlers, derived := []string{}, []string{}
	for _, h := range slices.Concat(j.Held, j.Discarded) {
		if h.DedupeKey != "" {
			handlers, derived = append(handlers, h.Handler), append(derived, h.DedupeKey)
		}
	}
	if j.Decisions, err = rows(m, "the inbox", m.sql.Decisions, scanDecision, keys, handlers, derived); err != nil {
		return err
	}
	handlers, derived = handlers[:0:0], derived[:0:0]
	for n := range j.Decisions {
		d := &j.Decisions[n]
		for _, h := range slices.Concat(j.Held, j.Discarded) {
			if h.Handler == d.Handler && h.DedupeKey == d.DedupeKey {
				d.State = h.State
			}
		}
		handlers, derived = append(handlers, d.Handler), append(derived, d.DedupeKey)
	}
	if len(j.Sources) == 0 {
		j.note("the inbox was not searched: a search there needs source and id, so give the source")
	}
	if j.Steps, err = rows(m, "receipts", m.sql.Steps, scanStep, handlers, derived); err != nil {
		return err
	}
	return m.readSagas(j)
}

// noteUndecided lists the handlers that should get the event and have not decided it.
func (j *EventTrace) noteUndecided(subs []subscription) {
	subjects := j.subjects()
	for _, s := range subs {
		decided := slices.ContainsFunc(j.Decisions, func(d Decision) bool { return d.Handler == s.Handler })
		if !decided && slices.ContainsFunc(subjects, s.takes) {
			j.Undecided = append(j.Undecided, s.Handler)
		}
	}
	if len(j.Undecided) > 0 {
		j.note("a handler with a DedupeKey is found only while the event is held for it, or after the event was discarded")
	}
}

// noteNoHandler adds a note if there are handlers, a subject of the event is known, and no handler
// reads the event. A handler that decided the event, or for which it is held, counts as a reader.
func (j *EventTrace) noteNoHandler(subs []subscription) {
	subjects := j.subjects()
	taken := len(j.Decisions) > 0 || slices.ContainsFunc(slices.Concat(j.Held, j.Discarded), func(h held.Row) bool { return h.Handler != Outgoing })
	if taken || len(subs) == 0 || len(subjects) == 0 {
		return
	}
	var near []string
	for _, sub := range subs {
		if slices.ContainsFunc(subjects, sub.takes) {
			return
		}
		for _, subject := range subjects {
			if typ := eventtype.Near(subject, sub.Types); typ != "" {
				near = append(near, fmt.Sprintf("%s asks for %s", sub.Handler, typ))
			}
		}
	}
	text := fmt.Sprintf("no handler of this database reads %s", strings.Join(subjects, ", "))
	if len(near) == 0 {
		j.note("%s; a handler of another database may", text)
		return
	}
	j.note("%s, and %s: is that a misspelling? Correct the handler's Types", text, strings.Join(near, ", "))
}

// subjects returns the known subjects of the event.
func (j *EventTrace) subjects() []string {
	var all []string
	for _, l := range j.LogEntries {
		all = append(all, l.Subject)
	}
	for _, s := range j.Streams {
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

// addSource adds a source to Sources.
func (j *EventTrace) addSource(source string) {
	if source != "" && !slices.Contains(j.Sources, source) {
		j.Sources = append(j.Sources, source)
	}
}

func (j *EventTrace) note(format string, args ...any) {
	j.Notes = append(j.Notes, fmt.Sprintf(format, args...))
}

// empty reports whether nothing is known about the event. If source is given, caused events,
// revisions, and actions without a source do not count: they may belong to another source.
func (j *EventTrace) empty(source string) bool {
	found := slices.ContainsFunc(j.Streams, func(s StreamSearch) bool { return s.Found })
	its := slices.ContainsFunc(j.Audit, func(a AuditEntry) bool { return a.Source == source })
	return !found && !its && len(j.LogEntries)+len(j.Decisions)+len(j.Held)+len(j.Discarded)+len(j.Replays) == 0 &&
		(source != "" || len(j.Audit)+len(j.Caused)+len(j.Revisions) == 0)
}

// placesSearched lists the places in which the event was not found.
func (j *EventTrace) placesSearched(source string) string {
	places := []string{"in the log, in held, in the archive, in replays and in the audit"}
	if source == "" {
		places = append(places, "and not in the inbox, where a search needs source and id: give the source")
	} else {
		places = append(places, "in the inbox of every handler")
	}
	for _, s := range j.Streams {
		places = append(places, fmt.Sprintf("in stream %s from %s on (%d messages)", s.Stream, s.From.Format("2006-01-02T15:04:05Z"), s.Examined))
	}
	switch {
	case !j.Broker.Asked:
		places = append(places, "and the broker was not asked")
	case j.Broker.Fault != "":
		places = append(places, "and the broker did not answer: "+j.Broker.Fault)
	case len(j.Streams) == 0:
		places = append(places, "and in no stream, because it is not known when the event was written")
	}
	return strings.Join(places, "; ")
}

// eventName formats an event's source and id for a person.
func eventName(source, id string) string {
	if source == "" {
		return id
	}
	return source + " " + id
}
