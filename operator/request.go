package operator

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

// RepublishRequest says which events to publish again, and how fast.
type RepublishRequest struct {
	// Since and Until select events by the time at which they were written: at Since or
	// later, and before Until. A zero Since means the beginning of the log, a zero Until
	// its end.
	Since, Until time.Time

	// Types and Keys select events with one of these types and one of these keys. An empty list
	// selects all events.
	Types, Keys []string

	// All says that all events of the log are selected on purpose: [Store.Republish] refuses a request
	// without a condition and without All, with [ErrNoFilter]. It stands without conditions.
	All bool

	// Rate is how many events to publish in a second, at most.
	//
	// Defaults to DefaultRate.
	Rate float64

	// Name identifies the request, together with Types and Keys. While a republish of the same
	// request runs, a second republish is not stored: see [Store.Republish].
	//
	// Defaults to Since and Until.
	Name string
}

func (r RepublishRequest) defaults() RepublishRequest {
	r.Rate = cmp.Or(r.Rate, DefaultRate)
	r.Types, r.Keys = slices.Clone(r.Types), slices.Clone(r.Keys)
	slices.Sort(r.Types)
	slices.Sort(r.Keys)
	r.Types, r.Keys = slices.Compact(r.Types), slices.Compact(r.Keys)
	return r
}

// selects reports whether the request has a condition.
func (r RepublishRequest) selects() bool {
	return !r.Since.IsZero() || !r.Until.IsZero() || len(r.Types)+len(r.Keys) > 0
}

func (r RepublishRequest) validate() error {
	var faults []error
	if r.All && r.selects() {
		faults = append(faults, errors.New("all selects all events: leave out the conditions"))
	}
	if !r.Until.IsZero() && !r.Since.Before(r.Until) {
		faults = append(faults, fmt.Errorf("since %s is not before until %s", r.Since.Format(time.RFC3339), r.Until.Format(time.RFC3339)))
	}
	for _, s := range slices.Concat(r.Types, r.Keys) {
		if s == "" || !text.Valid(s) {
			faults = append(faults, errors.New("a type or a key is empty, or is not valid text"))
			break
		}
	}
	return errors.Join(append(faults, checkRate(r.Rate))...)
}

// checkRate says what is wrong with a rate.
func checkRate(rate float64) error {
	if !(rate > 0 && rate <= maxRate) { // this refuses a NaN too
		return fmt.Errorf("rate is %g, want more than 0 and %g at the most", rate, float64(maxRate))
	}
	return nil
}

// digest returns a digest that identifies the request: while a republish runs, no other republish
// with the same digest is stored.
func (r RepublishRequest) digest() string {
	name := cmp.Or(r.Name, fmt.Sprint(r.Since.UnixMicro(), r.Until.UnixMicro()))
	return digestOf("republish", name, texts(r.Types), texts(r.Keys))
}

// digestOf returns a digest of some values.
func digestOf(parts ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%#v", parts))
	return hex.EncodeToString(sum[:])
}
