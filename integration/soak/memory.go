//go:build linux || darwin

package main

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/childproc"
)

const aboutMemory = `A relay in its own process drains a million events of 512 bytes with distinct keys. The figure is
the most memory that the process had resident since it began (VmHWM). It includes Go's runtime and
the program's own code.`

// memoryBound is the promised limit of a relay's resident memory, in bytes.
const memoryBound = 100_000_000

func memory(ctx context.Context, r *stage.Stage) error {
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
	n := stage.Pick(r, 1_000_000, 5000)
	r.Say("loading %s events", figures.Grouped(n))
	if err := d.Load(ctx, n, stage.EventBytes); err != nil {
		return err
	}
	if err := d.Exec(ctx, "VACUUM (ANALYZE) postroom.outbox"); err != nil {
		return err
	}
	team, err := startCrew(r, 1, relayJob{Database: d.URL, NATS: b.URLs()})
	if err != nil {
		return err
	}
	var stored int
	said := time.Now()
	began := time.Now()
	err = childproc.Eventually(ctx, 10*time.Minute, "all events to be published", func(ctx context.Context) (done bool, err error) {
		if stored, err = c.Stored(ctx, stage.StreamName); err != nil {
			return false, err
		}
		if time.Since(said) > 5*time.Second {
			r.Say("%s published", figures.Grouped(stored))
			said = time.Now()
		}
		return d.Settled(ctx)
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	if stored, err = c.Stored(ctx, stage.StreamName); err != nil {
		return err
	}
	peak := rig.ResidentPeak(team.get(0).PID())
	r.Check("messages in the stream", figures.Grouped(stored), figures.Grouped(n), stored == n)
	r.Note("events drained in a second, with the start of the process", "%s", figures.Grouped(int(float64(n)/took.Seconds())))
	switch {
	case peak == 0:
		r.Note("largest resident memory", "this system does not tell")
	case raceDetector: // with the race detector, a relay needs several times as much memory
		r.Note("largest resident memory, with the race detector", "%s", figures.Megabytes(peak))
	default:
		r.Check("largest resident memory", figures.Megabytes(peak), "≤ "+figures.Megabytes(memoryBound), peak <= memoryBound)
	}
	return nil
}
