package eventlog

import "github.com/postroom/postroom/relay/broker"

// PageBytes limits the memory of one read. A read finds events of several kinds: late events, the
// next events, held events that are due, events of a republish. The read stops adding events of a
// kind when the data and the headers of these events reach PageBytes bytes.
const PageBytes = 4 << 20

// Page is the result of one read of the log.
type Page struct {
	// Events are committed events in the order in which they must be published. The
	// caller owns the slice.
	Events []broker.Event

	// Late is the number of late events that the read found, for this page or later ones. A late
	// event has a lower Seq than events that the relay read before: it was committed after them.
	Late int

	// Scheduled is the number of events that the read found and that must be published later. Only
	// the invalid ones are in Events. The next Record moves the valid ones to table "held".
	Scheduled int

	// Unstorable is the number of events, since the last page, that table "held" refused to store
	// unchanged. These events are dead. Their rows in that table have the seq, the event's texts
	// and body, and the reason.
	Unstorable int

	// More reports whether another read may find more now, for instance because the search for late
	// events has not ended, or the data reached PageBytes. If More is true, read again at once,
	// even if Events is short or empty.
	More bool

	// Missing is the number of events that were due but are gone from the log: their rows
	// were deleted before the events were published.
	Missing int64
}
