package inspect

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/eventtype"
)

// ErrNotFound says that nothing is left of an event where it was looked for; the error
// says where that was.
var ErrNotFound = errors.New("nothing is known of this event")

func newJourney(id string) *Journey {
	return &Journey{
		ID: id, Sources: []string{}, Logged: []Logged{}, InStream: []Stored{}, Decided: []Decision{}, Held: []HeldAt{}, Discarded: []HeldAt{},
		Steps: []Step{}, Revisions: []Revision{}, Replays: []Replay{}, Audit: []Action{}, Undecided: []string{}, Cause: []Logged{},
		Caused: []Related{}, Notes: []string{},
	}
}

// trace reads what is found by the event's id.
func (m *moment) trace(j *Journey, source string) (err error) {
	if j.Logged, err = rows(m, "the log", m.sql.Logged, scanLogged, source, j.ID); err != nil {
		return err
	}
	isHeld, discarded, err := m.held.OfEvent(m.ctx, m.tx, source, j.ID)
	if err != nil {
		return err
	}
	j.Held, j.Discarded = heldAtAll(isHeld), heldAtAll(discarded)
	if j.Replays, err = rows(m, "replays", m.sql.Replays, scanReplay, source, j.ID); err != nil {
		return err
	}
	if j.Revisions, err = rows(m, "revisions", m.sql.Revisions, scanRevision, j.ID); err != nil {
		return err
	}
	j.Audit, err = rows(m, "audit", m.sql.AuditEvent, scanAction, j.ID, "", "", "", nil, int64(math.MaxInt64), defaultLimit, source)
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
	sources, err := rows(m, "sources", m.sql.Traces, func(row pgx.CollectableRow, s *string) error { return row.Scan(s) }, j.ID)
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
	if j.Caused, err = rows(m, "what it caused", m.sql.Caused, scanRelated, j.ID); err != nil {
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
	j.Cause, err = rows(m, "its cause", m.sql.Logged, scanLogged, "", cause)
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
	if j.Decided, err = rows(m, "the ledger", m.sql.Decided, scanDecision, keys, handlers, derived); err != nil {
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
	j.Steps, err = rows(m, "receipts", m.sql.Receipts, scanStep, handlers, derived)
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

// noTaker notes that no handler takes the event, where there are handlers and the event
// is known by a subject. A handler that has decided it, or holds it, has taken it.
func (j *Journey) noTaker(subs []subscription) {
	subjects := j.subjects()
	taken := len(j.Decided) > 0 || slices.ContainsFunc(slices.Concat(j.Held, j.Discarded), func(h HeldAt) bool { return h.Handler != Outgoing })
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
	text := fmt.Sprintf("no handler of this database takes %s", strings.Join(subjects, ", "))
	if len(near) == 0 {
		j.note("%s; a handler of another may", text)
		return
	}
	j.note("%s, and %s: is that a slip? Correct the handler's Types", text, strings.Join(near, ", "))
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
