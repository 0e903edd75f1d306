package deadletter

import (
	"fmt"
	"time"

	"github.com/postroom/postroom/internal/held"
)

// Filter says which events are meant: those that have every property that is set. The
// zero value means all.
type Filter struct {
	IDs     []int64 `json:"ids,omitempty"`     // the ids that the events have in held
	Handler string  `json:"handler,omitempty"` // [Outgoing] for events that could not be published
	Type    string  `json:"type,omitempty"`
	Key     string  `json:"key,omitempty"`
	Class   string  `json:"class,omitempty"` // of the last failure
	Cause   string  `json:"cause,omitempty"` // of a [Group]: 32 hexadecimal digits
	Source  string  `json:"source,omitempty"`
	EventID string  `json:"event_id,omitempty"`

	// Text is looked for in the body, byte by byte, and in the texts of the failures,
	// in any case.
	Text string `json:"text,omitempty"`

	// Since and Until bound the time of death, or of the discarding: from Since on, and
	// before Until.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`

	// Discarded means discarded events in place of dead ones.
	Discarded bool `json:"discarded,omitempty"`
}

// IsZero reports whether the filter means all dead events.
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

// arguments are the parameters of a statement that begins with a filter's.
func (f Filter) arguments(more ...any) []any { return held.Filter(f).Arguments(more...) }
