package deadletter

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
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
	var faults []error
	if cause, err := hex.DecodeString(f.Cause); err != nil || f.Cause != "" && len(cause) != 16 {
		faults = append(faults, errors.New("deadletter: filter: Cause has to be 32 hexadecimal digits, as a group has"))
	}
	for name, value := range map[string]string{
		"Handler": f.Handler, "Type": f.Type, "Key": f.Key, "Class": f.Class, "Source": f.Source, "EventID": f.EventID, "Text": f.Text,
	} {
		if !isText(value) {
			faults = append(faults, fmt.Errorf("deadletter: filter: %s is no UTF-8", name))
		}
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		faults = append(faults, errors.New("deadletter: filter: Since has to be before Until"))
	}
	return errors.Join(faults...)
}

// arguments are the parameters of a statement that begins with a filter's. The server
// plans it for these values, each time: a plan for all of them would use no index.
func (f Filter) arguments(more ...any) []any {
	var cause []byte
	if f.Cause != "" {
		cause, _ = hex.DecodeString(f.Cause) // validate has seen it
	}
	args := []any{
		pgx.QueryExecModeExec, f.IDs, optional(f.Handler), optional(f.Type), optional(f.Key), optional(f.Class), cause, optional(f.Source),
		optional(f.EventID), optional(f.Text), moment(f.Since), moment(f.Until),
	}
	return append(args, more...)
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// document returns v as the database takes JSON.
func document(v any) (*string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode as JSON: %w", err)
	}
	s := string(text)
	return &s, nil
}
