//go:build linux || darwin

package inboxes

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/childproc"
)

// AboutFull says what the scenario of RunFull does.
const AboutFull = `An inbox with 32 workers applies 40,000 events of 512 bytes. Its handler inserts a row for each
event. The inbox does this six times: three times with an empty table inbox, and three times with a
table that has five million rows of the same handler, decided during the last four weeks. The two
kinds of measurement alternate. One statement loads the rows. Autovacuum is off for both tables,
because it might run in only one of the measurements. Before each measurement, both tables are
vacuumed and a checkpoint is made. The time counts from the first call of the handler until all
events are acknowledged. Meanwhile the inbox looks for expired rows, as it always does.`

// appliedWithin is how long a measurement may take.
const appliedWithin = 5 * time.Minute

// RunFull runs the scenario of an inbox whose table is full.
func RunFull(ctx context.Context, r *stage.Stage) error {
	b, err := r.StartBrokers(ctx, 1)
	if err != nil {
		return err
	}
	c, err := connect(ctx, r, b)
	if err != nil {
		return err
	}
	empty, err := makeQuietInbox(ctx, r)
	if err != nil {
		return err
	}
	full, err := makeQuietInbox(ctx, r)
	if err != nil {
		return err
	}
	rows := stage.Pick(r, 5_000_000, 5000)
	if err := full.decided(ctx, r, rows, 28*24*time.Hour, time.Hour); err != nil {
		return err
	}
	all, indexes, err := full.tableSize(ctx)
	if err != nil {
		return err
	}
	r.Note("rows of the table that is not empty", "%s, table %s, indexes %s", figures.Grouped(rows), figures.Megabytes(all-indexes), figures.Megabytes(indexes))
	runs := stage.Pick(r, 3, 1)
	var rates [2][]float64
	var written [2][]int
	inboxes := [2]*quietInbox{empty, full}
	for run := range 2 * runs {
		which := (run + run/2) % 2 // empty, full, full, empty, …: neither table is always the first
		rate, wal, err := inboxes[which].apply(ctx, r, c, which == 0)
		if err != nil {
			return err
		}
		rates[which], written[which] = append(rates[which], rate), append(written[which], wal)
		r.Say("run %d of %d, %s: %s events/s", run+1, 2*runs, [2]string{"empty table", "full table"}[which], figures.Grouped(int(rate)))
	}
	for which, name := range [2]string{"empty table", figures.Grouped(rows) + " rows"} {
		r.Note(name+": events applied in a second", "%s", figures.List(rates[which]))
		r.Note(name+": WAL bytes for an event, median", "%s", figures.Grouped(figures.Median(written[which])))
	}
	ratio := figures.Median(rates[1]) / figures.Median(rates[0])
	r.Measure("median rate with the rows, divided by the median rate without them", fmt.Sprintf("%.3f", ratio), "≥ 0.90", ratio >= 0.9)
	found, err := full.outcome(ctx)
	if err != nil {
		return err
	}
	want := rows + runs*stage.Pick(r, 40_000, 1000)
	r.Check("inbox rows at the end", figures.Grouped(found.unowed), figures.Grouped(want), found.unowed == want)
	return nil
}

// quietInbox is a database whose inbox table autovacuum does not process.
type quietInbox struct {
	*database

	workers int
	own     *pgxpool.Pool // the pool of the inbox
}

// makeQuietInbox makes a quietInbox. Its pool opens a connection for each worker in advance,
// because a handler that has run for a while has these connections.
func makeQuietInbox(ctx context.Context, r *stage.Stage) (*quietInbox, error) {
	d, err := newDatabase(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, sql := range []string{"ALTER TABLE postroom.inbox SET (autovacuum_enabled = off)", stage.EffectTable} {
		if err := d.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	q := &quietInbox{database: d, workers: stage.Pick(r, 32, 4)}
	cfg, err := pgxpool.ParseConfig(d.URL)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(q.workers + 4) //nolint:gosec // a few
	cfg.MinConns = int32(q.workers)     //nolint:gosec // a few
	if q.own, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	r.Later(func() error { q.own.Close(); return nil })
	return q, nil
}

// apply measures an inbox that applies new events. It returns how many events the inbox applies in
// a second, and how many bytes of WAL the server writes for each event.
func (q *quietInbox) apply(ctx context.Context, r *stage.Stage, c *client, empty bool) (rate float64, wal int, err error) {
	n := stage.Pick(r, 40_000, 1000)
	statements := []string{"TRUNCATE effect", "DELETE FROM postroom.subscription"}
	if empty {
		statements = append(statements, "TRUNCATE postroom.inbox, postroom.held, postroom.archive, postroom.receipt")
	}
	for _, sql := range statements {
		if err := q.Exec(ctx, sql); err != nil {
			return 0, 0, err
		}
	}
	if err := c.Fresh(ctx); err != nil {
		return 0, 0, err
	}
	data := stage.Body(0, 1)
	for range n {
		if err := c.send("", data); err != nil {
			return 0, 0, err
		}
	}
	if err := c.sent(ctx, n); err != nil {
		return 0, 0, err
	}
	if err := q.rest(ctx); err != nil {
		return 0, 0, err
	}
	var p pushes
	var took time.Duration
	err = whileHandling(ctx, r, q.own, c, inbox.Config{}, q.workers, &p, func(ctx context.Context) (err error) {
		before, err := q.logged(ctx)
		if err != nil {
			return err
		}
		if took, err = p.all(ctx, c, n); err != nil {
			return err
		}
		after, err := q.logged(ctx)
		wal = int(after-before) / n
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	found, err := q.outcome(ctx)
	if err == nil && (found.applied != n || found.twice > 0 || found.owed > 0) {
		err = fmt.Errorf("%d of %d events applied, %d twice, %d held", found.applied, n, found.twice, found.owed)
	}
	return float64(n) / took.Seconds(), wal, err
}

// all waits until n events are handled. It returns how long that took from the first call of the
// handler. It asks the broker only after n calls of the handler, because earlier questions would
// slow the measured work.
func (p *pushes) all(ctx context.Context, c *client, n int) (took time.Duration, err error) {
	for until := time.Now().Add(appliedWithin); time.Now().Before(until) && childproc.Sleep(ctx, 2*time.Millisecond); {
		calls, first := p.called()
		if calls < n {
			continue
		}
		done, err := c.handled(ctx)
		if done || err != nil {
			return time.Since(first), err
		}
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return 0, fmt.Errorf("%w: all events to be applied", childproc.ErrLate)
}

// logged returns how many bytes of WAL the server has written so far.
func (d *database) logged(ctx context.Context) (bytes int64, err error) {
	err = d.Pool.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&bytes)
	return bytes, err
}
