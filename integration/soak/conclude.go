//go:build linux || darwin

package main

import (
	"context"
	"errors"
	"time"

	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/internal/childproc"
)

// judge reports the findings of an audit.
func judge(r *stage, where string, l *rig.Ledger, f *rig.Findings) {
	r.check(where+": events committed", grouped(l.Size()), "some", l.Size() > 0)
	r.check(where+": events rolled back", grouped(l.Undone()), "some", l.Undone() > 0)
	r.count(where+": events lost", f.Lost, f.LostExample)
	r.count(where+": rolled back and published", f.Ghosts, f.GhostExample)
	r.count(where+": out of the order of their key", f.Disordered, f.Example)
	r.note(where+": duplicates in the stream", "%s", grouped(f.Messages-f.Distinct-f.Ghosts))
}

// conclude waits until everything is published, by the relays' own record, and checks it.
func conclude(ctx context.Context, r *stage, where string, d *database, c *client, l *rig.Ledger) error {
	began := time.Now()
	patience := pick(r, 15*time.Minute, 5*time.Minute)
	err := childproc.Eventually(ctx, patience, "all to be published", d.settled)
	r.note(where+": published after the last commit", "%s", time.Since(began).Round(time.Millisecond))
	if ctx.Err() != nil || errors.Is(err, childproc.ErrLate) { // an event that is not published yet is not lost
		return err
	}
	var found *rig.Findings
	err = errors.New("not read")
	// If a server has just come back, a consumer on it may not answer yet.
	for until := time.Now().Add(patience); err != nil && time.Now().Before(until) && childproc.Sleep(ctx, time.Second); {
		found, err = l.Audit(ctx, c.Client, stream)
	}
	if err != nil {
		return errors.Join(childproc.ErrLate, err) // a stream that cannot be read now has not lost anything by that
	}
	judge(r, where, l, found)
	return nil
}
