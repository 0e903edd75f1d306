// Package fakelog is a log in memory, for tests of the relay.
package fakelog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

// Log is a log in memory. It has no history, so the relay does not find events that the broker has
// lost. Lead gives a term to every caller.
type Log struct {
	Mu     sync.Mutex // guards the fields below
	Events []broker.Event
	Done   map[int64]bool              // the published events, by seq
	Held   map[int64]eventlog.Deferral // the events in the table held, by seq
	Terms  []*Term                     // the terms that Lead has begun
	Pause  *eventlog.Pause             // the operator's pause, or nil

	subjects []string
}

var _ eventlog.Source = (*Log)(nil)

// New returns a log whose events have the given subjects. If New gets no subjects, the relay looks
// for no stream.
func New(subjects ...string) *Log {
	return &Log{subjects: subjects, Done: map[int64]bool{}, Held: map[int64]eventlog.Deferral{}}
}

// Set calls the function change while it holds Mu.
func (l *Log) Set(change func()) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	change()
}

// PublishedSeqs returns the seqs of the published events, ascending.
func (l *Log) PublishedSeqs() (seqs []int64) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	for seq := range l.Done {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	return seqs
}

// Check returns nil.
func (l *Log) Check(context.Context) error { return nil }

// Subjects returns the subjects that New got.
func (l *Log) Subjects(context.Context) ([]string, error) { return l.subjects, nil }

// Lag returns an error, because the log does not know its lag.
func (l *Log) Lag(context.Context) (eventlog.Lag, error) {
	return eventlog.Lag{}, errors.ErrUnsupported
}

// Paused returns the field Pause.
func (l *Log) Paused(context.Context) (eventlog.Pause, bool, error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.Pause == nil {
		return eventlog.Pause{}, false, nil
	}
	return *l.Pause, true, nil
}

// Positions returns none.
func (l *Log) Positions(context.Context) ([]broker.StreamPosition, error) { return nil, nil }

// Sources returns no source.
func (l *Log) Sources(context.Context) ([]string, error) { return nil, nil }

// Checkpoints returns no checkpoint.
func (l *Log) Checkpoints(context.Context, string) ([]eventlog.Checkpoint, error) { return nil, nil }

// Entries returns a function that returns no entry.
func (l *Log) Entries(context.Context, eventlog.Checkpoint, time.Time, bool) (func(context.Context) ([]eventlog.HistoryEntry, error), error) {
	return func(context.Context) ([]eventlog.HistoryEntry, error) { return nil, nil }, nil
}

// Lead begins a term.
func (l *Log) Lead(context.Context, string, time.Duration) (eventlog.Term, error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	t := l.NewTerm(time.Now())
	l.Terms = append(l.Terms, t)
	return t, nil
}

// NewTerm returns a term whose unread events are the events that are not published. The caller
// holds Mu.
func (l *Log) NewTerm(taken time.Time) *Term {
	t := &Term{log: l, taken: taken}
	for _, ev := range l.Events {
		if !l.Done[ev.Seq] {
			t.Unread = append(t.Unread, ev)
		}
	}
	return t
}

// Term is a term of a Log. It has no positions, so the relay compares no stream with the log.
type Term struct {
	Unread []broker.Event // guarded by the Log's Mu

	log   *Log
	taken time.Time
}

var _ eventlog.Term = (*Term)(nil)

// LeaseStart returns the time when the term began, and a round trip of 0.
func (t *Term) LeaseStart() (at time.Time, roundTrip time.Duration) { return t.taken, 0 }

// Renew returns nil.
func (t *Term) Renew(context.Context, time.Duration) error { return nil }

// Read returns unread events.
func (t *Term) Read(_ context.Context, limit int, into []broker.Event) (eventlog.Page, error) {
	t.log.Mu.Lock()
	defer t.log.Mu.Unlock()
	n := min(limit, len(t.Unread))
	page := append(into[:0], t.Unread[:n]...)
	t.Unread = t.Unread[n:]
	return eventlog.Page{Events: page}, nil
}

// PutBack does nothing.
func (t *Term) PutBack([]int64) {}

// ReadAgain returns the events with the given seqs.
func (t *Term) ReadAgain(_ context.Context, seqs []int64) (page eventlog.Page, through int64, err error) {
	t.log.Mu.Lock()
	defer t.log.Mu.Unlock()
	for _, ev := range t.log.Events {
		if slices.Contains(seqs, ev.Seq) {
			page.Events = append(page.Events, ev)
		}
	}
	return page, seqs[len(seqs)-1], nil
}

// ReadRepublish returns no republish.
func (t *Term) ReadRepublish(context.Context, int) (eventlog.RepublishPage, error) {
	return eventlog.RepublishPage{}, nil
}

// HeldKeys returns no keys.
func (t *Term) HeldKeys(context.Context) (keys []string, err error) { return nil, nil }

// Prune removes nothing.
func (t *Term) Prune(context.Context, time.Duration) (removed int64, more bool, err error) {
	return 0, false, nil
}

// Record notes which events are published, and which are held.
func (t *Term) Record(_ context.Context, p eventlog.Progress) error {
	t.log.Mu.Lock()
	defer t.log.Mu.Unlock()
	for _, seq := range p.Published {
		t.log.Done[seq] = true
	}
	for _, h := range p.Held {
		t.log.Held[h.Seq] = h
	}
	return nil
}

// Unrecorded returns zero, because Record notes everything.
func (t *Term) Unrecorded() (held, other int) { return 0, 0 }

// Positions returns none.
func (t *Term) Positions() []broker.StreamPosition { return nil }

// Token returns the same token for each term.
func (t *Term) Token() (instance string, epoch int64) { return "fake", 1 }

// Confirm returns nil.
func (t *Term) Confirm(context.Context) error { return nil }

// Release calls Record.
func (t *Term) Release(ctx context.Context, p eventlog.Progress) error { return t.Record(ctx, p) }
