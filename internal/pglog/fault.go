package pglog

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/eventlog"
)

// maxRead is the longest text that is read of a row: longer than any that an event may
// have, so that what is cut off is never part of an event that is sent.
const maxRead = postroom.MaxTraceState

// The times that an event may have, in microseconds of the server's clock.
var (
	firstInstant = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	endOfTime    = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
)

// isInstant reports whether a time is of the years 1 to 9999, and so can be written.
func isInstant(t time.Time) bool { return !t.Before(firstInstant) && t.Before(endOfTime) }

// faults are what a row has that no event can have.
type faults []error

func (f *faults) add(field, problem string) {
	*f = append(*f, &postroom.FieldError{Field: field, Problem: problem})
}

// large notes a text that is too large to be read whole.
func (f *faults) large(field string, bytes, most int) {
	f.add(field, fmt.Sprintf("is %d bytes, at most %d are allowed", bytes, most))
}

// judge notes in an event what is wrong with its row, besides what Event.Validate finds.
func (f faults) judge(ev *eventlog.Logged) {
	for _, part := range [...]struct{ field, value string }{{"ID", ev.ID}, {"Source", ev.Source}, {"Subject", ev.Subject}} {
		if part.value == "" { // a writer may leave it out, and the outbox fills it in
			f.add(part.field, "is empty")
		}
	}
	ev.Fault = errors.Join(f...)
}

// isKey reports whether events of a key, which may be none, can be held in its order.
func isKey(key []byte) bool {
	if len(key) > postroom.MaxKey {
		return false
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' { // rarely: see what Validate says
			return postroom.Event{Type: "key", Key: string(key)}.Validate() == nil
		}
	}
	return true
}

// beginning returns the first bytes of a text that is too large.
func beginning(text []byte) string {
	const n = 100
	return strings.ToValidUTF8(string(text[:min(len(text), n)]), "")
}
