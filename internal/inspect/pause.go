package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/text"
)

// Pause is an operator's pause of a handler or of the relays. Package control makes and ends it.
type Pause struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // zero if the pause lasts until an operator ends it
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`

	handler string
}

// SelfPause is the pause that a handler made by itself in one process, because it fails for nearly
// all events. Class and Text describe its failure.
type SelfPause struct {
	Since time.Time `json:"since"`
	Class string    `json:"class"`
	Text  string    `json:"text"`
}

// Pauses returns a text for each pause of the handler: who or what paused it, since when, and why.
// It returns none if the handler is not paused.
func (h *Handler) Pauses() (all []string) {
	if h.Pause != nil {
		all = append(all, "is "+h.Pause.String()+resumeHandler(h.Name))
	}
	if p := h.SelfPause; p != nil {
		all = append(all, fmt.Sprintf("fails for nearly all events, and is paused since %s in %s: %s: %s",
			p.Since.UTC().Format(time.RFC3339), strings.Join(h.PausedIn, ", "), p.Class, p.Text))
	}
	if v := h.Broker; v != nil && !v.PausedUntil.IsZero() {
		all = append(all, v.pause())
	}
	return all
}

// pause says that an operator has paused the consumer at the broker.
func (v *BrokerView) pause() string {
	return fmt.Sprintf("gets no events from the broker: its consumer %s is paused there until %s", v.Consumer, v.PausedUntil.UTC().Format(time.RFC3339))
}

// selfPauses returns the processes in which a handler has paused itself, and the latest of these
// pauses.
func selfPauses(all []Process, handler string) (processes []string, last SelfPause) {
	for _, p := range all {
		if pause, ok := p.Paused[handler]; ok && p.Alive {
			processes = append(processes, p.Name)
			if pause.Since.After(last.Since) {
				last = pause
			}
		}
	}
	return processes, last
}

// relayNote returns a text for the operator's pause of the relays, or "" if there is none.
func (s *Status) relayNote() string {
	if s.Relay.Pause == nil {
		return ""
	}
	note := "the relay is " + s.Relay.Pause.String() + ": nothing is published"
	if !s.Relay.OldestUnpublishedAt.IsZero() {
		note += fmt.Sprintf("; about %d events wait, and the oldest event that waits was written %s ago", s.Relay.EstimatedUnpublished, duration(s.Relay.OldestUnpublishedAgeSeconds))
	}
	return note + "; 'postroom relay resume' ends the pause"
}

// resumeHandler returns the end of a sentence about an operator's pause: how to end the pause.
func resumeHandler(name string) string {
	return "; 'postroom handlers resume " + text.Word(name) + "' ends the pause"
}

// HandlerPauses returns a text for each pause of a handler that an operator made with Postroom.
func (s *Status) HandlerPauses() (notes []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Pauses)) {
		if name != Outgoing {
			notes = append(notes, "handler "+name+" is "+s.Pauses[name].String()+resumeHandler(name))
		}
	}
	return notes
}

// pauseNotes returns a text for each pause that an operator made, with Postroom or at the broker.
func (s *Status) pauseNotes(views map[string]*BrokerView) (notes []string) {
	if note := s.relayNote(); note != "" {
		notes = append(notes, note)
	}
	notes = append(notes, s.HandlerPauses()...)
	for _, name := range slices.Sorted(maps.Keys(views)) {
		if v := views[name]; !v.PausedUntil.IsZero() {
			notes = append(notes, "handler "+name+" "+v.pause())
		}
	}
	return notes
}

func readPauses(m *view) (map[string]*Pause, error) {
	all, err := rows(m, "pauses", m.sql.Pauses, func(row pgx.CollectableRow, p *Pause) error {
		return row.Scan(&p.handler, at(&p.Since), at(&p.Until), &p.Actor, &p.Reason)
	})
	if err != nil {
		return nil, err
	}
	pauses := make(map[string]*Pause, len(all))
	for _, p := range all {
		pauses[p.handler] = &p
	}
	return pauses, nil
}

// String says who paused, since when, until when, and why.
func (p *Pause) String() string {
	until := ""
	if !p.Until.IsZero() {
		until = " until " + p.Until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("paused by %s since %s%s: %s", p.Actor, p.Since.UTC().Format(time.RFC3339), until, p.Reason)
}
