package natsjs_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/eventlog"
)

func management(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// create makes a stream as an operator would who knows nothing of Postroom.
func create(t *testing.T, nc *nats.Conn, cfg jetstream.StreamConfig) {
	t.Helper()
	if _, err := management(t, nc).CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// fakeSource is a log in memory, with one term at a time.
type fakeSource struct {
	eventlog.History

	subjects []string

	mu     sync.Mutex
	events []eventlog.Logged
	done   map[int64]bool
	held   map[int64]eventlog.Holding
	terms  []*fakeTerm
}

// using returns a log whose events have the given subjects.
func using(subjects ...string) *fakeSource {
	return &fakeSource{subjects: subjects, done: map[int64]bool{}, held: map[int64]eventlog.Holding{}}
}

func (s *fakeSource) Check(context.Context) error { return nil }

func (s *fakeSource) Subjects(context.Context) ([]string, error) { return s.subjects, nil }

func (s *fakeSource) Backlog(context.Context) (eventlog.Backlog, error) {
	return eventlog.Backlog{}, nil
}

func (s *fakeSource) Lead(context.Context, string, time.Duration) (eventlog.Term, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &fakeTerm{source: s, taken: time.Now()}
	for _, ev := range s.events {
		if !s.done[ev.Seq] {
			t.unread = append(t.unread, ev)
		}
	}
	s.terms = append(s.terms, t)
	return t, nil
}

func (s *fakeSource) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *fakeSource) published() (seqs []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seq := range s.done {
		seqs = append(seqs, seq)
	}
	return seqs
}

// fakeTerm is a term of a fakeSource. It remembers no places: no stream is compared with
// one.
type fakeTerm struct {
	source *fakeSource
	taken  time.Time
	unread []eventlog.Logged
}

func (t *fakeTerm) Taken() (time.Time, time.Duration) { return t.taken, 0 }

func (t *fakeTerm) Renew(context.Context, time.Duration) error { return nil }

func (t *fakeTerm) Read(_ context.Context, limit int, into []eventlog.Logged) (eventlog.Page, error) {
	t.source.mu.Lock()
	defer t.source.mu.Unlock()
	n := min(limit, len(t.unread))
	page := append(into[:0], t.unread[:n]...)
	t.unread = t.unread[n:]
	return eventlog.Page{Events: page}, nil
}

func (t *fakeTerm) Rewound(context.Context, int) (eventlog.Rewound, error) {
	return eventlog.Rewound{}, nil
}

// HeldKeys returns none that leave held again.
func (t *fakeTerm) HeldKeys(context.Context) (keys []string, err error) { return nil, nil }

func (t *fakeTerm) Prune(context.Context, time.Duration) (removed int64, more bool, err error) {
	return 0, false, nil
}

func (t *fakeTerm) Record(_ context.Context, p eventlog.Progress) error {
	t.source.mu.Lock()
	defer t.source.mu.Unlock()
	for _, seq := range p.Published {
		t.source.done[seq] = true
	}
	for _, h := range p.Held {
		t.source.held[h.Seq] = h
	}
	return nil
}

func (t *fakeTerm) Places() []eventlog.Place { return nil }

func (t *fakeTerm) Claim() (instance string, epoch int64) { return "fake", 1 }

func (t *fakeTerm) Confirm(context.Context) error { return nil }

func (t *fakeTerm) Release(ctx context.Context, p eventlog.Progress) error { return t.Record(ctx, p) }
