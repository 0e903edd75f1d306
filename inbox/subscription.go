package inbox

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/postroom/postroom"
)

// From says where a new subscription begins in its stream.
type From int

const (
	// All begins with the first event that the stream still has.
	All From = iota
	// OnlyNew begins with the first event after the subscription was made. Where
	// its consumer is lost while no process runs, it begins anew.
	OnlyNew
)

// Subscription says which events a handler gets. Name and Stream are required,
// and so is one of Types and Subjects.
type Subscription struct {
	// Name is the handler's own: stable, unique within this database, and never
	// derived from the program's text. Events are decided once for each name; a
	// handler that is renamed is another handler and gets all events again. At
	// most 128 letters, digits, '.', '_' and '-'.
	Name string

	// Stream is the JetStream stream to read.
	Stream string

	// Types are the event types to handle, where subject and type are the same,
	// as they are unless the producer chose otherwise. Events of another type
	// on these subjects are acknowledged and counted, not handled.
	//
	// A type that is added later begins where the handler stands: older events
	// of it are not fetched. A type that is removed stays in the consumer's
	// filter, for processes that still handle it; its events are handed back
	// until the filter is narrowed by hand.
	Types []string

	// Subjects are the NATS subjects to read, with wildcards, instead of Types.
	// Every event on them is handled.
	Subjects []string

	// From says where a new subscription begins; it has no meaning for one that
	// exists.
	//
	// Defaults to All.
	From From

	// Workers is how many events are handled at a time. Each uses a connection
	// of the pool.
	//
	// Defaults to what the pool has left, divided among the handlers that do not
	// say; at least 1 and at most 32.
	Workers int

	// Schedule is how long to wait after each failed attempt.
	//
	// Defaults to postroom.DefaultBackoff.
	Schedule postroom.Backoff
}

var (
	validName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	validStream = regexp.MustCompile(`^[^\s.*>/\\]{1,255}$`)
)

func (s Subscription) validate() error {
	var faults []error
	add := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("subscription %q: "+format, append([]any{s.Name}, args...)...))
	}
	if !validName.MatchString(s.Name) {
		add("Name must be 1 to 128 letters, digits, '.', '_' and '-'")
	}
	if !validStream.MatchString(s.Stream) {
		add("Stream must be the name of a JetStream stream")
	}
	if (len(s.Types) == 0) == (len(s.Subjects) == 0) {
		add("set either Types or Subjects")
	}
	for _, t := range s.Types {
		if t == "" || (postroom.Event{Type: t}).Validate() != nil {
			add("Types: %q is no event type", t)
		}
	}
	if s.From != All && s.From != OnlyNew {
		add("From must be inbox.All or inbox.OnlyNew")
	}
	if s.Workers < 0 {
		add("Workers is %d, want none or more", s.Workers)
	}
	if s.Schedule != nil && len(s.Schedule) == 0 {
		add("Schedule is empty; leave it nil for the default")
	}
	for _, wait := range s.Schedule {
		if wait < time.Millisecond {
			add("Schedule has a wait of %s, want at least 1ms", wait)
		}
	}
	return errors.Join(faults...)
}

// filter returns the subjects to read.
func (s Subscription) filter() []string {
	if len(s.Types) > 0 {
		return s.Types
	}
	return s.Subjects
}
