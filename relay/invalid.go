package relay

import (
	"errors"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// dropInvalid takes the events out of a batch that are not valid, and what comes after
// them of their keys. The database takes the word of a writer that says it has checked
// its event; the broker is not to: an invalid one could purge a stream, or be a request
// to its API. settle takes their outcomes.
func dropInvalid(batch []*broker.Message, report func(m *broker.Message, o broker.Outcome)) []*broker.Message {
	var invalid []result
	var waiting []*broker.Message
	valid := batch[:0]
	for _, m := range batch {
		if waitsBehind(m, invalid) {
			waiting = append(waiting, m)
		} else if err := faultOf(&m.Logged); err != nil {
			invalid = append(invalid, result{schedule.EntryOf(m), broker.Outcome{Class: broker.Permanent, Err: err}})
		} else {
			valid = append(valid, m)
		}
	}
	for i := len(waiting) - 1; i >= 0; i-- { // each before the one that it waits for
		report(waiting[i], broker.Outcome{Class: broker.BlockedByKey, Err: broker.ErrBlockedByKey})
	}
	for _, i := range invalid {
		report(&i.Message, i.Outcome)
	}
	return valid
}

// waitsBehind reports whether an event waits for one of the others.
func waitsBehind(m *broker.Message, others []result) bool {
	key := m.OrderKey()
	for _, o := range others {
		if key != "" && o.OrderKey() == key {
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
