package relay

import (
	"errors"

	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// dropInvalid removes from a batch the events that are not valid, and later events of the
// same keys. It reports their outcomes. The database trusts a writer that says it
// validated its event, so a row can be invalid. An invalid event must not reach the
// broker: its headers or subject could purge a stream, or call the broker's API.
func dropInvalid(batch []*broker.Message, report func(m *broker.Message, o broker.Outcome)) []*broker.Message {
	var invalid []result
	var waiting []*broker.Message
	valid := batch[:0]
	for _, m := range batch {
		if waitsBehind(m, invalid) {
			waiting = append(waiting, m)
		} else if err := faultOf(&m.Event); err != nil {
			invalid = append(invalid, result{schedule.EntryOf(m), broker.Outcome{Class: broker.Permanent, Err: err}})
		} else {
			valid = append(valid, m)
		}
	}
	for i := len(waiting) - 1; i >= 0; i-- { // in reverse, so that each event is reported before the event that it waits for
		report(waiting[i], broker.Outcome{Class: broker.BlockedByKey, Err: broker.ErrBlockedByKey})
	}
	for _, i := range invalid {
		report(&i.Message, i.Outcome)
	}
	return valid
}

// waitsBehind reports whether an event has the same key as one of the other events.
func waitsBehind(m *broker.Message, others []result) bool {
	key := m.OrderKey()
	for _, o := range others {
		if key != "" && o.OrderKey() == key {
			return true
		}
	}
	return false
}

// faultOf returns what is wrong with an event of the log, or nil if the event may be sent.
func faultOf(ev *eventlog.Event) error {
	err := ev.Validate()
	if ev.Fault == nil {
		return err
	}
	return errors.Join(ev.Fault, err)
}
