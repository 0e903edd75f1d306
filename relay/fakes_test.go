package relay_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest/fakelog"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay/broker"
)

// fakeSource is a log in memory. Tests set its answers. Its Mu guards the fields.
type fakeSource struct {
	*fakelog.Log

	terms       []*fakeTerm
	checkErr    error
	leadErr     error
	pauseErr    error
	heldKeys    []string
	prunable    int // steps
	places      []broker.StreamPosition
	lost        []int64 // the relay found that the broker lost these events
	late        []int64 // lost events whose keys have later events that were published
	republishes fakeRepublishes
	recorded    func(t *fakeTerm, ctx context.Context) error // if set, Record calls it
	renewed     func(t *fakeTerm, ctx context.Context) error // if set, Renew calls it
	unrecorded  func() (held, other int)                     // if set, Unrecorded calls it

	leases    []time.Duration // the length of the lease of each term
	roundTrip time.Duration
	takes     time.Duration // how long Lead takes
	readErr   error

	slow       time.Duration // how long Read takes
	searching  int           // this many calls of Read find no event and set More
	scheduled  int           // this many calls of Read find a page of scheduled events
	unstorable int           // the next page reports this many
}

func newFakeSource(events ...broker.Event) *fakeSource {
	s := &fakeSource{Log: fakelog.New()} // without subjects: no stream is looked for
	s.Events = events
	return s
}

func (s *fakeSource) Check(context.Context) error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.checkErr
}

// Positions returns the positions that the last term recorded.
func (s *fakeSource) Positions(context.Context) ([]broker.StreamPosition, error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return slices.Clone(s.places), nil
}

func (s *fakeSource) Paused(ctx context.Context) (eventlog.Pause, bool, error) {
	s.Mu.Lock()
	err := s.pauseErr
	s.Mu.Unlock()
	if err != nil {
		return eventlog.Pause{}, false, err
	}
	return s.Log.Paused(ctx)
}

func (s *fakeSource) Lead(_ context.Context, _ string, lease time.Duration) (eventlog.Term, error) {
	began := time.Now()
	s.Mu.Lock()
	takes := s.takes
	s.Mu.Unlock()
	time.Sleep(takes)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.leases = append(s.leases, lease)
	if s.leadErr != nil {
		return nil, s.leadErr
	}
	t := &fakeTerm{Term: s.NewTerm(began), source: s}
	s.terms = append(s.terms, t)
	return t, nil
}

// fakeTerm is a term of a fakeSource.
type fakeTerm struct {
	*fakelog.Term

	source   *fakeSource
	readErr  error
	later    int // what the next page says in Scheduled
	records  []time.Time
	pruned   []time.Time
	released bool
	renewals []time.Duration
}

func (t *fakeTerm) LeaseStart() (time.Time, time.Duration) {
	at, _ := t.Term.LeaseStart()
	return at, t.source.roundTrip
}

func (t *fakeTerm) Renew(ctx context.Context, lease time.Duration) error {
	t.source.Mu.Lock()
	renew := t.source.renewed
	t.source.Mu.Unlock()
	if renew != nil {
		if err := renew(t, ctx); err != nil {
			return err
		}
	}
	t.source.Mu.Lock()
	defer t.source.Mu.Unlock()
	t.renewals = append(t.renewals, lease)
	return nil
}

func (t *fakeTerm) Read(ctx context.Context, limit int, into []broker.Event) (eventlog.Page, error) {
	t.source.Mu.Lock()
	slow := t.source.slow
	t.source.Mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return eventlog.Page{}, ctx.Err()
		}
	}
	if t.search() {
		return eventlog.Page{More: true}, nil
	}
	if t.schedules() {
		return eventlog.Page{Scheduled: limit}, nil
	}
	page, err := t.Term.Read(ctx, limit, into)
	t.source.Mu.Lock()
	defer t.source.Mu.Unlock()
	page.Scheduled, t.later = t.later, 0
	page.Unstorable, t.source.unstorable = t.source.unstorable, 0
	return page, errors.Join(err, t.readErr, t.source.readErr)
}

// search reports whether a read only searches.
func (t *fakeTerm) search() bool {
	t.source.Mu.Lock()
	defer t.source.Mu.Unlock()
	if t.source.searching == 0 {
		return false
	}
	t.source.searching--
	return true
}

// schedules reports whether a read finds only scheduled events.
func (t *fakeTerm) schedules() bool {
	t.source.Mu.Lock()
	defer t.source.Mu.Unlock()
	if t.source.scheduled == 0 {
		return false
	}
	t.source.scheduled--
	return true
}

func (t *fakeTerm) ReadRepublish(_ context.Context, limit int) (eventlog.RepublishPage, error) {
	t.source.Mu.Lock()
	defer t.source.Mu.Unlock()
	return t.source.republishes.look(limit), nil
}

func (t *fakeTerm) HeldKeys(context.Context) ([]string, error) {
	t.source.Mu.Lock()
	defer t.source.Mu.Unlock()
	return t.source.heldKeys, nil
}

// Prune removes one step's worth of prunable events.
func (t *fakeTerm) Prune(context.Context, time.Duration) (removed int64, more bool, err error) {
	t.source.Mu.Lock()
	defer t.source.Mu.Unlock()
	t.pruned = append(t.pruned, time.Now())
	return 0, t.source.prunable > len(t.pruned), nil
}

func (t *fakeTerm) Record(ctx context.Context, p eventlog.Progress) error {
	t.source.Mu.Lock()
	record := t.source.recorded
	t.source.Mu.Unlock()
	if record != nil {
		if err := record(t, ctx); err != nil {
			return err
		}
	}
	if t.isReleased() {
		return errors.New("recorded after the release")
	}
	if err := t.Term.Record(ctx, p); err != nil {
		return err
	}
	t.source.Mu.Lock()
	defer t.source.Mu.Unlock()
	t.records = append(t.records, time.Now())
	for _, at := range p.Positions {
		t.source.places = slices.DeleteFunc(t.source.places, func(old broker.StreamPosition) bool { return old.Stream == at.Stream })
		t.source.places = append(t.source.places, at)
	}
	t.source.lost, t.source.late = append(t.source.lost, p.Lost...), append(t.source.late, p.LostBehindKey...)
	var lost []broker.Event
	for _, ev := range t.source.Events {
		if slices.Contains(p.Lost, ev.Seq) {
			delete(t.source.Done, ev.Seq)
			lost = append(lost, ev)
		}
	}
	t.Unread = append(lost, t.Unread...)
	t.source.republishes.repeated = append(t.source.republishes.repeated, p.Republished...)
	return nil
}

func (t *fakeTerm) Unrecorded() (held, other int) {
	t.source.Mu.Lock()
	defer t.source.Mu.Unlock()
	if t.source.unrecorded != nil {
		return t.source.unrecorded()
	}
	return 0, 0
}

func (t *fakeTerm) isReleased() bool {
	t.source.Mu.Lock()
	defer t.source.Mu.Unlock()
	return t.released
}

func (t *fakeTerm) Positions() []broker.StreamPosition {
	t.source.Mu.Lock()
	defer t.source.Mu.Unlock()
	return slices.Clone(t.source.places)
}

func (t *fakeTerm) Release(ctx context.Context, p eventlog.Progress) error {
	err := t.Record(ctx, p)
	t.source.Mu.Lock()
	defer t.source.Mu.Unlock()
	t.released = true
	return err
}

// fakePublisher answers with the results of its function, in a goroutine for each event. Give
// it hundreds of events, not thousands: the race detector of Go 1.26 sometimes aborts if so
// many goroutines begin and end in a bubble of synctest.
type fakePublisher struct {
	sound

	answer func(ev broker.Event, try int) (wait time.Duration, err error)
	stream string                       // that all events go to
	store  func(ev broker.Event) uint64 // if set, stores an event and returns its sequence
	runErr error

	mu       sync.Mutex
	tries    map[int64]int
	again    map[int64]int // of republishes
	inFlight int
	most     int // the most in flight at any time
}

// sound finds no fault in the streams.
type sound struct{ broker.PublishOnly }

func (sound) Abilities() broker.Abilities {
	return broker.Abilities{Inspects: true, Verifies: true, Risks: natsjs.Risks()}
}

func (sound) Check(context.Context) error { return nil }

func (sound) Inspect(context.Context, []string, []string) (covered bool, faults []error, err error) {
	return false, nil, nil
}

func (sound) InspectAtomic(context.Context, []string, []string) (covered bool, faults []error, err error) {
	return false, nil, nil
}

func (sound) Compare(_ context.Context, at broker.StreamPosition) (broker.StreamState, error) {
	return broker.StreamState{Verdict: broker.Intact, Last: at}, nil
}

// outcomeOf returns the outcome for an error: Unknown, unless the error has a class.
func outcomeOf(err error) broker.Outcome {
	var told *classError
	switch {
	case errors.As(err, &told):
		return broker.Outcome{Class: told.class, Err: err, Reason: told.reason}
	case err == nil:
		return broker.Outcome{Class: broker.Stored}
	case errors.Is(err, broker.ErrNoStream):
		return broker.Outcome{Class: broker.Unroutable, Err: err}
	case errors.Is(err, broker.ErrNoLeader):
		return broker.Outcome{Class: broker.Unavailable, Err: err}
	}
	return broker.Outcome{Class: broker.Unknown, Err: err}
}

// classError is an error of a class.
type classError struct {
	class  broker.Class
	reason string
}

func (e *classError) Error() string { return "broker: " + e.reason }

func (p *fakePublisher) Run(ctx context.Context, batches <-chan []*broker.Message, settle func(*broker.Message, broker.Outcome)) error {
	p.mu.Lock()
	err := p.runErr
	p.mu.Unlock()
	if err != nil {
		return err
	}
	var answers sync.WaitGroup
	defer answers.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case batch := <-batches:
			for _, ev := range batch {
				answers.Go(func() { p.publish(ctx, ev, settle) })
			}
		}
	}
}

func (p *fakePublisher) publish(ctx context.Context, ev *broker.Message, settle func(*broker.Message, broker.Outcome)) {
	p.mu.Lock()
	if p.tries == nil {
		p.tries = map[int64]int{}
	}
	p.tries[ev.Seq]++
	try := p.tries[ev.Seq]
	if p.again == nil {
		p.again = map[int64]int{}
	}
	p.again[ev.RepublishID]++
	p.inFlight++
	p.most = max(p.most, p.inFlight)
	p.mu.Unlock()

	var wait time.Duration
	var err error
	if p.answer != nil {
		wait, err = p.answer(ev.Event, try)
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(wait):
	}
	p.mu.Lock()
	p.inFlight--
	p.mu.Unlock()
	o := outcomeOf(err)
	o.Stream = p.stream
	if p.store != nil && err == nil {
		o.Sequence = p.store(ev.Event)
	}
	settle(ev, o)
}

func (p *fakePublisher) setRunErr(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runErr = err
}

func (p *fakePublisher) tried(seq int64) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tries[seq]
}

// triedOf returns how often events of a republish were sent, all together.
func (p *fakePublisher) triedOf(republish int64) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.again[republish]
}

// promptPublisher reports each event as stored at once.
type promptPublisher struct{ sound }

func (promptPublisher) Run(ctx context.Context, batches <-chan []*broker.Message, settle func(*broker.Message, broker.Outcome)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case batch := <-batches:
			for _, f := range batch {
				settle(f, broker.Outcome{Class: broker.Stored})
			}
		}
	}
}

// events returns n events without a key, from seq 1.
func events(n int) []broker.Event {
	all := make([]broker.Event, n)
	for i := range all {
		all[i] = broker.Event{Seq: int64(i + 1), Event: postroom.Event{Type: "a.b"}}
	}
	return all
}
