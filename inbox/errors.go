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

// [Inbox.Run] returns these errors, wrapped, if a person must correct something. [Inbox.Check]
// also returns ErrStreamLimit and ErrIsolation. Run finds the other two when it reads a stream.
var (
	// ErrForeignConsumer says that another Postroom database uses the handler's durable consumer.
	// That database does not have the inbox rows of this one.
	ErrForeignConsumer = consumer.ErrForeign

	// ErrOtherStream says that a subscription names another stream than the database has recorded
	// for the handler. A handler has one position, so it reads only one stream.
	ErrOtherStream = stream.ErrOtherStream

	// ErrStreamLimit says that a limit of the stream or account forbids what a handler needs.
	ErrStreamLimit = preflight.ErrStreamLimit

	// ErrIsolation says that the database's default isolation level is not the one that
	// an ordered handler needs.
	ErrIsolation = preflight.ErrIsolation
)

// ErrRunning is the error of [Inbox.Run] if another Run of the same inbox has not ended.
var ErrRunning = errors.New("inbox: already running")

// Errors of [Inbox.Accept] for a handler that cannot accept events.
var (
	// ErrUnknownHandler is returned for a handler that is neither registered nor declared.
	ErrUnknownHandler = accept.ErrUnknownHandler

	// ErrOrdered is returned for an ordered handler: only a stream gives its events an order.
	ErrOrdered = accept.ErrOrdered
)

// ErrTxOwned is returned by Commit and Rollback of the transaction that a handler gets. Only the
// inbox ends this transaction, after the handler returned.
var ErrTxOwned = ledger.ErrTxOwned

// ErrOutcomeUnknown is returned by [Step] if the outcome of a call of the step is unknown,
// and the vendor might not recognise a second call as a repetition. If a handler returns
// ErrOutcomeUnknown, the event is dead, of class outcome_unknown: a person must ask the vendor.
var ErrOutcomeUnknown = delivery.ErrOutcomeUnknown
