package inbox

import (
	"errors"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/inbox/internal/preflight"
	"github.com/postroom/postroom/inbox/internal/stream"
	"github.com/postroom/postroom/internal/consumer"
)

// What [Inbox.Check] and [Inbox.Run] return, wrapped, for what a person has to mend.
var (
	// ErrForeignConsumer says that the durable consumer of a handler belongs to
	// another Postroom: its ledger knows nothing of what this one decided.
	ErrForeignConsumer = consumer.ErrForeign

	// ErrOtherStream says that a handler is subscribed to another stream than the
	// one it is registered for. Its ledger is one, and so is its place in a stream.
	ErrOtherStream = stream.ErrOtherStream

	// ErrStreamLimit says that a limit of the stream or of the account leaves no room for
	// what a handler needs.
	ErrStreamLimit = preflight.ErrStreamLimit

	// ErrIsolation says that the database's transactions begin at another isolation level
	// than an ordered handler needs.
	ErrIsolation = preflight.ErrIsolation

	// ErrDedupeWindow says that this process and another of the same database disagree: one
	// removes ledger rows (Config.DedupeWindow) of events that the other would still run
	// (Config.MaxEventAge).
	ErrDedupeWindow = preflight.ErrDedupeWindow
)

// ErrRunning is returned by [Inbox.Run] while another Run of the same inbox is
// under way.
var ErrRunning = errors.New("inbox: already running")

// What [Inbox.Accept] returns for a handler that takes no events so.
var (
	// ErrUnknownHandler is returned for a handler that is not registered.
	ErrUnknownHandler = errors.New("inbox: no such handler")

	// ErrOrdered is returned for an ordered handler: only a stream gives its events an
	// order.
	ErrOrdered = errors.New("inbox: an ordered handler takes its events from its stream only")
)

// ErrTxOwned is returned by Commit and Rollback of the transaction that a handler
// is given: the inbox ends it, after the handler returned.
var ErrTxOwned = ledger.ErrTxOwned

// ErrOutcomeUnknown is returned by [Attempt.Step] for a step that was begun before,
// by this process or another, of which nobody knows whether it happened, and that
// the vendor might not recognise as a repetition. An event whose handler returns
// it is dead, of class outcome_unknown: somebody has to look at the vendor's.
var ErrOutcomeUnknown = delivery.ErrOutcomeUnknown
