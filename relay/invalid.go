package relay

import (
	"errors"
	"slices"

	"github.com/postroom/postroom/relay/broker"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// dropInvalid removes from a batch the events that are not valid, and later events of the
// same keys. It reports their outcomes. The database trusts a writer that says it
// validated its event, so a row can be invalid. An invalid event must not reach the
// broker: its headers or subject could purge a stream, or call the broker's API. An invalid
// event behind a valid one of its key waits, because that one may have to be sent again.
func dropInvalid(batch []*broker.Message, report func(m *broker.Message, o broker.Outcome)) []*broker.Message {
	var invalid []result
	var waiting, stopped []*broker.Message // stopped has the first event of each key that is not sent
	valid := batch[:0]
	for _, m := range batch {
		err := faultOf(&m.Event)
		switch {
		case waitsBehind(m, stopped):
			waiting = append(waiting, m)
		case err == nil:
			valid = append(valid, m)
		case waitsBehind(m, valid):
			waiting, stopped = append(waiting, m), append(stopped, m)
		default:
			stopped = append(stopped, m)
			invalid = append(invalid, result{schedule.EntryOf(m), broker.Outcome{Class: broker.Permanent, Err: err}})
		}
	}
	for _, m := range slices.Backward(waiting) { // in reverse, so that each event is reported before the event that it waits for
		report(m, broker.Outcome{Class: broker.BlockedByKey, Err: broker.ErrBlockedByKey})
	}
	for _, i := range invalid {
		report(&i.Message, i.Outcome)
	}
	return valid
}

// waitsBehind reports whether an event has the same key as one of the other events.
func waitsBehind(m *broker.Message, others []*broker.Message) bool {
	key := m.OrderKey()
	return key != "" && slices.ContainsFunc(others, func(o *broker.Message) bool { return o.OrderKey() == key })
}

// faultOf returns what is wrong with an event of the log, or nil if the event may be sent.
func faultOf(ev *broker.Event) error {
	err := ev.Validate()
	if ev.Fault == nil {
		return err
	}
	return errors.Join(ev.Fault, err)
}
