package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
)

// From says where a new subscription begins in its stream.
type From int

const (
	// All begins with the first event that the stream still has.
	All From = iota
	// OnlyNew begins with the first event after the subscription was made.
	OnlyNew
)

// Order says whether the events of a key take effect in their order, and what becomes
// of a key whose event is dead.
type Order int

const (
	// Unordered events are handled as they come, those of a key side by side.
	Unordered Order = iota

	// HoldKey handles the events of a key one after the other, in the order of the
	// stream. While one is tried again, later ones of its key wait in held, and they
	// go on waiting when it is dead, until an operator decides. Events of other keys,
	// and those without one, wait for nothing.
	HoldKey

	// SkipKey is as HoldKey, but later events of a key go on when one is dead.
	SkipKey
)

// Subscription says which events a handler gets, and how it is run. Name is
// required, and so are Stream and one of Types and Subjects; without any of the
// three a handler gets what [Inbox.Accept] is given for it.
//
// Wide because each field is a choice of its own.
type Subscription struct {
	// Name is the handler's own: stable, unique within this database, and never
	// derived from the program's text. Events are decided once for each name; a
	// handler that is renamed is another handler and gets all events again. At
	// most 128 letters, digits, '.', '_' and '-'.
	Name string

	// Stream is the JetStream stream to read.
	Stream string

	// Types are the event types to handle, where subject and type are the same,
	// as they are unless the producer chose otherwise. What processes ask for is
	// recorded and adds up: an event of a type that another version of this
	// process asked for is put into held, from where a process that has the type
	// runs it. An event of a type that nobody asked for, on one of these subjects,
	// is acknowledged and counted.
	//
	// A type that is added later begins where the handler stands: older events
	// of it are not fetched. A type that is removed stays in the consumer's
	// filter and in the record: its events wait in held.
	Types []string

	// Subjects are the NATS subjects to read, with wildcards, instead of Types.
	// Every event on them is handled.
	Subjects []string

	// From says where a new subscription begins; it has no meaning for one that
	// exists.
	//
	// Defaults to All.
	From From

	// Workers is how many events, or batches of them, are handled at a time. Each
	// uses a connection of the pool. A quarter of them, and at least one, also run
	// events of held that are due; of an ordered handler all do.
	//
	// An external handler has only four of its workers settle with effects of their
	// own at a time, and needs no more connections.
	//
	// Defaults to what the pool has left, divided among the handlers that do not
	// say; at least 1 and at most 32. External handlers: 32.
	Workers int

	// Order says whether the events of a key take effect in the order in which they
	// stand in the stream. One process at a time reads the stream for an ordered
	// handler, which needs a connection of its own for that; held events are run by
	// all. Its transactions are read committed.
	//
	// Defaults to Unordered.
	Order Order

	// Batch is how many events are handled in one transaction at the most, one
	// after the other. It is for handlers of many small events: what it saves is
	// the commit of each. Events with one key go to one worker, in their order.
	// Where a handler fails, the batch is run again with a savepoint before each
	// event, so that it may be called for an event more than once, and what fails
	// is held without the others.
	//
	// Defaults to 1.
	Batch int

	// Isolation is the isolation level of the handler's transactions.
	// Serialization failures are run again at once, and cost no attempt before the
	// tenth.
	//
	// Defaults to the database's own, which is read committed unless changed.
	Isolation pgx.TxIsoLevel

	// DedupeKey derives what is decided once from an event, for instance
	// "commission:" and an order number: of all events with one such key the first
	// takes effect. It guards for as long as Config.Ledger. It has to return the same
	// for an event each time, and may be called concurrently; an event for which it
	// returns nothing is dead.
	//
	// Defaults to the event's source and id, and then other content under the same
	// identity is held as a conflict.
	DedupeKey func(postroom.Event) string

	// Attempts is how many are made in all before an event is dead. One of a process that
	// dies while it runs the event counts.
	//
	// Defaults to postroom.DefaultAttempts, which is 8; external handlers:
	// postroom.ExternalAttempts, which is 10.
	Attempts int

	// Schedule is how long to wait after each failed attempt. After the last of its waits
	// every further attempt waits as long: set Attempts beside it.
	//
	// Defaults to postroom.DefaultBackoff, over a quarter of an hour; external handlers:
	// postroom.ExternalBackoff, over about a day. See postroom.FastBackoff for one that
	// ends within a minute.
	Schedule postroom.Backoff

	// KeyWindow is for how long the vendors that an external handler calls recognise
	// a key that they were given before: what their documentation says, and less where
	// that is vague. A step that was begun, and of which nobody knows whether it
	// happened, is called again no later than this, less Timeout, after its first
	// call. See [KeyWindow] for handlers with several vendors.
	//
	// The window does not move with the schedule: an attempt that comes after it does not
	// call such a step, and asks its [Lookup], or the event is dead, of class
	// outcome_unknown. The default schedule ends within 24 hours. For a shorter window
	// choose a Schedule that ends within it.
	//
	// Defaults to none: such a step is never called again.
	KeyWindow time.Duration

	// Timeout is how long one event may take. Then the handler's context ends; a
	// handler that ignores it is left behind after half as long again, at most 5 s,
	// and its transaction with it. An event whose process dies while it is run from
	// held is run again after this time and a bit more. An external handler's attempt
	// that ran out of time while its steps waited for the database for half of it or
	// more is not counted.
	//
	// Defaults to 30 seconds.
	Timeout time.Duration
}

func (s Subscription) defaults(external bool) Subscription {
	attempts, schedule := postroom.DefaultAttempts, postroom.DefaultBackoff
	if external {
		attempts, schedule = postroom.ExternalAttempts, postroom.ExternalBackoff
	}
	s.Attempts = cmp.Or(s.Attempts, attempts)
	s.Timeout = cmp.Or(s.Timeout, 30*time.Second)
	s.Batch = max(s.Batch, 1)
	if s.Order != Unordered {
		s.Isolation = pgx.ReadCommitted
	}
	if external && s.Workers == 0 {
		s.Workers = externalWorkers
	}
	if s.Schedule == nil {
		s.Schedule = schedule()
	}
	return s
}

// reservedName is the handler of outgoing events in held.
const reservedName = "outbox"

// Limits that keep a slip from becoming an outage.
const (
	maxBatch    = 1000
	maxAttempts = 1000
)

var (
	validName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	validStream = regexp.MustCompile(`^[^\s.*>/\\]{1,255}$`)
)

func (s Subscription) validate(external bool) error {
	var faults []error
	add := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("subscription %q: "+format, append([]any{s.Name}, args...)...))
	}
	if !validName.MatchString(s.Name) {
		add("Name must be 1 to 128 letters, digits, '.', '_' and '-'")
	}
	if s.Name == reservedName {
		add("Name is reserved for what the relay holds")
	}
	switch chosen := min(len(s.Types), 1) + min(len(s.Subjects), 1); {
	case s.Stream == "" && chosen > 0:
		add("Stream is missing")
	case s.Stream != "" && !validStream.MatchString(s.Stream):
		add("Stream must be the name of a JetStream stream")
	case s.Stream != "" && chosen != 1:
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
	if s.Batch < 0 || s.Batch > maxBatch {
		add("Batch is %d, want none to %d", s.Batch, maxBatch)
	}
	s.validateOrder(add)
	s.validateExternal(external, add)
	if !slices.Contains([]pgx.TxIsoLevel{"", pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}, s.Isolation) {
		add("Isolation must be a level that PostgreSQL has: pgx.ReadCommitted, pgx.RepeatableRead or pgx.Serializable")
	}
	if s.Attempts < 0 || s.Attempts > maxAttempts {
		add("Attempts is %d, want 1 to %d, or none for the default", s.Attempts, maxAttempts)
	}
	if s.Timeout != 0 && (s.Timeout < 10*time.Millisecond || s.Timeout > 24*time.Hour) {
		add("Timeout is %s, want 10ms to 24h", s.Timeout)
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

func (s Subscription) validateExternal(external bool, add func(format string, args ...any)) {
	if external && s.Batch > 1 {
		add("Batch has no meaning for an external handler, whose calls share no transaction")
	}
	if !external && s.KeyWindow != 0 {
		add("KeyWindow is for external handlers")
	}
	if timeout := s.defaults(external).Timeout; s.KeyWindow != 0 && s.KeyWindow <= timeout {
		add("KeyWindow is %s, want none or more than Timeout (%s): a call may begin just before the handler's time ends", s.KeyWindow, timeout)
	}
}

func (s Subscription) validateOrder(add func(format string, args ...any)) {
	if s.Order < Unordered || s.Order > SkipKey {
		add("Order must be inbox.Unordered, inbox.HoldKey or inbox.SkipKey")
	}
	if s.Order == Unordered {
		return
	}
	if s.Batch > 1 {
		add("Batch has no meaning for an ordered handler: one that fails would hold up the keys of all others")
	}
	if s.Stream == "" {
		add("Stream is missing: it is what gives events an order")
	}
	if s.Isolation != "" && s.Isolation != pgx.ReadCommitted {
		add("Isolation must be read committed for an ordered handler: a transaction at a higher level does not see what became of a key while it waited for it")
	}
}

// filter returns the subjects to read.
func (s Subscription) filter() []string {
	if len(s.Types) > 0 {
		return s.Types
	}
	return s.Subjects
}
