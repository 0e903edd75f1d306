package schedule

import (
	"time"

	"github.com/postroom/postroom/broker"
)

// nextEntries is next with the entries of the messages.
func (l *Scheduler) nextEntries(n int, now time.Time) (entries []*Entry) {
	for _, m := range l.Next(n, now) {
		entries = append(entries, EntryOf(m))
	}
	return entries
}

// messagesOf returns the messages of entries.
func messagesOf(entries []*Entry) (messages []*broker.Message) {
	for _, f := range entries {
		messages = append(messages, &f.Message)
	}
	return messages
}
