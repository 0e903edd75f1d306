package deadletter

import (
	"fmt"
	"time"

	"github.com/postroom/postroom/internal/held"
)

// Filter selects events. An event must match every field that is set. The zero value selects all
// dead events.
type Filter struct {
	IDs     []int64 `json:"ids,omitempty"`     // ids of the events in the table held
	Handler string  `json:"handler,omitempty"` // [Outgoing] for events that could not be published
	Type    string  `json:"type,omitempty"`
	Key     string  `json:"key,omitempty"`
	Class   string  `json:"class,omitempty"` // class of the last failure
	Cause   string  `json:"cause,omitempty"` // cause of a [Group]: 32 hexadecimal digits
	Source  string  `json:"source,omitempty"`
	EventID string  `json:"event_id,omitempty"`

	// Text selects events with this text in the body or in the text of a failure. The body is
	// compared byte by byte, the text of a failure without regard to case.
	Text string `json:"text,omitempty"`

	// Since and Until select events that died at Since or later, and before Until. For discarded
	// events, the time of the discard counts.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`

	// Discarded selects discarded events instead of dead events.
	Discarded bool `json:"discarded,omitempty"`

	// chosen has the events that Choose or Preview chose. It takes the place of IDs. It is not
	// exported, so that the audit and the table job do not get very many ids.
	chosen []int64
}

// IsZero reports whether the filter selects all dead events.
func (f Filter) IsZero() bool {
	return f.IDs == nil && f.Handler == "" && f.Type == "" && f.Key == "" && f.Class == "" && f.Cause == "" && f.Source == "" &&
		f.EventID == "" && f.Text == "" && f.Since.IsZero() && f.Until.IsZero() && !f.Discarded && f.chosen == nil
}

// audited returns the filter for the audit, which is kept for ever. A text that an operator searched may
// be about a person, so the audit only says that there was one.
func (f Filter) audited() Filter {
	//guard:the-audit-keeps-no-texts false
	if f.Text != "" {
		f.Text = "(not kept)"
	}
	return f
}

func (f Filter) validate() error {
	if err := f.held().Validate(); err != nil {
		return fmt.Errorf("deadletter: %w", err)
	}
	return nil
}

// arguments returns the parameters of a statement: first those of the filter, then more.
func (f Filter) arguments(more ...any) []any { return f.held().Arguments(more...) }

// held returns the filter for package held.
func (f Filter) held() held.Filter {
	h := held.Filter{
		IDs: f.IDs, Handler: f.Handler, Type: f.Type, Key: f.Key, Class: f.Class, Cause: f.Cause, Source: f.Source, EventID: f.EventID, Text: f.Text,
		Since: f.Since, Until: f.Until, Discarded: f.Discarded,
	}
	if f.chosen != nil {
		h.IDs = f.chosen
	}
	return h
}

// only returns the filter with chosen events. The list ids may be nil: then the filter selects no
// event.
func (f Filter) only(ids []int64) Filter {
	f.chosen = append([]int64{}, ids...)
	return f
}
