//go:build linux || darwin

package main

import (
	"context"
	"errors"
	"time"

	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/childproc"
)

// judge reports the findings of an audit.
func judge(r *stage.Stage, where string, l *rig.Ledger, f *rig.Findings) {
	r.Check(where+": events committed", figures.Grouped(l.Size()), "some", l.Size() > 0)
	r.Check(where+": events rolled back", figures.Grouped(l.Undone()), "some", l.Undone() > 0)
	r.Count(where+": events lost", f.Lost, f.LostExample)
	r.Count(where+": rolled back and published", f.Ghosts, f.GhostExample)
	r.Count(where+": out of the order of their key", f.Disordered, f.Example)
	r.Note(where+": duplicates in the stream", "%s", figures.Grouped(f.Messages-f.Distinct-f.Ghosts))
}

// conclude waits until the relays have recorded every event as published, and then checks the
// stream.
func conclude(ctx context.Context, r *stage.Stage, where string, d *stage.Database, c *stage.Client, l *rig.Ledger) error {
	began := time.Now()
	patience := stage.Pick(r, 15*time.Minute, 5*time.Minute)
	err := childproc.Eventually(ctx, patience, "all to be published", d.Settled)
	r.Note(where+": published after the last commit", "%s", time.Since(began).Round(time.Millisecond))
	if ctx.Err() != nil || errors.Is(err, childproc.ErrLate) { // an event that is not published yet is not lost
		return err
	}
	var found *rig.Findings
	err = errors.New("not read")
	// If a server has just come back, a consumer on it may not answer yet.
	for until := time.Now().Add(patience); err != nil && time.Now().Before(until) && childproc.Sleep(ctx, time.Second); {
		found, err = l.Audit(ctx, c.Client, stage.StreamName)
	}
	if err != nil {
		return errors.Join(childproc.ErrLate, err) // the stream may have every event, although it cannot be read now
	}
	judge(r, where, l, found)
	return nil
}
