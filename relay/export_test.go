package relay

import (
	"github.com/postroom/postroom/relay/broker"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// Over returns a relay over any log.
var Over = over

// Outcomes returns functions for the results of a leader: settle adds a result, await sets how many
// results wake the dispatcher, and told reports whether the dispatcher was woken since the last
// call.
func Outcomes() (settle func(), await func(n int), told func() bool) {
	l := newResults()
	settle = func() {
		f := &schedule.Entry{}
		f.Owner = f
		l.report(&f.Message, broker.Outcome{Class: broker.Stored})
	}
	told = func() bool {
		select {
		case <-l.news:
			return true
		default:
			return false
		}
	}
	return settle, l.wakeAt, told
}
