package pglog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/relay/broker"
)

// The size of the storm: events, and crashes of the database. It has no time limit.
const (
	stormWriters  = 16
	stormAccounts = 80

	// A writer begins no transaction while more committed events than this wait for the publisher.
	// If the publisher fell further behind, it would reach no event whose transaction is still open,
	// and no event would be late.
	stormBacklog = 100
)

// storm runs writers and a publisher against a database that crashes.
type storm struct {
	server *devstack.Postgres
	pool   *pgxpool.Pool

	crashes   atomic.Int64 // begun
	down      atomic.Bool  // from before a crash until the server answers again
	published atomic.Int64 // events, each counted once

	mu         sync.Mutex // guards the writers' notes
	committed  map[string]change
	rolledBack map[string]change
	prepared   int // transactions that were prepared
	unknown    int // transactions whose end a crash hid
	repeated   int // events that were written again

	late         atomic.Int64 // events that were read late
	terms        int          // only the publisher uses it
	replacedSent atomic.Int64 // events that were published in a term that was over
}

// complete reports whether all that a storm is about has happened.
func (s *storm) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late.Load() > 0 && len(s.rolledBack) > 0 && s.prepared > 0 && s.unknown > 0 && s.repeated > 0 && s.replacedSent.Load() > 0
}

// serverState is the state of the server when something begins.
type serverState struct {
	crashes int64
	down    bool
}

func (s *storm) serverState() serverState { return serverState{s.crashes.Load(), s.down.Load()} }

// excused reports whether a crash may have caused an error that came since then.
func (s *storm) excused(since serverState) bool {
	return since.down || s.crashes.Load() != since.crashes
}

// backlog returns how many committed events were not published yet.
func (s *storm) backlog() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.committed)) - s.published.Load()
}

// restartServer kills the server and starts it again.
func (s *storm) restartServer(t *testing.T) {
	t.Helper()
	s.down.Store(true)
	s.crashes.Add(1)
	crash(t, s.server, s.pool)
	s.down.Store(false)
}

// stormTerm is a term, with the events that it read and has not published.
type stormTerm struct {
	*pglog.Term
	window []broker.Event
}

// read adds a page to the window.
func (p *stormTerm) read(ctx context.Context, limit int) (eventlog.Page, error) {
	page, err := p.Read(ctx, limit, nil)
	p.window = append(p.window, page.Events...)
	return page, err
}

// send publishes the window's events of some keys, and returns their seqs. The others wait, as
// if the broker did not answer.
func (p *stormTerm) send(t *testing.T, j *journal, rng *rand.Rand) []int64 {
	t.Helper()
	waits := map[string]bool{}
	var sent, rest []broker.Event
	for _, ev := range p.window {
		if _, ok := waits[ev.Key]; !ok {
			waits[ev.Key] = rng.IntN(3) == 0
		}
		if waits[ev.Key] {
			rest = append(rest, ev)
		} else {
			sent = append(sent, ev)
		}
	}
	p.window = rest
	return j.add(t, sent)
}

// publish leads terms until ctx ends, and returns what they published.
func (s *storm) publish(ctx context.Context, t *testing.T, rng *rand.Rand) *journal {
	j := newJournal()
	log := pglog.New(s.pool)
	var last *stormTerm // the term before, which does not know that it was replaced
	for ctx.Err() == nil {
		since := s.serverState()
		term, err := s.oneTerm(ctx, t, log, last, j, rng)
		if err != nil && !s.excused(since) {
			t.Errorf("publisher: %v", err)
			break
		}
		if last != nil {
			_ = last.Abandon() // of a killed server's connections
		}
		last = term
	}
	if last != nil {
		_ = last.Abandon() // of a killed server's connections
	}
	return j
}

// oneTerm publishes some pages, and records that now and then. It ends without recording the
// rest. The term before it may go on for a while.
func (s *storm) oneTerm(ctx context.Context, t *testing.T, log *pglog.Log, last *stormTerm, j *journal, rng *rand.Rand) (*stormTerm, error) {
	background := context.WithoutCancel(ctx)
	begun, err := pglog.Lead(background, log, "test", time.Minute)
	if err != nil {
		pause(ctx, 10*time.Millisecond)
		return nil, fmt.Errorf("lead: %w", err)
	}
	s.terms++
	term := &stormTerm{Term: begun}
	limit := 1 + rng.IntN(60)
	var acked []int64
	for range rng.IntN(30) {
		if ctx.Err() != nil {
			return term, nil
		}
		if last != nil && rng.IntN(10) == 0 {
			if err := s.publishReplaced(background, t, last, j, limit, rng); err != nil {
				return term, err
			}
		}
		page, err := term.read(background, limit)
		if err != nil {
			return term, err
		}
		s.late.Add(int64(page.Late))
		acked = append(acked, term.send(t, j, rng)...)
		s.published.Store(int64(len(j.times)))
		pause(ctx, time.Duration(rng.IntN(10))*time.Millisecond) // transactions end meanwhile
		if rng.IntN(3) > 0 {
			continue
		}
		if err := tryRecord(background, term.Term, acked...); err != nil {
			return term, err
		}
		acked = acked[:0]
	}
	return term, nil
}

// publishReplaced lets a replaced term publish. The term cannot record that it published.
func (s *storm) publishReplaced(ctx context.Context, t *testing.T, last *stormTerm, j *journal, limit int, rng *rand.Rand) error {
	if _, err := last.read(ctx, limit); err != nil {
		return err
	}
	seqs := last.send(t, j, rng)
	s.replacedSent.Add(int64(len(seqs)))
	if err := tryRecord(ctx, last.Term, seqs...); err == nil {
		return fmt.Errorf("a term that is over recorded %d events", len(seqs))
	}
	return nil
}

// Writers do everything that a transaction can do, the database is killed in the middle, and
// terms end at any moment. In the end the published events are exactly those of the log, and
// the changes of each account were published in their order.
func TestPublishedEventsAreTheLogAfterAStorm(t *testing.T) {
	t.Parallel()
	crashes, between := 2, 1500
	if soak {
		crashes, between = 20, 2500
	}
	s := &storm{
		server:    devtest.OwnPostgres(t, devstack.Config{Durable: true, PreparedTransactions: stormWriters}),
		committed: map[string]change{}, rolledBack: map[string]change{},
	}
	s.pool = ownDatabase(t, s.server, "")
	mustExec(t, s.pool, "CREATE TABLE account (id int PRIMARY KEY, n int NOT NULL DEFAULT 0)")
	mustExec(t, s.pool, "INSERT INTO account (id) SELECT generate_series(0, $1)", stormAccounts)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	for i := range stormWriters {
		w := &stormWriter{storm: s, name: fmt.Sprint("writer ", i), rng: devtest.Random(t, 1+i)}
		running.Go(func() {
			if err := w.run(ctx); err != nil {
				t.Errorf("%s: %v", w.name, err)
			}
		})
	}
	var j *journal
	random := devtest.Random(t, 0)
	running.Go(func() { j = s.publish(ctx, t, random) })
	more := func() {
		from := s.published.Load()
		devtest.Eventually(t, 2*time.Minute, "events are published", func() bool {
			return t.Failed() || s.published.Load() > from+int64(between)
		})
	}
	more()
	for n := 0; n < crashes || n < 10*crashes && !s.complete(); n++ { // a busy machine needs more of them
		s.restartServer(t)
		more()
	}
	stop()
	running.Wait()
	j.drain(t, lead(t, pglog.New(s.pool)), 100)
	s.compare(t, j)
}

func (s *storm) compare(t *testing.T, j *journal) {
	t.Helper()
	ids := logged(t, s.pool)
	t.Logf("%d events in the log, %d rolled back, %d published in %d terms, %d of them late; %d prepared, %d of unknown end, %d repeated, %d published by terms that were over",
		len(ids), len(s.rolledBack), len(j.ids), s.terms, s.late.Load(), s.prepared, s.unknown, s.repeated, s.replacedSent.Load())
	j.lost(t, ids)
	j.ghosts(t, ids)
	j.outOfOrder(t)
	for id, c := range s.committed {
		if _, ok := slices.BinarySearch(ids, id); !ok {
			t.Errorf("account %d, change %d was committed and is not in the log", c.Account, c.N)
		}
	}
	for id, c := range s.rolledBack {
		if _, ok := slices.BinarySearch(ids, id); ok {
			t.Errorf("account %d, change %d was rolled back and is in the log", c.Account, c.N)
		}
	}
	if len(s.committed) != len(ids) {
		t.Errorf("%d events were committed, %d are in the log", len(s.committed), len(ids))
	}
	if !s.complete() || len(j.ids) == len(ids) {
		t.Error("inconclusive: one of the cases did not happen at all")
	}
}
