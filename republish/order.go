package republish

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/postroom/postroom/internal/text"
)

// DefaultRate is how many events of a rewind are published in a second, where
// nothing else is said.
const DefaultRate = 1000

// maxRate is a rate that no broker reaches.
const maxRate = 1e6

// Order says which events are to be published again.
type Order struct {
	// Since and Until are when the events were written: from Since on, and before
	// Until. Zero: from the beginning of the log, up to its end.
	Since, Until time.Time

	// Types and Keys are those of the events, exactly. None: all.
	Types, Keys []string

	// Rate is how many events are published in a second, at the most.
	//
	// Defaults to DefaultRate.
	Rate float64

	// Actor is who wants it, and Reason why. They are kept.
	Actor, Reason string

	// Name is what makes two orders of the same types and keys the same: while a
	// rewind of that name runs, another order of it is that rewind.
	//
	// Defaults to Since and Until.
	Name string
}

func (o Order) defaults() Order {
	o.Rate = cmp.Or(o.Rate, DefaultRate)
	o.Types, o.Keys = slices.Clone(o.Types), slices.Clone(o.Keys)
	slices.Sort(o.Types)
	slices.Sort(o.Keys)
	o.Types, o.Keys = slices.Compact(o.Types), slices.Compact(o.Keys)
	return o
}

func (o Order) validate() error {
	var faults []error
	if !o.Since.IsZero() && !o.Until.IsZero() && !o.Since.Before(o.Until) {
		faults = append(faults, fmt.Errorf("since %s is not before until %s", o.Since.Format(time.RFC3339), o.Until.Format(time.RFC3339)))
	}
	for _, s := range slices.Concat(o.Types, o.Keys) {
		if s == "" || !text.Valid(s) {
			faults = append(faults, errors.New("a type or a key is empty, or no text"))
			break
		}
	}
	return errors.Join(append(faults, checkBy(o.Rate, o.Actor, o.Reason))...)
}

// checkBy reports what is wrong with what each order has.
func checkBy(rate float64, actor, reason string) error {
	var faults []error
	if !(rate > 0 && rate <= maxRate) || math.IsNaN(rate) {
		faults = append(faults, fmt.Errorf("rate is %g, want more than 0 and %g at the most", rate, float64(maxRate)))
	}
	if actor == "" || len(actor) > 255 || !text.Valid(actor) {
		faults = append(faults, errors.New("who wants it? Actor has to be 1 to 255 bytes of text"))
	}
	if len(reason) > 4096 || !text.Valid(reason) {
		faults = append(faults, errors.New("reason has to be at most 4096 bytes of text"))
	}
	return errors.Join(faults...)
}

// wish is the digest by which the same order is known again.
func (o Order) wish() string {
	name := cmp.Or(o.Name, fmt.Sprint(o.Since.UnixMicro(), o.Until.UnixMicro()))
	return digestOf("rewind", name, texts(o.Types), texts(o.Keys))
}

func digestOf(parts ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%#v", parts))
	return hex.EncodeToString(sum[:])
}
