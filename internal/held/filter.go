package held

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/text"
)

// Filter selects dead or discarded events. An event must match every field that is set. The zero
// value selects all dead events.
type Filter struct {
	IDs     []int64
	Handler string
	Type    string
	Key     string
	Class   string // the class of the last failure
	Cause   string // 32 hexadecimal digits
	Source  string
	EventID string
	Text    string // a text in the body or in the texts of the failures

	// Since and Until select events that died or were discarded at Since or later, and
	// before Until.
	Since, Until time.Time

	Discarded bool // selects discarded events instead of dead events
}

// Validate says what is wrong with the filter.
func (f Filter) Validate() error {
	var faults []error
	if cause, err := hex.DecodeString(f.Cause); err != nil || f.Cause != "" && len(cause) != 16 {
		faults = append(faults, errors.New("filter: Cause has to be 32 hexadecimal digits, as a group has"))
	}
	for name, value := range map[string]string{
		"Handler": f.Handler, "Type": f.Type, "Key": f.Key, "Class": f.Class, "Source": f.Source, "EventID": f.EventID, "Text": f.Text,
	} {
		if !text.Valid(value) {
			faults = append(faults, fmt.Errorf("filter: %s is no UTF-8", name))
		}
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		faults = append(faults, errors.New("filter: Since has to be before Until"))
	}
	return errors.Join(faults...)
}

// Arguments returns the arguments of a query: a mode of the driver, the filter's parameters $1 to
// $11, and the given ones (more). Call Validate first. The mode makes the server plan the statement
// for these values each time, because a general plan would use no index.
func (f Filter) Arguments(more ...any) []any {
	var cause []byte
	if f.Cause != "" {
		cause, _ = hex.DecodeString(f.Cause) // Validate has checked it
	}
	args := []any{
		pgx.QueryExecModeExec, f.IDs, given(f.Handler), given(f.Type), given(f.Key), given(f.Class), cause, given(f.Source),
		given(f.EventID), given(f.Text), timeOrNil(f.Since), timeOrNil(f.Until),
	}
	return append(args, more...)
}

// given returns a property. If it is not set, given returns nil, NULL in SQL.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
