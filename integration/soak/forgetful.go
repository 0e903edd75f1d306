//go:build linux || darwin

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/integration/natsfleet"
	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/internal/reconcile"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/operator"
)

const aboutForgetful = `The broker loses messages. First, a process compares a million published events with their stream,
as fast as it can. Then a thousand messages are removed from random places of the stream. They are
found and published again, while producers write as fast as they can. The rate of the producers is
compared with the mean of their rates before and after that. At the end, an older copy replaces the
broker's storage three times. Each time, the broker reads its storage again, the relay finds the
lost events and publishes them, and the producers go on. Their rate is compared with their rate
during a restart of the broker that loses nothing, because a restart alone slows them down. The
rates count committed transactions, each with one event.`

// unbounded is the rate of a comparison without a limit.
const unbounded = 1e9

// liveShare is the least rate of live traffic during a repair, as a share of the rate without one.
const liveShare = 0.8

// compareJob describes a comparison.
type compareJob struct {
	Database, NATS string
	Rate           float64 // zero: the default rate
}

// comparison is the result of comparing the log with the stream.
type comparison struct {
	Compared, Messages int
	Missing            []int64
	Seconds            float64
}

// serveCompare compares a log with its streams, and prints the result. Then it waits until ctx
// ends, so that the parent process can read how much memory it used.
func serveCompare(ctx context.Context, text []byte) error {
	var job compareJob
	if err := json.Unmarshal(text, &job); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, job.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	nc, err := nats.Connect(job.NATS)
	if err != nil {
		return err
	}
	defer nc.Close()
	found, err := reconcile.Compare(ctx, pglog.New(pool), natsjs.NewPublisher(nc), reconcile.Config{Rate: job.Rate})
	if err == nil && (len(found) != 1 || found[0].Err != nil) {
		err = fmt.Errorf("found %+v", found)
	}
	if err != nil {
		return err
	}
	told, err := json.Marshal(comparison{found[0].Compared, found[0].Messages, found[0].Missing, found[0].Took.Seconds()})
	if err != nil {
		return err
	}
	childproc.Tell("%s", told)
	<-ctx.Done()
	return nil
}

// compare compares the log with the stream in another process. It returns the result, and the most
// memory that the process used.
func (a *amnesia) compare(ctx context.Context, job compareJob) (found comparison, peak int64, err error) {
	p, err := childproc.Start("compare", job, a.ChildLog())
	if err != nil {
		return found, 0, err
	}
	defer p.Kill()
	err = childproc.Eventually(ctx, 5*time.Minute, "a comparison", func(context.Context) (bool, error) {
		if p.Ended() {
			return false, errors.New("it failed")
		}
		text := p.Says()
		return text != "" && json.Unmarshal([]byte(text), &found) == nil, nil
	})
	return found, rig.ResidentPeak(p.PID()), err
}

// amnesia is the stage of the scenario forgetful, with its broker, database and producer.
type amnesia struct {
	*stage.Stage
	b *natsfleet.Brokers
	c *stage.Client
	d *stage.Database
	p *producer
}

func forgetful(ctx context.Context, r *stage.Stage) error {
	a := &amnesia{Stage: r}
	var err error
	if a.b, err = r.StartBrokers(ctx, 1); err != nil {
		return err
	}
	if err := a.stream(ctx); err != nil {
		return err
	}
	if a.d, err = r.NewDatabase(ctx, true); err != nil {
		return err
	}
	a.p = &producer{db: a.d, keys: 1000, rate: stage.Pick(r, 1e9, 500), committed: func(int, int, string, time.Time) {}, undone: func(string) {}}
	if err := a.p.prepare(ctx); err != nil {
		return err
	}
	if _, err := startCrew(r, 1, relayJob{Database: a.d.URL, NATS: a.b.URLs()}); err != nil {
		return err
	}
	for _, step := range []func(ctx context.Context) error{a.reconcile, a.repair, a.rollBack} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stream makes a stream that allows removals, which natsjs.EnsureStream forbids.
func (a *amnesia) stream(ctx context.Context) error {
	nc, err := nats.Connect(a.b.URLs())
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	cfg := jetstream.StreamConfig{Name: stage.StreamName, Subjects: []string{stage.Subject}, Discard: jetstream.DiscardNew}
	if _, err := js.CreateStream(ctx, cfg); err != nil {
		return err
	}
	a.c, err = a.Connect(ctx, a.b.URLs(), jetstream.StreamConfig{})
	return err
}

// published waits until every event is published.
func (a *amnesia) published(ctx context.Context) error {
	return childproc.Eventually(ctx, 10*time.Minute, "all events to be published", func(ctx context.Context) (bool, error) { return a.d.Settled(ctx) })
}

// reconcile compares a log and a stream that lacks nothing.
func (a *amnesia) reconcile(ctx context.Context) error {
	n := stage.Pick(a.Stage, 1_000_000, 5000)
	a.Say("publishing %s events", figures.Grouped(n))
	if err := a.d.Load(ctx, n, stage.EventBytes); err != nil {
		return err
	}
	if err := a.published(ctx); err != nil {
		return err
	}
	a.Say("comparing them")
	found, peak, err := a.compare(ctx, compareJob{a.d.URL, a.b.URLs(), unbounded})
	if err != nil {
		return err
	}
	a.Check("events compared", figures.Grouped(found.Compared), figures.Grouped(n), found.Compared == n)
	a.Check("missing events of a stream that has all", figures.Grouped(len(found.Missing)), "0", len(found.Missing) == 0)
	a.Note("events compared in a second", "%s", figures.Grouped(int(float64(found.Compared)/found.Seconds)))
	a.Note("largest resident memory of the process that compares", "%s", figures.Megabytes(peak))
	return nil
}

// repair removes random messages, finds them, and lets the relay publish them again.
func (a *amnesia) repair(ctx context.Context) error {
	s, err := a.c.JS.Stream(ctx, stage.StreamName)
	if err != nil {
		return err
	}
	n := stage.Pick(a.Stage, 1000, 50)
	removed := map[uint64]bool{}
	for last := s.CachedInfo().State.LastSeq; len(removed) < n; {
		seq := 1 + rand.Uint64N(last) //nolint:gosec // any
		if removed[seq] {
			continue
		}
		if err := s.DeleteMsg(ctx, seq); err != nil {
			return fmt.Errorf("remove message %d: %w", seq, err)
		}
		removed[seq] = true
	}
	before, err := a.live(ctx)
	if err != nil {
		return err
	}
	republishes := operator.New(a.d.Pool, operator.Config{})
	during, err := a.liveWhile(ctx, func(ctx context.Context) error {
		found, _, err := a.compare(ctx, compareJob{Database: a.d.URL, NATS: a.b.URLs()})
		if err != nil {
			return err
		}
		a.Check("found of the removed messages, with live traffic", figures.Grouped(len(found.Missing)), figures.Grouped(n), len(found.Missing) == n)
		made, err := republishes.RepublishSeqs(ctx, found.Missing, 1000, postroom.Audit{Actor: "soak", Reason: "removed"})
		if err != nil {
			return err
		}
		return childproc.Eventually(ctx, 10*time.Minute, "the repair", func(ctx context.Context) (bool, error) {
			now, err := republishes.FindRepublish(ctx, made[len(made)-1].ID)
			return now.State == operator.RepublishDone, err
		})
	})
	if err != nil {
		return err
	}
	after, err := a.live(ctx)
	if err != nil {
		return err
	}
	a.Note("live transactions in a second: before the repair, during it, after it", "%s", figures.List([]float64{before, during, after}))
	a.judge("rate during the repair, divided by the mean rate before and after it", during, (before+after)/2)
	return a.wantNothingMissing(ctx, "after the repair")
}

// rollBack replaces the broker's storage by an older copy, several times. Each time it also restarts
// the broker without a loss, because the restart alone slows the producers down.
func (a *amnesia) rollBack(ctx context.Context) error {
	var calm, restarted, repaired []float64
	for range stage.Pick(a.Stage, 3, 1) {
		for _, m := range []struct {
			rates *[]float64
			rate  func(ctx context.Context) (float64, error)
		}{{&restarted, a.restart}, {&calm, a.beforeLoss}, {&repaired, a.lose}} {
			rate, err := m.rate(ctx)
			if err != nil {
				return err
			}
			*m.rates = append(*m.rates, rate)
		}
	}
	a.Note("live transactions in a second: without a fault", "%s", figures.List(calm))
	a.Note("live transactions in a second: the broker restarts", "%s", figures.List(restarted))
	a.Note("live transactions in a second: the broker restarts, and loses events", "%s", figures.List(repaired))
	a.judge("median rate with the loss, divided by the median rate of a restart without one", figures.Median(repaired), figures.Median(restarted))
	return a.wantNothingMissing(ctx, "after older copies of the storage")
}

// restart returns the producers' rate while the broker is killed and started again.
func (a *amnesia) restart(ctx context.Context) (float64, error) {
	return a.liveWhile(ctx, func(ctx context.Context) error {
		a.b.Kill(0)
		return a.b.Start(ctx, 0)
	})
}

// saved is where the older copy of the broker's storage is.
func (a *amnesia) saved() string { return filepath.Join(filepath.Dir(a.b.Dir(0)), "saved") }

// beforeLoss copies the broker's storage, and then returns the rate of the producers. The broker
// will lose the events that they write meanwhile.
func (a *amnesia) beforeLoss(ctx context.Context) (float64, error) {
	a.b.Kill(0)
	if err := errors.Join(os.CopyFS(a.saved(), os.DirFS(a.b.Dir(0))), a.b.Start(ctx, 0)); err != nil {
		return 0, err
	}
	last := a.p.done.Load()
	rate, err := a.live(ctx)
	a.Say("the broker loses %s events", figures.Grouped(int(a.p.done.Load()-last)))
	return rate, err
}

// lose replaces the broker's storage by the copy. It returns the rate of the producers until the
// relay has found the loss, and longer.
func (a *amnesia) lose(ctx context.Context) (float64, error) {
	began, lost := time.Now(), a.saved()+".lost"
	rate, err := a.liveWhile(ctx, func(ctx context.Context) error {
		a.b.Kill(0)
		// The storage is moved and not copied, because the rate must not depend on how fast a disk
		// copies a gigabyte.
		if err := errors.Join(os.Rename(a.b.Dir(0), lost), os.Rename(a.saved(), a.b.Dir(0)), a.b.Start(ctx, 0)); err != nil {
			return err
		}
		return childproc.Eventually(ctx, 5*time.Minute, "the repair to be noted", func(ctx context.Context) (noted bool, err error) {
			err = a.d.Pool.QueryRow(ctx, "SELECT count(*) > 0 FROM postroom.relay_checkpoint WHERE at > now() - $1::interval", time.Since(began)).Scan(&noted)
			return noted, err
		})
	})
	return rate, errors.Join(err, os.RemoveAll(lost))
}

// live returns how many transactions are committed in a second when nothing else runs.
func (a *amnesia) live(ctx context.Context) (float64, error) {
	return a.liveWhile(ctx, func(context.Context) error { return nil })
}

// liveWhile calls do, and returns how many transactions are committed in a second meanwhile. If do
// returns early, liveWhile counts for 15 seconds altogether, or half a second in a short run. Before
// that, it makes a checkpoint and writes the pages of all files to the disk: otherwise the system
// would write the copy of the broker's storage during a later measurement, which slows commits down.
func (a *amnesia) liveWhile(ctx context.Context, do func(ctx context.Context) error) (rate float64, err error) {
	if _, err := a.d.Pool.Exec(ctx, "CHECKPOINT"); err != nil {
		return 0, fmt.Errorf("make a checkpoint: %w", err)
	}
	syscall.Sync()
	err = stage.During(ctx, func(ctx context.Context) error {
		childproc.Sleep(ctx, stage.Pick(a.Stage, 2*time.Second, 100*time.Millisecond))
		began, done := time.Now(), a.p.done.Load()
		if err := do(ctx); err != nil {
			return err
		}
		childproc.Sleep(ctx, time.Until(began.Add(stage.Pick(a.Stage, 15*time.Second, 500*time.Millisecond))))
		rate = float64(a.p.done.Load()-done) / time.Since(began).Seconds()
		return nil
	}, a.p.run)
	if err != nil {
		return 0, err
	}
	return rate, a.published(ctx)
}

// judge compares a live rate with a reference.
func (a *amnesia) judge(what string, rate, reference float64) {
	share := rate / reference
	text := fmt.Sprintf("%s of %s: %.2f", figures.Grouped(int(rate)), figures.Grouped(int(reference)), share)
	if a.Short || raceDetector {
		a.Note(what, "%s", text)
		return
	}
	a.Check(what, text, fmt.Sprintf("≥ %.1f", liveShare), share >= liveShare)
}

// wantNothingMissing compares the log with the stream once more, and checks that no event is
// missing.
func (a *amnesia) wantNothingMissing(ctx context.Context, when string) error {
	found, _, err := a.compare(ctx, compareJob{a.d.URL, a.b.URLs(), unbounded})
	if err != nil {
		return err
	}
	a.Check("missing events "+when, figures.Grouped(len(found.Missing)), "0", len(found.Missing) == 0)
	return nil
}
