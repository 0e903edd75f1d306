//go:build linux || darwin

package inboxes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/childproc"
)

// AboutExpiry says what the scenario of RunExpiry does.
const AboutExpiry = `An inbox keeps its rows for 10 seconds, and refuses events that are older than 5 seconds. 1,000
events a second arrive for three minutes. The table inbox, with its files and indexes, must stop
growing when the first rows have expired and autovacuum, with its default settings, has run. When no
more events arrive, all rows must go, except those of held events. In a second part, the table has
five million expired rows when the inbox starts. This part ends when these rows are removed.`

const (
	deadEvents = 5 // the handler refuses these events for good
	samples    = 12
)

// RunExpiry runs the scenario of an inbox whose rows expire.
func RunExpiry(ctx context.Context, r *stage.Stage) error {
	b, err := r.StartBrokers(ctx, 1)
	if err != nil {
		return err
	}
	c, err := connect(ctx, r, b)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context, *expiryRun) error{steady, arrears} {
		d, err := newDatabase(ctx, r)
		if err != nil {
			return err
		}
		if err := d.Exec(ctx, stage.EffectTable); err != nil {
			return err
		}
		if err := c.Fresh(ctx); err != nil {
			return err
		}
		if err := step(ctx, &expiryRun{stage: r, db: d, traffic: traffic{c: c, rate: stage.Pick(r, 1000.0, 200)}, keep: stage.Pick(r, 10*time.Second, 2*time.Second)}); err != nil {
			return err
		}
	}
	return nil
}

// expiryRun is an inbox under load whose rows expire soon.
type expiryRun struct {
	stage   *stage.Stage
	db      *database
	traffic traffic
	keep    time.Duration
	pushes  pushes
	samples []tableSample
}

type tableSample struct {
	at           time.Duration
	rows         int   // inbox rows without a held event
	all, indexes int64 // sizes in bytes
	oldest       time.Duration
}

// steady follows the size of the inbox table while events come in.
func steady(ctx context.Context, e *expiryRun) error {
	return e.under(ctx, "steady", e.follow)
}

// under runs the inbox. Events come in for as long as the function lead runs. After that, the inbox
// goes on until it has removed every row that it may remove.
func (e *expiryRun) under(ctx context.Context, where string, lead func(ctx context.Context) error) error {
	for range deadEvents { // events that are stored before the handler exists are never too old
		if err := e.traffic.c.send(deadKey, stage.Body(0, 1)); err != nil {
			return err
		}
	}
	e.traffic.n = deadEvents
	if err := e.traffic.c.sent(ctx, deadEvents); err != nil {
		return err
	}
	cfg := inbox.Config{DedupeWindow: e.keep}
	return whileHandling(ctx, e.stage, e.db.Pool, e.traffic.c, cfg, 8, &e.pushes, func(ctx context.Context) error {
		if err := stage.During(ctx, lead, e.traffic.run); err != nil {
			return err
		}
		if err := childproc.Eventually(ctx, 5*time.Minute, "all events to be decided", e.traffic.c.handled); err != nil {
			return err
		}
		return e.conclude(ctx, where)
	})
}

// follow takes samples at equal intervals, and then judges them.
func (e *expiryRun) follow(ctx context.Context) error {
	span := stage.Pick(e.stage, 3*time.Minute, 6*time.Second)
	began := time.Now()
	for n := range samples {
		if !childproc.Sleep(ctx, time.Until(began.Add(span*time.Duration(n+1)/samples))) {
			return context.Cause(ctx)
		}
		found, err := e.look(ctx)
		if err != nil {
			return err
		}
		found.at = time.Since(began)
		e.samples = append(e.samples, found)
		e.stage.Say("%s rows, table %s", figures.Grouped(found.rows), figures.Megabytes(found.all))
	}
	e.judge()
	return nil
}

func (e *expiryRun) look(ctx context.Context) (found tableSample, err error) {
	if found.all, found.indexes, err = e.db.tableSize(ctx); err != nil {
		return found, err
	}
	var oldest float64
	err = e.db.Pool.QueryRow(ctx, `SELECT count(*), coalesce(extract(epoch FROM now() - min(at)), 0)::float8 FROM postroom.inbox
		WHERE NOT EXISTS (SELECT FROM postroom.held WHERE held.handler = inbox.handler AND held.dedupe_key = inbox.dedupe_key)`).Scan(&found.rows, &oldest)
	found.oldest = time.Duration(oldest * float64(time.Second))
	return found, err
}

// judge compares the first half of the samples, in which the table grows to its full size, with the
// second half.
func (e *expiryRun) judge() {
	r := e.stage
	var largest [2]tableSample
	var most tableSample
	for n, at := range e.samples {
		for _, l := range []*tableSample{&largest[2*n/len(e.samples)], &most} {
			l.rows, l.oldest = max(l.rows, at.rows), max(l.oldest, at.oldest)
			l.all, l.indexes = max(l.all, at.all), max(l.indexes, at.indexes)
		}
		r.Note(fmt.Sprintf("after %s", at.at.Round(100*time.Millisecond)), "%s rows, table %s, indexes %s, oldest %s",
			figures.Grouped(at.rows), figures.Megabytes(at.all-at.indexes), figures.Megabytes(at.indexes), at.oldest.Round(100*time.Millisecond))
	}
	slack := 3 * time.Second // for a sweep to remove a row, and for an event to be decided after it arrived
	fits := int(e.traffic.rate * (e.keep + slack).Seconds())
	r.Measure("most rows", figures.Grouped(most.rows), "≤ "+figures.Grouped(fits), most.rows <= fits)
	r.Measure("age of the oldest row, at most", most.oldest.Round(100*time.Millisecond).String(), "≤ "+(e.keep+slack).String(), most.oldest <= e.keep+slack)
	half, end := e.samples[len(e.samples)/2-1], e.samples[len(e.samples)-1]
	r.Note("table with indexes", "at most %s; at half time %s, at the end %s", figures.Megabytes(most.all), figures.Megabytes(half.all), figures.Megabytes(end.all))
	compare := func(figure string, first, second int64) {
		ratio := float64(second) / float64(max(first, 1))
		r.Measure(figure+": the second half, divided by the first", fmt.Sprintf("%.2f", ratio), "≤ 1.25", ratio <= 1.25)
	}
	compare("largest table with indexes", largest[0].all, largest[1].all)
	compare("largest indexes", largest[0].indexes, largest[1].indexes)
}

// arrears measures how long it takes to remove rows that expired long ago.
func arrears(ctx context.Context, e *expiryRun) error {
	r, rows := e.stage, stage.Pick(e.stage, 5_000_000, 5000)
	if err := e.db.decided(ctx, r, rows, 70*24*time.Hour, 40*24*time.Hour); err != nil {
		return err
	}
	all, indexes, err := e.db.tableSize(ctx)
	if err != nil {
		return err
	}
	r.Note("old rows", "%s, table %s, indexes %s", figures.Grouped(rows), figures.Megabytes(all-indexes), figures.Megabytes(indexes))
	var last string // the row with the highest id is also the last in the table, so a sweep reaches it last
	if err := e.db.Pool.QueryRow(ctx, "SELECT max(dedupe_key) FROM postroom.inbox WHERE handler = $1", handlerName).Scan(&last); err != nil {
		return fmt.Errorf("find last old row: %w", err)
	}
	return e.under(ctx, "old rows", func(ctx context.Context) error {
		patience := stage.Pick(r, 10*time.Minute, 5*time.Minute)
		began, said := time.Now(), time.Now()
		err := childproc.Eventually(ctx, patience, "the last old row to be removed", func(ctx context.Context) (gone bool, err error) {
			err = e.db.Pool.QueryRow(ctx, "SELECT NOT EXISTS (SELECT FROM postroom.inbox WHERE handler = $1 AND dedupe_key = $2)", handlerName, last).Scan(&gone)
			if err == nil && time.Since(said) > 10*time.Second {
				said = time.Now()
				err = e.tell(ctx)
			}
			return gone, err
		})
		took := time.Since(began)
		if err != nil && !errors.Is(err, childproc.ErrLate) {
			return err
		}
		r.Check("old rows: time until the last one is removed", took.Round(100*time.Millisecond).String(), "≤ "+patience.String(), err == nil)
		var left int
		if err := e.db.Pool.QueryRow(ctx, "SELECT count(*) FROM postroom.inbox WHERE at < now() - interval '1 day'").Scan(&left); err != nil {
			return fmt.Errorf("count old rows: %w", err)
		}
		r.Count("old rows: left then", left, "")
		return nil
	})
}

// tell prints how many pages the sweep has done.
func (e *expiryRun) tell(ctx context.Context) error {
	var page, pages int64
	err := e.db.Pool.QueryRow(ctx, `SELECT next_page, pg_relation_size('postroom.inbox') / current_setting('block_size')::int
		FROM postroom.sweep`).Scan(&page, &pages)
	if err != nil {
		return fmt.Errorf("read place of the sweep: %w", err)
	}
	e.stage.Say("swept %s of %s pages", figures.Grouped(page), figures.Grouped(pages))
	return nil
}

// conclude waits until the inbox table has only the rows of held events. Then it checks the outcome
// of the events.
func (e *expiryRun) conclude(ctx context.Context, where string) error {
	r, published := e.stage, e.traffic.n
	patience := e.keep + 5*time.Minute
	late := childproc.Eventually(ctx, patience, "the inbox to be empty", func(ctx context.Context) (bool, error) {
		found, err := e.look(ctx)
		return found.rows == 0, err
	})
	if late != nil { // rows that are not removed yet may still be removed
		return late
	}
	o, err := e.db.outcome(ctx)
	if err != nil {
		return err
	}
	e.pushes.mu.Lock()
	slices.Sort(e.pushes.delays)
	r.Note(where+": from the producer's log to the handler", "p50 %s, p99 %s, most %s", figures.Millis(figures.Percentile(e.pushes.delays, 50)),
		figures.Millis(figures.Percentile(e.pushes.delays, 99)), figures.Millis(figures.Percentile(e.pushes.delays, 100)))
	e.pushes.mu.Unlock()
	r.Check(where+": events applied", figures.Grouped(o.applied), "some", o.applied > 0)
	r.Count(where+": applied twice", o.twice, "")
	r.Count(where+": neither applied nor held", published-o.applied-o.owed, "")
	r.Measure(where+": held as too old", figures.Grouped(o.tooOld), "0", o.tooOld == 0)
	r.Count(where+": held for another reason", o.others, "")
	r.Check(where+": dead, with their inbox rows", figures.Grouped(o.dead+o.kept-o.owed), figures.Grouped(deadEvents), o.dead == deadEvents && o.kept == o.owed)
	r.Check(where+": rows removed after the last event", figures.Grouped(o.applied-o.unowed), figures.Grouped(o.applied), o.unowed == 0)
	all, indexes, err := e.db.tableSize(ctx)
	if err != nil {
		return err
	}
	r.Note(where+": size at the end", "table %s, indexes %s", figures.Megabytes(all-indexes), figures.Megabytes(indexes))
	return nil
}
