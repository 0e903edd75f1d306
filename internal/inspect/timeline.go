package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom/internal/held"
)

// TimelineEntry is one thing that happened to an event.
type TimelineEntry struct {
	At    time.Time `json:"at"`
	Where string    `json:"where"` // log, stream followed by its name, replay, republish, saga, operator, or a handler's name, which is Outgoing for an outgoing event
	Text  string    `json:"text"`
}

// Timeline returns what happened to the event, oldest first.
func (j *EventTrace) Timeline() []TimelineEntry {
	var all []TimelineEntry
	add := func(at time.Time, where, format string, args ...any) {
		if !at.IsZero() {
			all = append(all, TimelineEntry{At: at, Where: where, Text: fmt.Sprintf(format, args...)})
		}
	}
	for _, l := range j.LogEntries {
		add(l.CreatedAt, "log", "written by %s as %s, seq %d%s", l.Source, l.Type, l.Seq, key(l.Key))
		add(l.NotBefore, "log", "scheduled for now")
	}
	for _, s := range j.Streams {
		if s.Found {
			add(s.StoredAt, "stream "+s.Stream, "stored, sequence %d", s.Seq)
		}
	}
	for _, h := range slices.Concat(j.Held, j.Discarded) {
		j.addHeld(add, h)
	}
	for _, d := range j.Decisions {
		if d.State == "" { // an event with a State is held or was discarded; addHeld adds it
			add(d.At, d.Handler, "took effect%s", because(d.Result))
		}
	}
	for _, s := range j.Steps {
		add(s.StartedAt, s.Handler, "step %s begun, key %s%s", s.Step, s.Key, revision(s.Revision))
		add(s.DoneAt, s.Handler, "step %s done%s", s.Step, revision(s.Revision))
	}
	for _, s := range j.Sagas {
		add(s.At, "saga", "%s", s)
	}
	for _, r := range j.Revisions {
		if j.hasAction(r.AuditID) { // the timeline already has the action
			continue
		}
		add(r.ReplacedAt, "operator", "edited: revision %d was replaced (audit %d)", r.Revision, r.AuditID)
	}
	j.addPastFailures(add)
	for _, r := range j.Replays {
		add(r.CreatedAt, "operator", "put into replay %d by %s%s", r.ReplayID, r.Actor, because(r.Reason))
		add(r.ReleasedAt, "replay", "released by replay %d", r.ReplayID)
		add(r.EndedAt, "replay", "replay %d: %s", r.ReplayID, strings.ReplaceAll(r.Outcome, "_", " "))
	}
	for _, r := range j.Republishes {
		add(r.CreatedAt, "operator", "request %d by %s to publish it again%s", r.RequestID, r.Actor, because(r.Reason))
		add(r.EndedAt, "republish", "request %d to publish again: %s", r.RequestID, r.outcome())
	}
	for _, a := range j.Audit {
		add(a.At, "operator", "%s by %s%s%s", a.Action, a.Actor, because(a.Reason), j.replaced(a))
	}
	for _, c := range j.Caused {
		add(c.CreatedAt, "log", "caused %s %s", c.Type, c.EventID)
	}
	slices.SortStableFunc(all, func(a, b TimelineEntry) int { return a.At.Compare(b.At) })
	return all
}

func (j *EventTrace) addHeld(add func(at time.Time, where, format string, args ...any), h held.Row) {
	where := h.Handler
	add(h.HeldAt, where, "held%s", key(h.BlockedKey))
	for n, f := range h.Failures {
		add(f.At, where, "failed%s: %s: %s", attempt(h, n), f.Class, firstLine(f.Text))
	}
	attempts := fmt.Sprintf("%d attempts", h.Attempts)
	if h.Attempts == 1 {
		attempts = "1 attempt"
	}
	add(h.DeadAt, where, "dead after %s, %s", attempts, h.Class)
	given := "discarded"
	if h.DeadAt.IsZero() {
		given = "cancelled"
	}
	add(h.DiscardedAt, where, "%s (audit %d)", given, h.AuditID)
}

// addPastFailures adds failures that the table held no longer has: failures before a replay or
// before a success. It adds each failure once, even if several tables have it.
func (j *EventTrace) addPastFailures(add func(at time.Time, where, format string, args ...any)) {
	type failure struct {
		at             time.Time
		handler, class string
	}
	told := make(map[failure]bool)
	for _, h := range slices.Concat(j.Held, j.Discarded) {
		for _, f := range h.Failures {
			told[failure{f.At, h.Handler, f.Class}] = true
		}
	}
	tell := func(handler string, failures []held.Failure) {
		for _, f := range failures {
			if one := (failure{f.At, handler, f.Class}); !told[one] {
				told[one] = true
				add(f.At, handler, "failed: %s: %s", f.Class, firstLine(f.Text))
			}
		}
	}
	for _, r := range j.Replays {
		tell(r.Handler, r.Failures)
	}
	for _, d := range j.Decisions {
		tell(d.Handler, d.Failures)
	}
	for _, l := range j.LogEntries {
		tell(Outgoing, l.Failures)
	}
}

func (j *EventTrace) hasAction(audit int64) bool {
	return slices.ContainsFunc(j.Audit, func(a AuditEntry) bool { return a.ID == audit })
}

// outcome says what happened to the event in a republish that has ended.
func (r RepublishItem) outcome() string {
	if r.Passed {
		return r.State + "; the relay was done with this event"
	}
	return r.State + " before this event was published again"
}

// replaced says which revision an action replaced, if the action was an edit.
func (j *EventTrace) replaced(a AuditEntry) string {
	for _, r := range j.Revisions {
		if r.AuditID == a.ID {
			return fmt.Sprintf(" (revision %d was replaced)", r.Revision)
		}
	}
	return ""
}

// attempt says in which attempt failure n happened. The attempt is known only if h has exactly one
// failure for each attempt. Otherwise attempt returns "".
func attempt(h held.Row, n int) string {
	if len(h.Failures) != h.Attempts {
		return ""
	}
	return fmt.Sprintf(" at attempt %d", n+1)
}

func key(k string) string {
	if k == "" {
		return ""
	}
	return ", key " + k
}

func revision(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", revision %d", n)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + firstLine(reason)
}

func firstLine(text string) string {
	line, _, more := strings.Cut(text, "\n")
	if more {
		line += " …"
	}
	return line
}
