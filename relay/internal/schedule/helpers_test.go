package schedule

import (
	"time"

	"github.com/postroom/postroom/relay/broker"
)

// nextEntries is next with the entries of the messages.
func (l *Scheduler) nextEntries(n int, now time.Time) (entries []*Entry) {
	for _, m := range l.Next(n, now) {
		entries = append(entries, EntryOf(m))
	}
	return entries
}

// readBack reads again what the scheduler asks for: events that it has put back into the log.
func (l *Scheduler) readBack(log map[int64]broker.Event) {
	if seqs := l.Ask(); len(seqs) > 0 {
		events := make([]broker.Event, len(seqs))
		for i, seq := range seqs {
			events[i] = log[seq]
		}
		l.AddAgain(events, seqs[len(seqs)-1])
	}
}

// messagesOf returns the messages of entries.
func messagesOf(entries []*Entry) (messages []*broker.Message) {
	for _, f := range entries {
		messages = append(messages, &f.Message)
	}
	return messages
}
