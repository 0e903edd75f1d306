package inbox

import (
	"errors"

	"github.com/postroom/postroom/inbox/internal/accept"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/inbox/internal/preflight"
	"github.com/postroom/postroom/inbox/internal/stream"
	"github.com/postroom/postroom/internal/consumer"
)

// Errors that [Inbox.Check] and [Inbox.Run] return, wrapped, if a person has to correct something.
var (
	// ErrForeignConsumer says that the handler's durable consumer belongs to another
	// Postroom database. The inbox table there does not have what this one decided.
	ErrForeignConsumer = consumer.ErrForeign

	// ErrOtherStream says that a handler subscribes to another stream than the one
	// recorded for it. A handler has one position, so it reads one stream.
	ErrOtherStream = stream.ErrOtherStream

	// ErrStreamLimit says that a limit of the stream or of the account leaves no room for
	// what a handler needs.
	ErrStreamLimit = preflight.ErrStreamLimit

	// ErrIsolation says that the database's transactions begin at another isolation level
	// than an ordered handler needs.
	ErrIsolation = preflight.ErrIsolation
)

// ErrRunning is returned by [Inbox.Run] while another Run of the same inbox is under way.
var ErrRunning = errors.New("inbox: already running")

// Errors of [Inbox.Accept] for a handler that cannot accept events.
var (
	// ErrUnknownHandler is returned for a handler that is neither registered nor declared.
	ErrUnknownHandler = accept.ErrUnknownHandler

	// ErrOrdered is returned for an ordered handler: only a stream gives its events an order.
	ErrOrdered = accept.ErrOrdered
)

// ErrTxOwned is returned by Commit and Rollback of the transaction that a handler
// is given: the inbox ends it, after the handler returned.
var ErrTxOwned = ledger.ErrTxOwned

// ErrOutcomeUnknown is returned by [Attempt.Step] if an earlier call of the step, in this
// process or another, has an unknown outcome, and the vendor might not recognise a second
// call as a repetition. If a handler returns it, the event is dead, of class
// outcome_unknown: a person has to ask the vendor.
var ErrOutcomeUnknown = delivery.ErrOutcomeUnknown
