package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/jsremedy"
)

// Finding is one fault of the system.
type Finding struct {
	Code    string `json:"code"`              // one of the constants Found…, for scripts
	Handler string `json:"handler,omitempty"` // the handler with the fault
	Text    string `json:"text"`              // the fault
	Remedy  string `json:"remedy"`            // what to do next
}

// The codes of findings.
const (
	FoundNoRelay         = "no_relay"         // no relay leads
	FoundUnpublished     = "unpublished"      // an event has waited for more than ten seconds to be published
	FoundDead            = "dead"             // events are dead: an operator must decide about them
	FoundNoProcess       = "no_process"       // no living process runs a handler
	FoundOverdue         = "overdue"          // events are due, and no process runs them
	FoundPaused          = "paused"           // a handler fails for nearly all events, and has paused itself
	FoundNoReader        = "no_reader"        // no process reads the stream of an ordered handler
	FoundReplayIdle      = "replay_idle"      // a replay has not ended, and no process makes its steps
	FoundNoStream        = "no_stream"        // a handler's stream does not exist
	FoundStreamRecreated = "stream_recreated" // a handler's stream was deleted and created again
	FoundNoConsumer      = "no_consumer"      // a handler's consumer is gone
	FoundUnknownType     = "unknown_type"     // a handler asks for a type that is probably misspelt
	FoundNoMatch         = "no_match"         // a handler, or a filter of webhooks, has matched no event for a day, though others came
	FoundSagaStuck       = "saga_stuck"       // instances of a saga wait for longer than its definition allows, or after a deadline
	FoundStreamRefuses   = "stream_refuses"   // a stream that stores events takes none, or no stream takes them
	FoundRestored        = "restored"         // the relay's state comes from another cluster: the database was restored
	FoundMoved           = "moved"            // the log has transaction ids of another server
	FoundBroker          = "broker"           // the broker could not be asked
)

// UnpublishedFor is how long an event may wait to be published before that is a finding.
const UnpublishedFor = 10 * time.Second

// Times after which other delays are a finding.
const (
	overdueFor = 30 * time.Second
	idleFor    = 30 * time.Second
)

// findingList collects findings.
type findingList struct{ all []Finding }

func (l *findingList) add(code, handler, text, do string) {
	l.all = append(l.all, Finding{Code: code, Handler: handler, Text: text, Remedy: do})
}

// findings returns the findings, the most urgent first.
func findings(s *Status, subs []subscription, views map[string]*BrokerView) *findingList {
	l := &findingList{all: []Finding{}} // not null in JSON
	l.checkRelay(s)
	if s.Broker.Fault != "" {
		cause, do := jsremedy.Split(s.Broker.Fault)
		l.add(FoundBroker, "", "the broker could not be asked: "+cause, cmp.Or(do, "is it running, and is the URL right?"))
	}
	for _, handler := range handlersOf(s, subs) {
		l.checkHandler(s, subs, views, handler)
	}
	for _, h := range s.Held {
		if n := h.Events(held.Dead); n > 0 {
			l.add(FoundDead, h.Handler, fmt.Sprintf("%s dead %s", eventsAre(n, h.More(held.Dead)), where(h.Handler)),
				"'postroom dead groups' shows their causes; then replay or discard them")
		}
	}
	for _, r := range s.Replays {
		if r.IdleSeconds > idleFor.Seconds() {
			l.add(FoundReplayIdle, "", fmt.Sprintf("replay %d has been idle for %s: no process runs it", r.ID, duration(r.IdleSeconds)),
				fmt.Sprintf("continue it: 'postroom replay resume %d'; or end it: 'postroom replay cancel %d'", r.ID, r.ID))
		}
	}
	return l
}

func (l *findingList) checkRelay(s *Status) {
	r := s.Relay
	replaces := "if this database replaces the original, start a relay, which then takes the log over; if it is a copy, give it another identity before any program connects it to the broker: UPDATE " +
		s.schema + ".instance SET id = gen_random_uuid()"
	switch {
	case r.restored:
		l.add(FoundRestored, "", "the relay's state comes from another cluster: this database was moved here, and no relay has led since. Its inboxes would share the consumers of the original", replaces)
	case r.ahead && r.Leads:
		l.add(FoundMoved, "", "the log has transaction ids that this server has not reached, so its rows come from another server: the relay that leads does not find those of its events that became visible late",
			"disable the subscription that copies rows into this database, if there is one, and restart the relay that leads: the next term finds these events")
	case r.ahead:
		l.add(FoundMoved, "", fmt.Sprintf("the log has transaction ids that this server has not reached: its rows come from another server (a relay last led on timeline %d, and this server has timeline %d), and no relay has led since. Its inboxes would share the consumers of the original", r.timeline, r.serverTimeline),
			replaces)
	}
	//guard:a-pause-of-the-relays-is-no-fault false
	if r.Pause != nil { // the events wait for the operator
		return
	}
	if !r.Leads && (r.Epoch > 0 || r.EstimatedUnpublished > 0 || len(heldOf(s.Held, Outgoing).States) > 0) {
		since := "no relay has led yet"
		switch {
		case r.Epoch > 0 && r.Owner == "":
			since = "the last leader gave its lease back"
		case r.Epoch > 0:
			since = fmt.Sprintf("the lease of the last leader ended %s ago", duration(-r.RemainingSeconds))
		}
		switch {
		case r.OldestUnpublishedAgeSeconds > UnpublishedFor.Seconds():
			since += ", and the oldest event that is not published has waited for " + duration(r.OldestUnpublishedAgeSeconds)
		case !r.OldestUnpublishedAt.IsZero():
			since += ", and events wait"
		}
		l.add(FoundNoRelay, "", "no relay leads, so nothing is published: "+since,
			"start 'postroom relay', or relay.Relay.Run in a program; if a relay runs, its log says why it does not lead")
	}
	if r.Leads && r.OldestUnpublishedAgeSeconds > UnpublishedFor.Seconds() {
		l.add(FoundUnpublished, "", fmt.Sprintf("about %d events are not published, the oldest for %s", r.EstimatedUnpublished, duration(r.OldestUnpublishedAgeSeconds)),
			"look at /readyz and the log of the relay that leads, and at the streams: one may be full or without a leader")
	}
	if late := heldOf(s.Held, Outgoing).overdue(); r.Leads && late > overdueFor.Seconds() {
		l.add(FoundOverdue, Outgoing, fmt.Sprintf("held outgoing events have been due for %s", duration(late)),
			"look at /readyz and the log of the relay: perhaps it cannot reach the broker")
	}
}

func (l *findingList) checkHandler(s *Status, subs []subscription, views map[string]*BrokerView, handler string) {
	its := heldOf(s.Held, handler)
	processes := aliveProcesses(s.Processes, handler)
	paused, last := selfPauses(s.Processes, handler)
	sub := slices.IndexFunc(subs, func(sub subscription) bool { return sub.Handler == handler })
	switch late := its.overdue(); {
	case len(processes) == 0 && its.Events() > its.Events(held.Dead):
		l.add(FoundNoProcess, handler, fmt.Sprintf("no living process runs %s: %s for it, and new ones do not reach it", handler, eventsAre(its.Events(), its.More())+" held"),
			"start a process that runs it; was it renamed? A renamed handler is another handler")
	case len(processes) == 0 && sub >= 0:
		l.add(FoundNoProcess, handler, fmt.Sprintf("no living process runs %s: events do not reach it", handler),
			"start a process that runs it; if the handler was removed for good, delete its consumer and its row of subscription")
	case len(paused) > 0:
		l.add(FoundPaused, handler, fmt.Sprintf("%s fails for nearly all events and is paused in %s: %s: %s", handler, strings.Join(paused, ", "), last.Class, last.Text),
			"bring back the system that it needs: the handler tries one event a minute, and resumes by itself")
	//guard:a-pause-of-a-handler-is-no-fault false
	case s.Pauses[handler] != nil: // the events wait for the operator
	case late > overdueFor.Seconds():
		text := fmt.Sprintf("events held for %s have been due for %s, and no process runs them", handler, duration(late))
		if kind := s.overdueTypes[handler]; kind != "" {
			text += "; the first has the type " + kind
		}
		l.add(FoundOverdue, handler, text, "its processes are busy, or none knows the type of these events: look at their logs, give it more workers, or start a process that knows the type")
	case sub >= 0 && subs[sub].Ordered && !subs[sub].HasReader:
		l.add(FoundNoReader, handler, fmt.Sprintf("no process reads stream %s for the ordered handler %s", subs[sub].Stream, handler),
			"look at the logs of its processes: "+listNames(processes))
	}
	if v := views[handler]; v != nil && v.missing.Code != "" {
		l.all = append(l.all, v.missing)
	}
}

// handlersOf returns every handler that is subscribed or for which events are held.
func handlersOf(s *Status, subs []subscription) []string {
	var all []string
	for _, sub := range subs {
		all = append(all, sub.Handler)
	}
	for _, h := range s.Held {
		if h.Handler != Outgoing {
			all = append(all, h.Handler)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// eventsAre returns the beginning of a sentence, such as "2 events are".
func eventsAre(n int64, more bool) string {
	switch {
	case more:
		return fmt.Sprintf("%d events or more are", n)
	case n == 1:
		return "1 event is"
	}
	return fmt.Sprintf("%d events are", n)
}

func where(handler string) string {
	if handler == Outgoing {
		return "on their way to the broker"
	}
	return "at " + handler
}

// duration formats a duration for a person.
func duration(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

func listNames(all []string) string {
	const most = 3
	if len(all) <= most {
		return fmt.Sprint(all)
	}
	return fmt.Sprintf("%v and %d others", all[:most], len(all)-most)
}
