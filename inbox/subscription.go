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
	"github.com/postroom/postroom/inbox/internal/gate"
)

// From says where a new handler begins in its stream.
type From int

const (
	// DeliverAll begins with the oldest event in the stream.
	DeliverAll From = iota
	// DeliverNew begins with the first event that is published after the handler first ran.
	DeliverNew
)

// Order says whether events with the same key are handled in the order of the stream, and
// whether later events of a key wait for a dead one.
type Order int

const (
	// Unordered handles events as they come. Events with the same key may run at the same time.
	Unordered Order = iota

	// HoldKey handles the events of a key one after the other, in the order of the stream.
	// While one waits for its next attempt, later events of its key wait in table held. If
	// it is dead, they wait until an operator decides. Events of other keys, and events
	// without a key, do not wait.
	HoldKey

	// SkipKey is like HoldKey, but later events of a key do not wait for a dead one.
	SkipKey
)

// Subscription says which events a handler gets and how it runs. Name is required. A handler
// that reads a stream also needs Stream, and either Types or Subjects. A handler without any
// of these three gets its events from [Inbox.Accept].
//
// Wide because each field is a choice of its own.
type Subscription struct {
	// Name identifies the handler. It must be unique within this database and must never
	// change: do not derive it from the name of a Go type. Each event is handled once for
	// each name, so a handler with a new name gets all events again. A name has at most 128
	// letters, digits, '.', '_' and '-', and begins with a letter or digit.
	Name string

	// Stream is the JetStream stream to read.
	Stream string

	// Types are the event types to handle. The inbox reads the subjects of these names,
	// because an event's subject is its type unless the producer chose another one. The
	// types that all processes of this handler ask for are recorded in the database. If
	// another process asked for an event's type and this one did not, the event is held,
	// and a process that has the type runs it. If no process asked for it, the event is
	// acknowledged and counted as skipped.
	//
	// A new type begins at the handler's position in the stream: its older events are not
	// read. A removed type stays recorded and is still read: its events wait in table held.
	Types []string

	// Subjects are the NATS subjects to read, with wildcards, instead of Types. Every event
	// on them is handled.
	Subjects []string

	// From says where a new handler begins in the stream. It does not move a handler that
	// has begun.
	//
	// Defaults to DeliverAll.
	From From

	// Workers is how many events, or batches of events, are handled at the same time. Each
	// worker uses a connection of the pool. A quarter of the workers, and at least one, also
	// run held events when they are due. All workers of an ordered handler do, and all of a
	// handler that reads no stream.
	//
	// An external handler needs at most four connections: no more than four of its workers
	// run the transactions of [Attempt.OnSuccess] at the same time.
	//
	// Defaults to an equal share of the connections that the pool has left, at least 1 and at
	// most 32. External handlers: 32.
	Workers int

	// Order says whether events with the same key are handled in the order of the stream.
	// One process at a time reads the stream for an ordered handler, and keeps one
	// connection of the pool for that; all processes run its held events. Its transactions
	// are read committed.
	//
	// Defaults to Unordered.
	Order Order

	// Batch is how many events one transaction handles at most, one after the other. It
	// saves commits and suits handlers of many small events. Events with the same key go to
	// the same worker, in their order. If the handler fails, the batch is run again with a
	// savepoint before each event, and only the events that fail are held. Events of
	// [Inbox.Accept] are run again one by one instead. The handler may therefore be called
	// more than once for an event.
	//
	// Defaults to 1.
	Batch int

	// Isolation is the isolation level of the handler's transactions. A transaction that
	// fails with a serialization failure is run again at once. After ten such failures in a
	// row the attempt counts as failed.
	//
	// Defaults to the level of the database, which is read committed unless changed.
	Isolation pgx.TxIsoLevel

	// DedupeKey returns the key by which an event is recognised as a duplicate, for
	// instance "commission:" and an order number. Of all events with the same key only the
	// first takes effect, for as long as DedupeWindow. DedupeKey must always return the
	// same for the same event, and may be called concurrently. If it returns an empty text,
	// the event is dead.
	//
	// Defaults to the event's source and id. With the default, an event that has the same
	// source and id as another and a different content is held as a conflict.
	DedupeKey func(postroom.Event) string

	// DedupeWindow is how long this handler remembers a decided event, for instance 90 days
	// for payments. An older event is held as dead, of class too_old, from 29 thirtieths of
	// DedupeWindow on. See [Config.DedupeWindow].
	//
	// Defaults to Config.DedupeWindow, and the age to Config.MaxEventAge.
	DedupeWindow time.Duration

	// Attempts is how many attempts are made before an event is dead. An attempt during
	// which the process dies counts.
	//
	// Defaults to postroom.DefaultAttempts, which is 8; external handlers:
	// postroom.ExternalAttempts, which is 10.
	Attempts int

	// Schedule is how long to wait after each failed attempt. When the schedule is used up,
	// its last wait applies to every further attempt; set Attempts to match.
	//
	// Defaults to postroom.DefaultBackoff, over a quarter of an hour; external handlers:
	// postroom.ExternalBackoff, over about a day. See postroom.FastBackoff for one that
	// ends within a minute.
	Schedule postroom.Backoff

	// Classify says what an error means that the handler returned: it returns it as
	// [postroom.Permanent], [postroom.RetryAfter], [postroom.Snooze] or [postroom.Discard],
	// or nil to leave it as it is. It is not asked about panics, and about lost connections
	// and conflicts with other transactions, which cost no attempt. It may be called
	// concurrently, and runs within Timeout.
	Classify func(error) error

	// Pause says when the handler pauses because it fails for nearly all events.
	//
	// Defaults to a pause when 80 % of at least 20 different events failed within a minute.
	Pause Pause

	// VendorWindow is how long the vendors of an external handler recognise a key that they
	// were given before. Take what their documentation says, or less if that is vague. A
	// step whose outcome is not known is called again only within VendorWindow, less Timeout, of
	// its first call. See the option [VendorWindow] for handlers with several vendors.
	//
	// VendorWindow does not follow the schedule: a later attempt asks the step's [Lookup]
	// instead of calling again, and without a Lookup the event is dead, of class
	// outcome_unknown. The default schedule ends within 24 hours. For a shorter window
	// choose a Schedule that ends within it.
	//
	// Defaults to 0: a step whose outcome is not known is never called again.
	VendorWindow time.Duration

	// Timeout is how long one run of the handler may take. Then its context ends. A handler
	// that ignores this is abandoned, together with its transaction, after half as long
	// again, at most 5 s. If a process dies while it runs a held event, the event is run
	// again after Timeout and a few seconds. An attempt of an external handler that ran out
	// of time does not count if its steps waited for the database for at least half of it.
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

// reservedName is the handler of outgoing events in table held.
const reservedName = "outbox"

// Upper limits, so that a typing error does not become an outage.
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
		add(nameProblem)
	}
	if s.Name == reservedName {
		add("Name is reserved for the relay; choose another")
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
			add("Types: %q is not a valid event type", t)
		}
	}
	if s.From != DeliverAll && s.From != DeliverNew {
		add("From must be inbox.DeliverAll or inbox.DeliverNew")
	}
	if s.Workers < 0 {
		add("Workers is %d, want 0 or more", s.Workers)
	}
	if s.Batch < 0 || s.Batch > maxBatch {
		add("Batch is %d, want 0 to %d", s.Batch, maxBatch)
	}
	gate.Config(s.Pause).Validate(add)
	s.validateOrder(add)
	s.validateExternal(external, add)
	if !slices.Contains([]pgx.TxIsoLevel{"", pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}, s.Isolation) {
		add("Isolation must be a level that PostgreSQL has: pgx.ReadCommitted, pgx.RepeatableRead or pgx.Serializable")
	}
	if s.DedupeWindow != 0 && s.DedupeWindow < time.Second {
		add("DedupeWindow is %s, want at least 1s, or 0 for that of the Config", s.DedupeWindow)
	}
	if s.Attempts < 0 || s.Attempts > maxAttempts {
		add("Attempts is %d, want 1 to %d, or 0 for the default", s.Attempts, maxAttempts)
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

const nameProblem = "Name must be 1 to 128 letters, digits, '.', '_' and '-'"

func (s Subscription) validateExternal(external bool, add func(format string, args ...any)) {
	if external && s.Batch > 1 {
		add("Batch is not for external handlers: their calls share no transaction")
	}
	if !external && s.VendorWindow != 0 {
		add("VendorWindow is for external handlers")
	}
	if timeout := s.defaults(external).Timeout; s.VendorWindow != 0 && s.VendorWindow <= timeout {
		add("VendorWindow is %s, want 0 or more than Timeout (%s): a call may begin just before the handler's time ends", s.VendorWindow, timeout)
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
		add("Batch is not for ordered handlers: one failed event would hold up the keys of all others")
	}
	if s.Stream == "" {
		add("Stream is missing: an ordered handler gets its order from a stream")
	}
	if s.Isolation != "" && s.Isolation != pgx.ReadCommitted {
		add("Isolation must be read committed for an ordered handler: at a higher level its transaction would not see what another did to the key while it waited for it")
	}
}

// filter returns the subjects to read.
func (s Subscription) filter() []string {
	if len(s.Types) > 0 {
		return s.Types
	}
	return s.Subjects
}
