package delivery

import (
	"errors"
	"time"

	"github.com/postroom/postroom/internal/consumer"
)

// Position identifies a message of the stream.
type Position = consumer.Position

// Subscription is a handler's row in the table subscription.
type Subscription struct {
	Stream   string
	Created  time.Time // when the stream was created
	Types    []string
	Floor    uint64    // every event up to this sequence is decided
	Reached  time.Time // when the floor was recorded
	Backfill uint64    // above Floor and up to this sequence, the age of an event does not matter
	IsNew    bool
	InOrder  bool     // an ordered reader recorded the floor
	Before   []string // the subjects that processes of the handler had asked for before this process did
}

// Recorded is the floor of a durable consumer, as the database has it.
type Recorded struct {
	Floor   uint64    // every event up to this sequence is decided
	Skipped uint64    // up to this sequence, messages of subjects that were added later were skipped
	Server  time.Time // when the database server started
	Moved   bool      // the server that recorded Floor had another start time: this one may have lost transactions
	Recent  bool      // the floor was recorded a short time ago
}

// Lead is what a process reads from the database when it begins to read a stream for an
// ordered handler.
type Lead struct {
	Epoch     int64 // a number that no earlier reader had
	Base      int64 // a stream sequence plus Base is the event's position in the order of its key
	High      int64 // the highest position that a held event has in the order of its key
	Floor     Position
	Backfill  uint64   // above Floor and up to this sequence, the age of an event does not matter
	Subjects  []string // all subjects that any process asked for
	Takeovers int      // how many readers in a row neither gave up their lease nor moved the floor
}

// ErrTermOver says that the term of this reader is over, for instance because another process reads.
var ErrTermOver = errors.New("this process may not read the stream for the handler any more")

// Stock says how many events are held for one handler.
type Stock struct {
	Handler                          string
	Retrying, Waiting, Dead, Keys    int64
	RetryingAge, WaitingAge, DeadAge float64 // the ages of the oldest events, in seconds
	Overdue                          float64 // the seconds since the first event became due; 0 if no event is due
}

// Lag is the number of events that a handler still has to handle.
type Lag struct {
	Handler string

	// Pending is the number of messages of the handler's stream that are not decided. For
	// an ordered handler, all messages that were not read yet may count as one.
	Pending int64

	// Retrying is the number of held events that are or will be due. Waiting is the number
	// of events that wait behind an earlier event of their key. Dead is the number of
	// events that wait for an operator. Each of the three is counted up to 10,000.
	Retrying, Waiting, Dead int64
}

// Window says how long a process needs the inbox rows of a handler (Keep). It also says how old an
// event may be at most when the process runs it (Age).
type Window struct {
	Handler   string
	Keep, Age time.Duration
}

// Sign is a process's sign of life.
type Sign struct {
	Name    string
	Windows []Window      // the windows of its handlers
	Keep    time.Duration // the longest time for which the process needs inbox rows
	Paused  string        // the handlers that paused because they failed, as JSON
}

// Beat is what a process learns when it writes its sign of life.
type Beat struct {
	At       time.Time // the database's time
	Instance string    // the id of this Postroom

	// ExpiredBefore has a time for each handler. Inbox rows from before that time may have been
	// removed. If a handler is not in the map, none of its rows was removed.
	ExpiredBefore map[string]time.Time
}

// OtherWindow is another process that needs the inbox rows of a handler for a different
// time.
type OtherWindow struct {
	Handler, Process string
	Keep             time.Duration
}

// OrphanHandler is a handler that no process runs, with the number of events that are
// held for it.
type OrphanHandler struct {
	Handler string
	Held    int64
}
