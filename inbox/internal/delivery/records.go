package delivery

import (
	"errors"
	"time"

	"github.com/postroom/postroom/internal/consumer"
)

// Position is a message of the stream.
type Position = consumer.Position

// Subscription is a handler's row of subscription.
type Subscription struct {
	Stream   string
	Created  time.Time // of the stream
	Types    []string
	Floor    uint64    // up to here everything is decided
	Reached  time.Time // when the floor was reached, or before
	Backfill uint64    // up to here the age of an event does not matter
	IsNew    bool
}

// Lead is what a process finds that reads for an ordered handler from now on.
type Lead struct {
	Epoch     int64 // tells it from earlier readers
	Base      int64 // what is added to a sequence for its place in a key
	High      int64 // the last place of a key in which an event is held
	Floor     Position
	Subjects  []string // every one that any process asked for
	Takeovers int      // readers in a row that ended without a word
}

// ErrTermOver says that another process reads the stream.
var ErrTermOver = errors.New("another process reads the stream for this handler now")

// Stock is what is held of one handler.
type Stock struct {
	Handler                          string
	Retrying, Waiting, Dead, Keys    int64
	RetryingAge, WaitingAge, DeadAge float64 // of the oldest, in seconds
	Overdue                          float64 // for so many seconds one has been due
}

// Lag is how much a handler has to do.
type Lag struct {
	Handler string

	// Pending is how many messages of its stream are not decided. For an ordered handler, one
	// may stand for all that were not read yet.
	Pending int64

	// Retrying is how many held events are due, or will be; Waiting how many wait behind an
	// earlier event of their key; Dead how many wait for an operator. The figures stop at
	// 100,000 events of a handler.
	Retrying, Waiting, Dead int64
}

// Beat is what a process learns when it says that it lives.
type Beat struct {
	At            time.Time // the database's
	Instance      string    // the id of this Postroom
	ExpiredBefore time.Time // rows of the ledger from before may have been removed; zero: none was
}

// Process is another one, and for how long it keeps and trusts the ledger.
type Process struct {
	Name                      string
	DedupeWindow, MaxEventAge time.Duration
}

// Orphaned is a handler that nobody runs, and how many events are held for it.
type Orphaned struct {
	Handler string
	Held    int64
}
