package relay

import (
	"github.com/postroom/postroom/broker"
	"github.com/postroom/postroom/relay/internal/schedule"
)

// Outcomes returns what a leader takes outcomes with: settle adds one, await says of how
// many it is to be told, and told whether it was since it was last asked.
func Outcomes() (settle func(), await func(n int), told func() bool) {
	l := newResults()
	settle = func() {
		f := &schedule.Entry{}
		f.Owner = f
		l.report(&f.Message, broker.Outcome{})
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
