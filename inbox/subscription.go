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

// From says where a new handler begins in its stream.
type From int

const (
	// DeliverAll begins with the oldest event in the stream.
	DeliverAll From = iota
	// DeliverNew begins with the first event that the stream gets after an inbox first registered
	// the handler.
	DeliverNew
)

// Order says whether events with the same key are handled in the order of the stream, and whether
// later events of a key wait for a dead event of that key.
type Order int

const (
	// Unordered handles events as they come. Events with the same key may run at the same time.
	Unordered Order = iota

	// HoldKey handles the events of a key one after the other, in the order of the stream. While an
	// event waits for its next attempt, later events of its key wait in the table held. If the
	// event is dead, they wait until an operator decides. Events of other keys, and events without
	// a key, do not wait.
	HoldKey

	// SkipKey is like HoldKey, but later events of a key do not wait for a dead event.
	SkipKey
)

// orderNames are the names that a handler's method CheckSubscription gets.
var orderNames = map[Order]string{Unordered: "Unordered", HoldKey: "HoldKey", SkipKey: "SkipKey"}

// Subscription says which events a handler gets and how the handler runs. Name is required.
// A handler that reads a stream also needs Stream, and Types or Subjects if it does not know its
// types. A handler without any of these three gets its events from [Inbox.Accept].
type Subscription struct {
	// Name identifies the handler. It must be unique within this database and must never
	// change: do not derive it from the name of a Go type. Each event is handled once for
	// each name, so a handler with a new name gets all events again. A name has at most 128
	// letters, digits, '.', '_' and '-', and begins with a letter or digit.
	Name string

	// Stream is the JetStream stream to read.
	Stream string

	// Types are the event types to handle. The inbox reads the subjects that have these names. An
	// event's subject is its type, unless the producer chose another. The database records every
	// type that a process of this handler ever had in Types. If this process gets an event whose
	// type only other processes have in Types, this process holds the event, and one of those
	// processes runs it. If no process ever had the type, the inbox acknowledges the event and
	// counts it as skipped.
	//
	// If you add a type, its events before the handler's position in the stream are not read. If
	// you remove a type, it stays recorded: its events are still read, and wait in the table held.
	//
	// Defaults to the types of the handler, if it has a method Types, as a postroom.Mux has, and if
	// Subjects is empty. The inbox asks for them when [Inbox.Handle] is called. If the events of a
	// handler come from several streams, give each subscription its part of the types.
	Types []string

	// Subjects are the NATS subjects to read, in place of Types. They may have wildcards. The
	// handler gets every event on these subjects.
	Subjects []string

	// From says where a new handler begins in the stream. It does not move a handler that
	// has begun.
	//
	// Defaults to DeliverAll.
	From From

	// Workers is how many events, or batches of events, are handled at the same time. Each
	// worker uses a connection of the pool. A quarter of the workers, but at least one, also
	// run held events that are due. All workers run held events if the handler is ordered or
	// external, or reads no stream.
	//
	// An external handler needs at most four connections: no more than four of its workers
	// run the transactions of [Attempt.OnSuccess] at the same time. If the pool has fewer than
	// ten connections, it needs less: one of a pool of four.
	//
	// Defaults to an equal share of the remaining connections of the pool, at least 1 and at
	// most 32. External handlers: 32.
	Workers int

	// Order says whether events with the same key are handled in the order of the stream. For an
	// ordered handler, one process at a time reads the stream, and keeps one connection of the pool
	// for that. All processes run its held events. Its transactions are read committed.
	//
	// Defaults to Unordered.
	Order Order

	// Batch is the largest number of events that one transaction handles, one after the other.
	// Batches save commits and suit handlers of many small events. Events with the same key go to
	// the same worker, in their order. If an event fails, the batch is run again with a savepoint
	// before each event, and only the events that fail are held. If the handler reads no stream,
	// each event runs again in its own transaction. So a handler may run more than once per event.
	//
	// Defaults to 1.
	Batch int

	// Isolation is the isolation level of the handler's transactions. A transaction that
	// fails with a serialization failure is run again at once. The attempt counts as failed after
	// ten such failures in a row, or if the claim of a held event would end before the next run.
	//
	// Defaults to the default level of the database, which is usually read committed.
	Isolation pgx.TxIsoLevel

	// DedupeKey returns the key by which an event is recognised as a duplicate, for instance
	// "commission:" and an order number. Of all events with the same key within DedupeWindow, only
	// the first takes effect. DedupeKey must always return the same key for the same event, and may
	// be called concurrently. If the key is empty or not UTF-8, the event is dead. If an event was
	// held without the key of DedupeKey, DedupeKey makes the key when the event runs.
	//
	// Defaults to the event's source and id. With the default, an event is held as a conflict if it
	// has the same source and id as another event, and different content.
	DedupeKey func(postroom.Event) string

	// DedupeWindow is how long this handler remembers a decided event, for instance 90 days for
	// payments. An event that is older than 29/30 of DedupeWindow (87 days of 90) is held as dead,
	// of class too_old. See [Config.DedupeWindow].
	//
	// Defaults to Config.DedupeWindow.
	DedupeWindow time.Duration

	// Attempts is how many attempts are made before an event is dead. If the process dies
	// during an attempt, the attempt counts.
	//
	// Defaults to one more than the number of waits in Schedule: so with the default Schedule, to 8, and
	// to 10 for an external handler.
	Attempts int

	// Schedule has the waits after failed attempts. If Attempts is so large that the schedule is used
	// up, its last wait is used after every further attempt.
	//
	// Defaults to postroom.DefaultBackoff, which takes about a quarter of an hour;
	// external handlers: postroom.ExternalBackoff, which takes about a day.
	// postroom.FastBackoff ends within a minute.
	Schedule postroom.Backoff

	// Classify says what an error of the handler means. It returns an error of
	// [postroom.Permanent], [postroom.RetryAfter], [postroom.Snooze] or [postroom.Discard], or nil
	// to leave the error as it is. The inbox does not call Classify for panics, for lost
	// connections, for conflicts with other transactions, or while the server lacks resources.
	// Classify may be called concurrently, and runs within Timeout.
	Classify func(error) error

	// Pause says when the handler pauses because nearly all its events fail.
	//
	// Defaults to a pause when 80 % of at least 20 different events failed within a minute.
	Pause Pause

	// VendorWindow is how long the vendors of an external handler recognise a key that they got
	// before. Set it to the time in their documentation, or to less if the documentation is vague.
	// A step whose outcome is not known is called again only if its first call is less than
	// VendorWindow minus Timeout ago. If the vendors of a handler differ, give each call of Step
	// its own window with the option [postroom.VendorWindow].
	//
	// Attempts of the schedule can come after VendorWindow. Such an attempt asks the step's
	// [postroom.Lookup], and calls again only if Lookup did not find the call. Without a Lookup the
	// event is dead, of class outcome_unknown. The default schedule ends within 24 hours. If the
	// window is shorter, choose a Schedule that ends within it.
	//
	// Defaults to 0: without a Lookup, a step whose outcome is not known is never called again.
	VendorWindow time.Duration

	// Timeout is how long one run of the handler may take. After that time the handler's context
	// ends. If the handler does not return then, the inbox waits for half of Timeout (at least 100
	// ms, at most 5 s). Then it abandons the handler and its transaction. If a process dies while
	// it runs a held event, the event is run again after Timeout and a few seconds. An event of an
	// external handler is run again after Config.AckWait. If such a handler runs out of time, and
	// its steps waited for the database for half of Timeout or more, the attempt does not count.
	//
	// Defaults to 30 seconds.
	Timeout time.Duration
}

func (s Subscription) defaults(external bool) Subscription {
	if s.Schedule == nil {
		if s.Schedule = postroom.DefaultBackoff(); external {
			s.Schedule = postroom.ExternalBackoff()
		}
	}
	//guard:attempts-follow-the-schedule 2 = 8
	s.Attempts = cmp.Or(s.Attempts, len(s.Schedule)+1)
	s.Timeout = cmp.Or(s.Timeout, 30*time.Second)
	s.Batch = max(s.Batch, 1)
	if s.Order != Unordered {
		s.Isolation = pgx.ReadCommitted
	}
	if external && s.Workers == 0 {
		s.Workers = externalWorkers
	}
	return s
}

// In the table held, outgoing events have reservedName as their handler. No handler may have it.
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
	s.Pause.gate().Validate(add)
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

const nameProblem = "Name must be 1 to 128 letters, digits, '.', '_' and '-', and begin with a letter or a digit"

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
		add("Isolation must be read committed for an ordered handler: at a higher level, a transaction that waited for a key would not see what the transaction before it changed")
	}
}

// filter returns the subjects to read.
func (s Subscription) filter() []string {
	if len(s.Types) > 0 {
		return s.Types
	}
	return s.Subjects
}
