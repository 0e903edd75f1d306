package relay

// OutcomeOf returns the outcome of an error, as the publisher tells it.
func OutcomeOf(err error) Outcome { return failure(err) }

// ErrReconnected ends a Run whose connection broke and is back.
var ErrReconnected = errReconnected

// Outcomes returns what a leader takes outcomes with: settle adds one, await says of how
// many it is to be told, and told whether it was since it was last asked.
func Outcomes() (settle func(), await func(n int), told func() bool) {
	l := &leader{news: make(chan struct{}, 1), enough: 1}
	settle = func() { l.settle(&Flight{}, Outcome{}) }
	told = func() bool {
		select {
		case <-l.news:
			return true
		default:
			return false
		}
	}
	return settle, l.await, told
}

// Usual makes events as those are that may be acknowledged together: their stream is known,
// and takes events.
func Usual(flights []*Flight) []*Flight {
	to := &stream{}
	for _, f := range flights {
		f.stream, f.usual = to, true
	}
	return flights
}

// The most events that are acknowledged together.
const MaxGroup = maxGroup
