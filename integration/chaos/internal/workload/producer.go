//go:build linux || darwin

package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/integration/checker"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/outbox"
)

const (
	// Keys is how many keys the events have.
	Keys = 1000

	sessions = 4 // how many sessions a producer has; each session has one transaction at a time
)

// The shapes of transactions.
const (
	Single    = "single"
	several   = "several"   // it writes several events
	undone    = "rollback"  // it is rolled back at its end
	savepoint = "savepoint" // it writes another event, and rolls back to a savepoint
	long      = "long"      // it stays open for a while
	large     = "large"     // its event is large
	Burst     = "burst"     // the rig writes many events at once
	poison    = "poison"    // a handler cannot handle the event
	scheduled = "scheduled" // its event is scheduled, and perhaps cancelled before it is published
)

// producer changes the domain, and writes an event for each change.
type producer struct {
	*worker

	pool *pgxpool.Pool
	out  *outbox.Outbox
}

func runProducer(ctx context.Context, w *worker) error {
	pool, err := w.connect(ctx, w.Shop, sessions)
	if err != nil {
		return err
	}
	defer pool.Close()
	p := &producer{worker: w, pool: pool, out: outbox.New(outbox.Config{Source: Source})}
	var all sync.WaitGroup
	for i := range sessions {
		all.Go(func() { p.work(ctx, rand.New(rand.NewPCG(w.Seed, uint64(i)))) }) //nolint:gosec // made from a seed on purpose
	}
	all.Wait()
	return nil
}

// work makes one transaction after the other until ctx ends.
func (p *producer) work(ctx context.Context, luck *rand.Rand) {
	pace := time.Duration(float64(sessions) / p.Rate * float64(time.Second))
	for begin := time.Now(); childproc.Sleep(ctx, time.Until(begin)); begin = later(begin.Add(pace), time.Now().Add(-time.Second)) {
		p.transact(ctx, p.plan(luck))
	}
}

// later returns the later of two times. With this time, a producer that was stopped catches up on
// the work of at most one second.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// plan says what a transaction does. It stays the same if the transaction has to begin again.
type plan struct {
	id, shape string
	events    []draft
	undone    string        // the id of an event that is written after a savepoint and rolled back
	off       time.Duration // how long after the commit the producer cancels the event; zero: never
}

type draft struct {
	id   string
	body Body
	wait time.Duration // how long the event waits, from when it is written, until it may be published
}

func (p *producer) plan(luck *rand.Rand) plan {
	pl := plan{id: uuid.Must(uuid.NewV7()).String(), shape: Single}
	n := 1
	switch dice := luck.IntN(100); {
	case dice < 12:
		pl.shape, n = several, 2+luck.IntN(4)
	case dice < 17:
		pl.shape = undone
	case dice < 22:
		pl.shape = savepoint
		pl.undone = uuid.Must(uuid.NewV7()).String()
	case dice < 23:
		pl.shape = long
	case dice < 24:
		pl.shape = large
	case dice < 27:
		pl.shape = poison
	case dice < 33:
		pl.shape = scheduled
		pl.off = time.Duration(luck.IntN(2)) * upTo(luck, time.Millisecond, 600*time.Millisecond)
	}
	for range n {
		b := Body{Key: luck.IntN(Keys), Secret: p.Canary, Pad: strings.Repeat("x", 300)}
		switch pl.shape {
		case large:
			b.Pad = strings.Repeat("x", 200_000+luck.IntN(400_000))
		case poison:
			b.Poison = Handlers()[luck.IntN(len(Handlers()))]
			b.Fate = []string{cure, cure, discard, Leave}[luck.IntN(4)]
			if b.Poison == Books && b.Fate == Leave { // the event would block its key for ever
				b.Fate = cure
			}
		}
		ev := draft{id: uuid.Must(uuid.NewV7()).String(), body: b}
		if pl.shape == scheduled {
			ev.body.Later, ev.wait = true, upTo(luck, 50*time.Millisecond, 2*time.Second)
		}
		pl.events = append(pl.events, ev)
	}
	// Transactions lock their rows in the order of the keys, so that no two of them deadlock.
	slices.SortStableFunc(pl.events, func(a, b draft) int { return cmp.Compare(a.body.Key, b.body.Key) })
	return pl
}

// transact makes a transaction. If it is unknown whether the transaction was committed, transact
// repeats it until that is known. A repetition notices an earlier commit.
func (p *producer) transact(ctx context.Context, pl plan) {
	doubt := false
	for {
		events, err := p.attempt(ctx, pl)
		phase := phaseOf(err)
		if doubt && phase == checker.Failed { // this attempt failed, but an earlier one may have committed
			phase = checker.Unknown
		}
		r := checker.Record{What: checker.Transaction, Phase: phase, ID: pl.id, Shape: pl.shape, Events: events}
		if err != nil {
			r.Error = err.Error()
		}
		p.journal.Note(r)
		if phase == checker.OK && pl.off > 0 && childproc.Sleep(ctx, pl.off) {
			p.callOff(ctx, pl.events[0].id)
		}
		if phase != checker.Unknown {
			return
		}
		doubt = true
		if !childproc.Sleep(ctx, 200*time.Millisecond) {
			return
		}
	}
}

var errOnPurpose = errors.New("rolled back on purpose")

// phaseOf returns what is known after an attempt. If the server answers a commit with an error, the
// commit failed. If the server shuts down or the connection ends, the result of the commit is
// unknown.
func phaseOf(err error) checker.Phase {
	var pg *pgconn.PgError
	var begun *sentCommit
	switch {
	case err == nil:
		return checker.OK
	case !errors.As(err, &begun):
		return checker.Failed // no commit was requested
	case errors.As(err, &pg) && pg.Severity == "ERROR", errors.Is(err, pgx.ErrTxCommitRollback):
		return checker.Failed
	}
	return checker.Unknown
}

// PhaseOfCommit returns what is known after a commit that failed.
func PhaseOfCommit(err error) checker.Phase { return phaseOf(&sentCommit{err}) }

// sentCommit is an error that occurred after the producer requested the commit.
type sentCommit struct{ err error }

func (e *sentCommit) Error() string { return "commit: " + e.err.Error() }
func (e *sentCommit) Unwrap() error { return e.err }

// attempt makes a transaction once, and returns its events. It finishes a transaction that has
// begun, even if ctx ends.
func (p *producer) attempt(ctx context.Context, pl plan) (events []checker.Event, err error) {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, ev := range pl.events {
		events = append(events, ev.body.Event(ev.id))
	}
	tx, err := p.pool.Begin(work)
	if err != nil {
		return events, err
	}
	defer func() { _ = tx.Rollback(work) }() // fails if it has ended
	tag, err := tx.Exec(work, "INSERT INTO deed (id) VALUES ($1) ON CONFLICT DO NOTHING", pl.id)
	if err != nil {
		return events, err
	}
	if tag.RowsAffected() == 0 {
		return events, nil // an earlier attempt committed it
	}
	for i, ev := range pl.events {
		if events[i].N, err = p.change(work, tx, ev); err != nil {
			return events, err
		}
	}
	if pl.shape == savepoint {
		if err := p.takeBack(work, tx, pl); err != nil {
			return events, err
		}
	}
	if pl.shape == long {
		childproc.Sleep(ctx, 700*time.Millisecond)
	}
	if pl.shape == undone {
		return events, errors.Join(errOnPurpose, tx.Rollback(work))
	}
	p.journal.Note(checker.Record{What: checker.Transaction, Phase: checker.Invoked, ID: pl.id, Shape: pl.shape, Events: events})
	if err := tx.Commit(work); err != nil {
		return events, &sentCommit{err}
	}
	return events, nil
}

// change makes a change, and writes its event. From then on the transaction holds the key's lock,
// so that the changes of a key have the order of their commits.
func (p *producer) change(ctx context.Context, tx pgx.Tx, ev draft) (n int, err error) {
	b := ev.body
	if err := tx.QueryRow(ctx, "UPDATE account SET n = n + 1 WHERE id = $1 RETURNING n", b.Key).Scan(&b.N); err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, "INSERT INTO change (event, key, n, poison, later) VALUES ($1, $2, $3, $4, $5)", ev.id, b.Key, b.N, b.Poison, b.Later)
	if err != nil {
		return 0, err
	}
	written := EventOf(ev.id, b)
	if b.Later {
		written.NotBefore = time.Now().Add(ev.wait)
	}
	return b.N, p.out.Write(ctx, tx, written)
}

// callOff cancels a scheduled event, if its time has not come yet.
func (p *producer) callOff(ctx context.Context, id string) {
	r := checker.Record{What: checker.Cancel, Phase: checker.Invoked, Events: []checker.Event{{ID: id, Handler: checker.Outgoing}}}
	p.journal.Note(r)
	cancelled, err := p.cancel(ctx, id)
	switch {
	case err != nil:
		r.Phase, r.Error = phaseOf(err), err.Error()
	case cancelled:
		r.Phase = checker.OK
	default:
		r.Phase = checker.Failed
	}
	p.journal.Note(r)
}

func (p *producer) cancel(ctx context.Context, id string) (cancelled bool, err error) {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	tx, err := p.pool.Begin(work)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(work) }() // fails if it has ended
	if cancelled, err = p.out.Cancel(work, tx, id); err != nil {
		return false, err
	}
	if err := tx.Commit(work); err != nil {
		return false, &sentCommit{err}
	}
	return cancelled, nil
}

func upTo(luck *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(luck.Int64N(int64(most-least)))
}

// EventOf returns the event with an id and a body.
func EventOf(id string, b Body) postroom.Event {
	ev := postroom.NewEvent(Subject, b)
	ev.ID, ev.Key = id, strconv.Itoa(b.Key)
	return ev
}

// takeBack writes an event, and rolls back to a savepoint before it.
func (p *producer) takeBack(ctx context.Context, tx pgx.Tx, pl plan) error {
	gone := pl.events[0].body
	err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
		if err := p.out.Write(ctx, inner, EventOf(pl.undone, gone)); err != nil {
			return err
		}
		return errOnPurpose
	})
	if !errors.Is(err, errOnPurpose) {
		return fmt.Errorf("savepoint: %w", err)
	}
	p.journal.Note(checker.Record{What: checker.Transaction, Phase: checker.Failed, ID: pl.id, Shape: savepoint, Events: []checker.Event{gone.Event(pl.undone)}})
	return nil
}
