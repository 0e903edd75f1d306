package deadletter

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/text"
)

// Filter selects events. An event must match every field that is set. The zero value selects all
// dead events for what only reads. [Store.Discard], [Store.Reopen] and [Store.CreateReplay] refuse it
// with [ErrNoFilter], so that a condition that is empty by mistake changes nothing.
type Filter struct {
	// All says that the filter selects all events on purpose. It stands alone, or beside Discarded.
	All bool `json:"all,omitempty"`

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
	// exported, so that the audit and the table replay do not get very many ids.
	chosen []int64
}

// IsZero reports whether the filter has no condition, so that it selects all dead events, and does not
// say All.
func (f Filter) IsZero() bool { return !f.All && !f.Discarded && !f.selects() }

// selects reports whether the filter has a condition.
func (f Filter) selects() bool {
	return f.IDs != nil || f.Handler != "" || f.Type != "" || f.Key != "" || f.Class != "" || f.Cause != "" || f.Source != "" ||
		f.EventID != "" || f.Text != "" || !f.Since.IsZero() || !f.Until.IsZero() || f.chosen != nil
}

// changes returns the fault that a valid filter has for a change of the events.
func (f Filter) changes() error {
	//guard:a-filter-without-a-condition-changes-nothing false
	if !f.All && !f.selects() {
		return fmt.Errorf("deadletter: %w", ErrNoFilter)
	}
	return nil
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

// validate says what is wrong with the filter.
func (f Filter) validate() error {
	var faults []error
	if cause, err := hex.DecodeString(f.Cause); err != nil || f.Cause != "" && len(cause) != 16 {
		faults = append(faults, errors.New("deadletter: filter: Cause has to be 32 hexadecimal digits, as a group has"))
	}
	for name, value := range map[string]string{
		"Handler": f.Handler, "Type": f.Type, "Key": f.Key, "Class": f.Class, "Source": f.Source, "EventID": f.EventID, "Text": f.Text,
	} {
		if !text.Valid(value) {
			faults = append(faults, fmt.Errorf("deadletter: filter: %s is no UTF-8", name))
		}
	}
	if f.All && f.chosen == nil && f.selects() {
		faults = append(faults, errors.New("deadletter: filter: All selects all events: leave out the other conditions"))
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		faults = append(faults, errors.New("deadletter: filter: Since has to be before Until"))
	}
	return errors.Join(faults...)
}

// replayable returns the fault of a filter for a replay, its preview or its dry run.
func (f Filter) replayable() error {
	//guard:discarded-events-are-not-replayed false
	if f.Discarded {
		return errors.New("deadletter: reopen discarded events before you replay them")
	}
	return f.validate()
}

// arguments returns the arguments of a query: a mode of the driver, the filter's parameters $1 to
// $11, and the given ones (more). Call validate first. The mode makes the server plan the statement
// for these values each time, because a general plan would use no index.
func (f Filter) arguments(more ...any) []any {
	ids := f.IDs
	if f.chosen != nil {
		ids = f.chosen
	}
	var cause []byte
	if f.Cause != "" {
		cause, _ = hex.DecodeString(f.Cause) // validate has checked it
	}
	args := []any{
		pgx.QueryExecModeExec, ids, given(f.Handler), given(f.Type), given(f.Key), given(f.Class), cause, given(f.Source),
		given(f.EventID), given(f.Text), timeOrNil(f.Since), timeOrNil(f.Until),
	}
	return append(args, more...)
}

// given returns a pointer to v, or nil, which is NULL, if v is the zero value.
func given[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// timeOrNil is given for a time, whose zero value may be in any location.
func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// only returns the filter with chosen events. The list ids may be nil: then the filter selects no
// event.
func (f Filter) only(ids []int64) Filter {
	f.chosen = append([]int64{}, ids...)
	return f
}
