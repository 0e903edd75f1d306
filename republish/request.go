package republish

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postroom/postroom/internal/text"
)

// DefaultRate is the default number of events of a republish that are published in a
// second.
const DefaultRate = 1000

// maxRate is a rate that is more than any broker reaches.
const maxRate = 1e6

// Request says which events to publish again, how fast, and who orders the republish.
type Request struct {
	// Since and Until select events by the time at which they were written: at Since or
	// later, and before Until. A zero Since means the beginning of the log, a zero Until
	// its end.
	Since, Until time.Time

	// Types and Keys select events with one of these types and one of these keys. An empty list
	// selects all events.
	Types, Keys []string

	// Rate is how many events to publish in a second, at most.
	//
	// Defaults to DefaultRate.
	Rate float64

	// Actor and Reason say who orders the republish and why. The audit keeps them.
	Actor, Reason string

	// Name identifies the request, together with Types and Keys. While a republish of the same
	// request runs, a second republish is not stored: see [Store.Start].
	//
	// Defaults to Since and Until.
	Name string
}

func (r Request) defaults() Request {
	r.Rate = cmp.Or(r.Rate, DefaultRate)
	r.Types, r.Keys = slices.Clone(r.Types), slices.Clone(r.Keys)
	slices.Sort(r.Types)
	slices.Sort(r.Keys)
	r.Types, r.Keys = slices.Compact(r.Types), slices.Compact(r.Keys)
	return r
}

func (r Request) validate() error {
	var faults []error
	if !r.Until.IsZero() && !r.Since.Before(r.Until) {
		faults = append(faults, fmt.Errorf("since %s is not before until %s", r.Since.Format(time.RFC3339), r.Until.Format(time.RFC3339)))
	}
	for _, s := range slices.Concat(r.Types, r.Keys) {
		if s == "" || !text.Valid(s) {
			faults = append(faults, errors.New("a type or a key is empty, or is not valid text"))
			break
		}
	}
	return errors.Join(append(faults, checkBy(r.Rate, r.Actor, r.Reason))...)
}

// checkBy validates the fields that all requests have.
func checkBy(rate float64, actor, reason string) error {
	var faults []error
	if !(rate > 0 && rate <= maxRate) { // this refuses a NaN too
		faults = append(faults, fmt.Errorf("rate is %g, want more than 0 and %g at the most", rate, float64(maxRate)))
	}
	if actor == "" || len(actor) > 255 || !text.Valid(actor) {
		faults = append(faults, errors.New("the actor, who orders it, must be 1 to 255 bytes of text"))
	}
	if len(reason) > 4096 || !text.Valid(reason) {
		faults = append(faults, errors.New("the reason must be at most 4096 bytes of text"))
	}
	return errors.Join(faults...)
}

// digest returns a digest that identifies the request: while a republish runs, no other republish
// with the same digest is stored.
func (r Request) digest() string {
	name := cmp.Or(r.Name, fmt.Sprint(r.Since.UnixMicro(), r.Until.UnixMicro()))
	return digestOf("republish", name, texts(r.Types), texts(r.Keys))
}

// digestOf returns a digest of some values.
func digestOf(parts ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%#v", parts))
	return hex.EncodeToString(sum[:])
}
