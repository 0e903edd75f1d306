//go:build linux || darwin

package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/pglog"
)

const aboutRetention = `A relay keeps published events for 20 seconds, while producers write for four minutes. The log, with
its files and indexes, must stop growing when the first rows are old enough and autovacuum, with its
default settings, has run.`

func retention(ctx context.Context, r *stage.Stage) error {
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
	keep := stage.Pick(r, 20*time.Second, time.Second)
	if _, err := startCrew(r, 1, relayJob{Database: d.URL, NATS: b.URLs(), Retention: keep}); err != nil {
		return err
	}
	keys := stage.Pick(r, 1000, 100)
	l := rig.NewLedger(keys)
	p := &producer{db: d, keys: keys, rate: stage.Pick(r, 2000.0, 300), committed: l.Commit, undone: l.Undo}
	if err := p.prepare(ctx); err != nil {
		return err
	}
	watched := &sizes{stage: r, db: d, span: stage.Pick(r, 4*time.Minute, 3*time.Second)}
	if err := stage.During(ctx, watched.follow, p.run); err != nil {
		return err
	}
	watched.judge(keep)
	if err := conclude(ctx, r, "stream", d, c, l); err != nil {
		return err
	}
	return watched.removed(ctx, keep, l.Size())
}

// sizes follows the size of a log.
type sizes struct {
	stage   *stage.Stage
	db      *stage.Database
	span    time.Duration
	samples []sample
}

type sample struct {
	at           time.Duration
	rows         int
	log, indexes int64 // bytes of the log with its indexes, and of the indexes alone
	oldest       time.Duration
}

// follow takes twelve samples, at equal intervals, in the time s.span.
func (s *sizes) follow(ctx context.Context) error {
	const times = 12
	began := time.Now()
	for n := range times {
		if !childproc.Sleep(ctx, time.Until(began.Add(s.span*time.Duration(n+1)/times))) {
			return context.Cause(ctx)
		}
		found, err := s.look(ctx)
		if err != nil {
			return err
		}
		found.at = time.Since(began)
		s.samples = append(s.samples, found)
		s.stage.Say("%s rows, log %s", figures.Grouped(found.rows), figures.Megabytes(found.log))
	}
	return nil
}

func (s *sizes) look(ctx context.Context) (found sample, err error) {
	backlog, err := pglog.New(s.db.Pool).Lag(ctx)
	if err != nil {
		return found, err
	}
	found.log, found.oldest = backlog.Bytes["outbox"], backlog.OldestEventAge
	err = s.db.Pool.QueryRow(ctx, "SELECT count(*), pg_indexes_size('postroom.outbox') FROM postroom.outbox").Scan(&found.rows, &found.indexes)
	return found, err
}

// judge compares the first half of the samples, in which the log grows to its full size, with the
// second half.
func (s *sizes) judge(keep time.Duration) {
	var largest [2]sample
	var oldest time.Duration
	for n, at := range s.samples {
		half := 2 * n / len(s.samples)
		largest[half].log = max(largest[half].log, at.log)
		largest[half].indexes = max(largest[half].indexes, at.indexes)
		largest[half].rows = max(largest[half].rows, at.rows)
		oldest = max(oldest, at.oldest)
		s.stage.Note(fmt.Sprintf("after %s", at.at.Round(100*time.Millisecond)), "%s rows, table %s, indexes %s, oldest %s",
			figures.Grouped(at.rows), figures.Megabytes(at.log-at.indexes), figures.Megabytes(at.indexes), at.oldest.Round(100*time.Millisecond))
	}
	compare := func(figure string, first, second int64) {
		ratio := float64(second) / float64(max(first, 1))
		s.stage.Measure(figure+": the second half, divided by the first", fmt.Sprintf("%.2f", ratio), "≤ 1.25", ratio <= 1.25)
	}
	compare("most rows", int64(largest[0].rows), int64(largest[1].rows))
	compare("largest log with indexes", largest[0].log, largest[1].log)
	compare("largest indexes", largest[0].indexes, largest[1].indexes)
	bound := keep + 15*time.Second // a relay checks every 10 s whether there is something to remove
	s.stage.Measure("age of the oldest row, at most", oldest.Round(100*time.Millisecond).String(), "≤ "+bound.String(), oldest <= bound)
}

// removed waits until the relay has removed all rows from the log, and checks that it did.
func (s *sizes) removed(ctx context.Context, keep time.Duration, written int) error {
	var left sample
	patience := keep + 5*time.Minute
	err := childproc.Eventually(ctx, patience, "the log to be empty", func(ctx context.Context) (_ bool, err error) {
		left, err = s.look(ctx)
		return left.rows == 0, err
	})
	s.stage.Check("rows removed after the last write", figures.Grouped(written-left.rows), figures.Grouped(written), err == nil)
	return cmp.Or(ctx.Err(), err)
}
