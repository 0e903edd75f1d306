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
}

// IsZero reports whether the filter selects all dead events.
func (f Filter) IsZero() bool {
	return f.IDs == nil && f.Handler == "" && f.Type == "" && f.Key == "" && f.Class == "" && f.Cause == "" && f.Source == "" &&
		f.EventID == "" && f.Text == "" && f.Since.IsZero() && f.Until.IsZero() && !f.Discarded
}

func (f Filter) validate() error {
	if err := held.Filter(f).Validate(); err != nil {
		return fmt.Errorf("deadletter: %w", err)
	}
	return nil
}

// arguments returns the parameters of a statement: first those of the filter, then more.
func (f Filter) arguments(more ...any) []any { return held.Filter(f).Arguments(more...) }
