package relay

import (
	"errors"

	"github.com/postroom/postroom/eventlog"
)

// withhold takes the events out of a batch that are not valid, and what comes after
// them of their keys. The database takes the word of a writer that says it has checked
// its event; the broker is not to: an invalid one could purge a stream, or be a request
// to its API.
func (l *leader) withhold(batch []*Flight) []*Flight {
	var invalid []landing
	var waiting []*Flight
	valid := batch[:0]
	for _, f := range batch {
		if waits(f, invalid) {
			waiting = append(waiting, f)
		} else if err := faultOf(&f.Logged); err != nil {
			invalid = append(invalid, landing{f, failure(err)})
		} else {
			valid = append(valid, f)
		}
	}
	for i := len(waiting) - 1; i >= 0; i-- { // each before the one that it waits for
		l.settle(waiting[i], Outcome{Class: Behind, Err: errBehind})
	}
	for _, i := range invalid {
		l.settle(i.Flight, i.Outcome)
	}
	return valid
}

// waits reports whether an event waits for one of the others.
func waits(f *Flight, others []landing) bool {
	key := f.orderKey()
	for _, o := range others {
		if key != "" && o.orderKey() == key {
			return true
		}
	}
	return false
}

// faultOf returns what is wrong with an event of the log: nil for one that may be sent.
func faultOf(ev *eventlog.Logged) error {
	err := ev.Validate()
	if ev.Fault == nil {
		return err
	}
	return errors.Join(ev.Fault, err)
}
