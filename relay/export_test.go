package relay

import (
	"time"

	"github.com/postroom/postroom/broker"
)

// Outcomes returns what a leader takes outcomes with: settle adds one, await says of how
// many it is to be told, and told whether it was since it was last asked.
func Outcomes() (settle func(), await func(n int), told func() bool) {
	l := &leader{news: make(chan struct{}, 1), enough: 1}
	settle = func() {
		f := &flight{}
		f.Owner = f
		l.settle(&f.Message, broker.Outcome{})
	}
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

// nextFlights is next with the flights of the messages.
func (l *lanes) nextFlights(n int, now time.Time) (flights []*flight) {
	for _, m := range l.next(n, now) {
		flights = append(flights, flightOf(m))
	}
	return flights
}

// messagesOf returns the messages of flights.
func messagesOf(flights []*flight) (messages []*broker.Message) {
	for _, f := range flights {
		messages = append(messages, &f.Message)
	}
	return messages
}
