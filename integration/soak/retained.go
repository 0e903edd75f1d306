//go:build linux || darwin

package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/outbox"
)

const aboutRetained = `A relay drains 200,000 new events of 512 bytes: three times from a log that has ten million
published events, and three times from a log that was empty. The two kinds of measurement alternate.
One statement loads the published events. Autovacuum is off for both logs, because it might run in
only one of the measurements. Before each measurement, the log is vacuumed and a checkpoint is made.`

const (
	// Ten million retained rows take about 10 GB if each has stage.EventBytes of data, and half as
	// much if each has smallBytes. The server's WAL needs further disk space.
	smallBytes = 64
	largeDisk  = 40 << 30
	smallDisk  = 15 << 30
)

func retained(ctx context.Context, r *stage.Stage) error {
	bytes, err := retainedBytes(r)
	if err != nil {
		return err
	}
	b, err := r.StartBrokers(ctx, 1)
	if err != nil {
		return err
	}
	c, err := r.Connect(ctx, b.URLs(), jetstream.StreamConfig{})
	if err != nil {
		return err
	}
	empty, err := quietLog(ctx, r)
	if err != nil {
		return err
	}
	full, err := quietLog(ctx, r)
	if err != nil {
		return err
	}
	if err := fill(ctx, r, full, bytes); err != nil {
		return err
	}
	runs := stage.Pick(r, 3, 1) // with each log
	var rates [2][]float64
	var passes [2]figures.Durations
	logs := [2]*stage.Database{empty, full}
	for run := range 2 * runs {
		which := (run + run/2) % 2 // empty, full, full, empty, …: neither log is always the first
		rate, err := drain(ctx, r, logs[which], c, which == 0, &passes[which])
		if err != nil {
			return err
		}
		rates[which] = append(rates[which], rate)
		r.Say("run %d of %d, %s: %s events/s", run+1, 2*runs, [2]string{"empty log", "retained rows"}[which], figures.Grouped(int(rate)))
	}
	for which, name := range [2]string{"empty log", "retained rows"} {
		r.Note(name+": events drained in a second", "%s", figures.List(rates[which]))
		r.Note(name+": a pass with a full page", "%s", &passes[which])
		probe, pass, err := probe(ctx, r, logs[which])
		if err != nil {
			return err
		}
		r.Note(name+": a pass without news, median", "%s", figures.Millis(pass))
		r.Note(name+": a pass with one late row, median", "%s", figures.Millis(probe))
	}
	ratio := figures.Median(rates[1]) / figures.Median(rates[0])
	r.Measure("median rate with retained rows, divided by the median rate without them", fmt.Sprintf("%.3f", ratio), "≥ 0.90", ratio >= 0.9)
	return nil
}

// retainedBytes returns how many bytes of data each retained event has. If no option sets the
// number, it depends on the free disk, except in a short run.
func retainedBytes(r *stage.Stage) (int, error) {
	free, err := freeDisk()
	if err != nil {
		return 0, err
	}
	r.Note("free disk", "%.0f GB", float64(free)/1e9)
	switch {
	case r.RowBytes != 0:
		return r.RowBytes, nil
	case r.Short || free >= largeDisk:
		return stage.EventBytes, nil
	case free >= smallDisk:
		return smallBytes, nil
	}
	return 0, errors.New("there is not enough free disk for ten million rows")
}

// quietLog makes a database with a log that autovacuum does not process.
func quietLog(ctx context.Context, r *stage.Stage) (*stage.Database, error) {
	d, err := r.NewDatabase(ctx, true)
	if err != nil {
		return nil, err
	}
	return d, d.Exec(ctx, "ALTER TABLE postroom.outbox SET (autovacuum_enabled = off)")
}

// fill loads rows into a log, and marks them as published.
func fill(ctx context.Context, r *stage.Stage, d *stage.Database, bytes int) error {
	n := stage.Pick(r, 10_000_000, 5000)
	r.Say("loading %s published rows with %d bytes each", figures.Grouped(n), bytes)
	began := time.Now()
	err := stage.During(ctx, func(ctx context.Context) error { return d.Load(ctx, n, bytes) }, func(ctx context.Context) error {
		for childproc.Sleep(ctx, 20*time.Second) {
			r.Say("still loading")
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, sql := range []string{"UPDATE postroom.relay SET high = (SELECT max(seq) FROM postroom.outbox), snap = pg_current_snapshot()", "VACUUM (ANALYZE) postroom.outbox"} {
		if err := d.Exec(ctx, sql); err != nil {
			return err
		}
	}
	r.Say("loaded in %s", time.Since(began).Round(time.Second))
	backlog, err := pglog.New(d.Pool).Lag(ctx)
	if err != nil {
		return err
	}
	r.Note("retained rows", "%s with %d bytes of data each; with indexes %s", figures.Grouped(n), bytes, figures.Megabytes(backlog.Bytes["outbox"]))
	return nil
}

// drain measures a relay that publishes new events. It returns how many events the relay publishes
// in a second. The time counts from the beginning of its lease until it has recorded the last
// event.
func drain(ctx context.Context, r *stage.Stage, d *stage.Database, c *stage.Client, empty bool, passes *figures.Durations) (rate float64, err error) {
	n := stage.Pick(r, 200_000, 2000)
	if empty {
		if err := d.Exec(ctx, "TRUNCATE postroom.outbox"); err != nil {
			return 0, err
		}
	}
	if err := d.Load(ctx, n, stage.EventBytes); err != nil {
		return 0, err
	}
	for _, sql := range []string{"VACUUM (ANALYZE) postroom.outbox", "CHECKPOINT"} {
		if err := d.Exec(ctx, sql); err != nil {
			return 0, err
		}
	}
	if err := c.Fresh(ctx); err != nil {
		return 0, err
	}
	// Remove the record of the old stream. Otherwise the relay would notice that the stream is
	// another one, and publish the whole log again.
	if err := d.Exec(ctx, "UPDATE postroom.relay SET streams = '{}'"); err != nil {
		return 0, err
	}
	var began, ended time.Time
	var recorded atomic.Int64
	done := make(chan struct{})
	w := stage.Watch{
		Led: func() { began = time.Now() },
		Passed: func(took time.Duration, events int) {
			if events >= 1000 {
				passes.Add(took)
			}
		},
		Recorded: func(_ time.Duration, events int) {
			if recorded.Add(int64(events)) == int64(n) && events > 0 {
				ended = time.Now()
				close(done)
			}
		},
	}
	err = stage.WhileRelaying(ctx, r, d, c, w, func(ctx context.Context) error {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(stage.Pick(r, 5*time.Minute, time.Minute)):
			return fmt.Errorf("%w: all events to be recorded", childproc.ErrLate)
		}
	})
	if err != nil {
		return 0, err
	}
	stored, err := c.Stored(ctx, stage.StreamName)
	if err == nil && stored != n {
		err = fmt.Errorf("the stream has %d messages, want %d", stored, n)
	}
	return float64(n) / ended.Sub(began).Seconds(), err
}

// probe measures passes that find one late row, and passes that find nothing.
func probe(ctx context.Context, r *stage.Stage, d *stage.Database) (late, idle time.Duration, err error) {
	term, err := pglog.New(d.Pool).Lead(ctx, "soak", time.Minute)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, term.Release(context.WithoutCancel(ctx), eventlog.Progress{})) }()
	var lates, idles []time.Duration
	out := outbox.New(outbox.Config{Source: stage.Source})
	for range stage.Pick(r, 100, 5) {
		took, err := oneLate(ctx, d, out, term)
		if err != nil {
			return 0, 0, err
		}
		lates = append(lates, took)
		began := time.Now()
		if _, err := term.Read(ctx, 1000, nil); err != nil {
			return 0, 0, err
		}
		idles = append(idles, time.Since(began))
	}
	return figures.Median(lates), figures.Median(idles), nil
}

// oneLate makes an event visible after a pass has read a later event. The next pass finds this late
// event; oneLate returns how long that pass takes.
func oneLate(ctx context.Context, d *stage.Database, out *outbox.Outbox, term eventlog.Term) (time.Duration, error) {
	slow, err := d.Pool.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = slow.Rollback(context.WithoutCancel(ctx)) }() // no effect after its commit
	ev := postroom.NewEvent(stage.Subject, stage.Body(0, 1))
	if err := out.Write(ctx, slow, ev); err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		return out.Write(ctx, tx, postroom.NewEvent(stage.Subject, stage.Body(0, 1)))
	})
	if err != nil {
		return 0, err
	}
	first, err := term.Read(ctx, 1000, nil)
	if err != nil {
		return 0, err
	}
	if err := slow.Commit(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	second, err := term.Read(ctx, 1000, nil)
	took := time.Since(began)
	if err == nil && (second.Late != 1 || len(second.Events) != 1 || second.Events[0].ID != ev.ID) {
		err = fmt.Errorf("a pass found %d events, %d of them late, want the late one", len(second.Events), second.Late)
	}
	if err != nil {
		return 0, err
	}
	var published eventlog.Progress
	for _, ev := range append(first.Events, second.Events...) {
		published.Published = append(published.Published, ev.Seq)
	}
	return took, term.Record(ctx, published)
}
