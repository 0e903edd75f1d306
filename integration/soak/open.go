//go:build linux || darwin

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/outbox"
)

const aboutOpen = `Producers commit 1,000 transactions in a second. One in a hundred rolls back, and another one rolls
back to a savepoint. A relay publishes without being woken. After half a minute, two transactions
begin and stay open: one wrote an event, and the other is in a second database of the cluster. Two
figures are compared, for the time before the two transactions began and for their last minute: how
long an event takes from its commit to the broker's acknowledgement, and how long a pass over the
log takes.`

// phase is a time in which figures are collected.
type phase struct {
	name          string
	span          time.Duration
	delays        []time.Duration
	reads, writes figures.Durations
}

// openRun is the state of the scenario.
type openRun struct {
	mu     sync.Mutex
	phase  *phase               // nil between two phases
	commit map[string]time.Time // by id: the commit times of events that are not acknowledged yet
	acked  map[string]time.Time // by id: the acknowledgement times of events that are not known to be committed
	undone map[string]bool
	ghosts []string
}

func (o *openRun) committed(_, _ int, id string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if acked, ok := o.acked[id]; ok {
		delete(o.acked, id)
		o.took(acked.Sub(at))
		return
	}
	o.commit[id] = at
}

func (o *openRun) ack(id string) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.undone[id] {
		o.ghosts = append(o.ghosts, id)
	}
	if at, ok := o.commit[id]; ok {
		delete(o.commit, id)
		o.took(now.Sub(at))
		return
	}
	o.acked[id] = now
}

// took notes a delay. The caller holds the mutex mu. If an acknowledgement came before the
// producer's commit returned, the delay is below zero, and the method notes zero.
func (o *openRun) took(d time.Duration) {
	if o.phase != nil {
		o.phase.delays = append(o.phase.delays, max(d, 0))
	}
}

func (o *openRun) undo(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.undone[id] = true
}

// now returns the present phase.
func (o *openRun) now() *phase {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.phase
}

// collect collects the figures of a phase, for as long as the phase lasts.
func (o *openRun) collect(ctx context.Context, r *stage.Stage, p *phase) error {
	r.Say("%s", p.name)
	o.mu.Lock()
	o.phase = p
	o.mu.Unlock()
	childproc.Sleep(ctx, p.span)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.phase = nil
	return context.Cause(ctx)
}

// wasAcked returns the time when an event was acknowledged, and true. It returns false if the event
// was not acknowledged, or if the event is known to be committed.
func (o *openRun) wasAcked(id string) (time.Time, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, ok := o.acked[id]
	return at, ok
}

func openTransactions(ctx context.Context, r *stage.Stage) error {
	b, err := r.StartBrokers(ctx, 1)
	if err != nil {
		return err
	}
	c, err := r.Connect(ctx, b.URLs(), jetstream.StreamConfig{})
	if err != nil {
		return err
	}
	d, err := r.NewDatabase(ctx, true)
	if err != nil {
		return err
	}
	other, err := r.NewDatabase(ctx, false)
	if err != nil {
		return err
	}
	run := &openRun{commit: make(map[string]time.Time), acked: make(map[string]time.Time), undone: make(map[string]bool)}
	p := &producer{db: d, rate: stage.Pick(r, 1000.0, 300), committed: run.committed, undone: run.undo}
	if err := p.prepare(ctx); err != nil {
		return err
	}
	w := stage.Watch{
		Acked: run.ack,
		Passed: func(took time.Duration, _ int) {
			if now := run.now(); now != nil {
				now.reads.Add(took)
			}
		},
		Recorded: func(took time.Duration, events int) {
			if now := run.now(); now != nil && events > 0 {
				now.writes.Add(took)
			}
		},
	}
	return stage.WhileRelaying(ctx, r, d, c, w, func(ctx context.Context) error {
		err := stage.During(ctx, func(ctx context.Context) error { return run.compare(ctx, r, d, other) }, p.run)
		if err != nil {
			return err
		}
		return run.conclude(ctx, r, c, int(p.done.Load())+1)
	})
}

// compare measures without and with open transactions.
func (o *openRun) compare(ctx context.Context, r *stage.Stage, d, other *stage.Database) error {
	childproc.Sleep(ctx, stage.Pick(r, 5*time.Second, 500*time.Millisecond)) // connections are opened and statements are prepared meanwhile
	before := &phase{name: "without open transactions", span: stage.Pick(r, 30*time.Second, time.Second)}
	if err := o.collect(ctx, r, before); err != nil {
		return err
	}
	mine, err := d.Pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = mine.Rollback(context.WithoutCancel(ctx)) }() // no effect after its commit
	ev := postroom.NewEvent(stage.Subject, stage.Body(0, 1))
	ev.Key = "late"
	if err := outbox.New(outbox.Config{Source: stage.Source}).Write(ctx, mine, ev); err != nil {
		return err
	}
	theirs, err := other.Pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = theirs.Rollback(context.WithoutCancel(ctx)) }() // the table that the transaction creates is not needed
	if _, err := theirs.Exec(ctx, "CREATE TABLE other AS SELECT 1"); err != nil {
		return err
	}
	began := time.Now()
	open := stage.Pick(r, r.OpenFor, 3*time.Second)
	with := &phase{name: "the last part of the time with them", span: min(time.Minute, open/2)}
	r.Say("transactions are open, for %s", open)
	for left := open - with.span; left > 0; left = open - with.span - time.Since(began) {
		if !childproc.Sleep(ctx, min(left, 15*time.Second)) {
			return context.Cause(ctx)
		}
		r.Say("open for %s", time.Since(began).Round(time.Second))
	}
	if err := o.collect(ctx, r, with); err != nil {
		return err
	}
	r.Note("transactions stayed open for", "%s", time.Since(began).Round(time.Second))
	o.report(r, before, with)
	return o.late(ctx, r, mine, ev.ID)
}

// late commits the transaction that was open, and waits for its event.
func (o *openRun) late(ctx context.Context, r *stage.Stage, mine pgx.Tx, id string) error {
	_, early := o.wasAcked(id)
	r.Check("the late event before its commit", [2]string{"not published", "published"}[btoi(early)], "not published", !early)
	if err := mine.Commit(ctx); err != nil {
		return err
	}
	committed := time.Now()
	var acked time.Time
	err := childproc.Eventually(ctx, 5*time.Minute, "the late event to be published", func(context.Context) (done bool, err error) {
		acked, done = o.wasAcked(id)
		return done, nil
	})
	switch {
	case errors.Is(err, childproc.ErrLate):
		r.Check("the late event after its commit", "not within 5 minutes", "published", false)
		return nil
	case err != nil:
		return err
	}
	took := max(acked.Sub(committed), 0)
	r.Check("the late event after its commit", "published after "+figures.Millis(took), "published", true)
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// report compares two phases.
func (o *openRun) report(r *stage.Stage, before, with *phase) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range []*phase{before, with} {
		slices.Sort(p.delays)
		r.Note(p.name+": events", "%s in %s", figures.Grouped(len(p.delays)), p.span)
		r.Note(p.name+": commit to acknowledgement", "p50 %s, p99 %s, most %s", figures.Millis(figures.Percentile(p.delays, 50)), figures.Millis(figures.Percentile(p.delays, 99)), figures.Millis(figures.Percentile(p.delays, 100)))
		r.Note(p.name+": a pass", "%s", &p.reads)
		r.Note(p.name+": a recording", "%s", &p.writes)
	}
	ratio := func(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }
	// The mean pass may be longer by a fifth, and the p99 of the delay by a half or by 1 ms. Even
	// on the same server, these figures vary that much from one minute to the next.
	p99, p99Before := figures.Percentile(with.delays, 99), figures.Percentile(before.delays, 99)
	r.Measure("p99 of the delay with open transactions, divided by the p99 without them", fmt.Sprintf("%.2f", ratio(p99, p99Before)), "≤ 1.5, or 1 ms more", p99 <= max(p99Before*3/2, p99Before+time.Millisecond))
	pass := ratio(with.reads.Mean(), before.reads.Mean())
	r.Measure("mean pass with open transactions, divided by the mean pass without them", fmt.Sprintf("%.2f", pass), "≤ 1.2", pass <= 1.2)
}

// conclude checks that exactly the committed events were published.
func (o *openRun) conclude(ctx context.Context, r *stage.Stage, c *stage.Client, want int) error {
	var unpublished int
	err := childproc.Eventually(ctx, 5*time.Minute, "all to be published", func(context.Context) (bool, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		unpublished = len(o.commit)
		return unpublished == 0, nil
	})
	if err != nil && !errors.Is(err, childproc.ErrLate) {
		return err
	}
	stored, err := c.Stored(ctx, stage.StreamName)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r.Check("events rolled back", figures.Grouped(len(o.undone)), "some", len(o.undone) > 0)
	r.Count("events lost", unpublished, "")
	r.Count("rolled back and published", len(o.ghosts), "")
	r.Check("messages in the stream", figures.Grouped(stored), figures.Grouped(want), stored == want)
	return nil
}
