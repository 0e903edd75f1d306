package pglog

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/relay/broker"
)

// maxRead is the length in bytes of the longest text that is read completely. No text of an event
// may be longer. So if the decoder cuts a text, the relay refuses the event.
const maxRead = postroom.MaxTraceState

// The limits of an event's time.
var (
	firstInstant = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	endOfTime    = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
)

// isInstant reports whether a time is in the years 1 to 9999, as the time of an event must be.
func isInstant(t time.Time) bool { return !t.Before(firstInstant) && t.Before(endOfTime) }

// faults has an error for each value of a row that no event can have.
type faults []error

func (f *faults) add(field, problem string) {
	*f = append(*f, &postroom.FieldError{Field: field, Problem: problem})
}

// large adds the fault of a text that is too large to be read completely.
func (f *faults) large(field string, most int) {
	f.add(field, fmt.Sprintf("is more than %d bytes, at most %d are allowed", maxRead, most))
}

// faulty is the Fault of an event whose row has values that no event can have.
type faulty struct {
	error

	unread int // about how many bytes of the row were not read, but go to the table held: see hold.sql
}

func (f *faulty) Unwrap() error { return f.error }

// unreadText is about how many bytes the table held gets of a text that is too large to be read.
const unreadText = 128 << 10

// setFault sets the Fault of an event to the faults of its row that Event.Validate cannot find. See
// the field unread of faulty.
func (f faults) setFault(ev *broker.Event, unread int) {
	for _, part := range [...]struct{ field, value string }{{"ID", ev.ID}, {"Source", ev.Source}, {"Subject", ev.Subject}} {
		if part.value == "" { // the package outbox always sets this field, but another writer may leave it out
			f.add(part.field, "is empty")
		}
	}
	ev.Fault = &faulty{errors.Join(f...), unread}
}

// sizeOf returns about how many bytes a recording writes if it moves an event of the log to the table
// held.
func sizeOf(ev *broker.Event) int {
	var f *faulty
	//guard:what-is-not-read-counts-when-it-is-held false
	if errors.As(ev.Fault, &f) {
		return ev.Size() + f.unread
	}
	return ev.Size()
}

// isKey reports whether a key is empty or valid, so that its events can be held in order.
func isKey(key []byte) bool {
	if len(key) > postroom.MaxKey {
		return false
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' { // rare: ask Validate
			return postroom.Event{Type: "key", Key: string(key)}.Validate() == nil
		}
	}
	return true
}

// beginning returns the first bytes of a text.
func beginning(text []byte) string {
	const n = 100
	return strings.ToValidUTF8(string(text[:min(len(text), n)]), "")
}
