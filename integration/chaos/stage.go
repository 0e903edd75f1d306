//go:build linux || darwin

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/integration/chaos/internal/workload"
	"github.com/postroom/postroom/integration/checker"
	"github.com/postroom/postroom/integration/natsfleet"
	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/natsjs"
)

// diskBytes is the size of a server's disk.
const diskBytes = 8 << 30

// stage is everything that a run needs.
type stage struct {
	rig.Cleanup
	*rig.Story

	opt    options
	dir    string // histories and logs
	canary string // a text in payloads and passwords, which no log may contain

	backends
	net     *rig.Network
	vendor  *workload.VendorServer
	journal *checker.Journal
	crew    crew
	faults
}

// backends are the servers that the processes use.
type backends struct {
	dbDisk, natsDisk *rig.Disk
	db               *postgres
	brokers          *natsfleet.Brokers
	client           *rig.Client // the rig's own connection
}

// stage makes a run. It returns the history of the run, and the state of the servers after it.
func (o options) stage(ctx context.Context, progress io.Writer) (history []checker.Record, found checker.State, err error) {
	s := &stage{opt: o, Story: rig.NewStory(progress, ""), canary: "canary-" + rand.Text()}
	defer func() { err = errors.Join(err, s.Clean()) }()
	if err := s.open(ctx); err != nil {
		return nil, found, err
	}
	s.plan = makePlan(o.seed, o, s.dbDisk.Own && s.natsDisk.Own)
	s.Say("seed %d, %d NATS, atomic batches %t: faults for %d s", o.seed, o.nodes, o.inBatches(), o.seconds)
	if err := s.breakThings(ctx); err != nil {
		return nil, found, err
	}
	if found, err = (observer{s}).conclude(ctx); err != nil {
		return nil, found, err
	}
	history, err = checker.ReadHistory(s.dir)
	addCalls(&found, history)
	return history, found, err
}

// rounds is the largest number of rounds of faults. The first round takes the given time. A further
// round takes a quarter of the given time, but at least ten seconds.
const rounds = 8

// breakThings injects faults in rounds. It ends after a round if every required fault and situation
// has happened by then, and in any case after the last round.
func (s *stage) breakThings(ctx context.Context) error {
	seconds := s.opt.seconds
	for range rounds {
		if err := s.breakFor(ctx, time.Duration(seconds)*time.Second); err != nil {
			return err
		}
		missing, err := s.missing(ctx)
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			return nil
		}
		s.Say("no %s yet: continuing", strings.Join(missing, ", no "))
		seconds = max(10, s.opt.seconds/4)
	}
	return nil
}

func (s *stage) breakFor(ctx context.Context, d time.Duration) error {
	over, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	told := make(chan struct{})
	go func() { // this goroutine ends when the time for faults is over
		defer close(told)
		for childproc.Sleep(over, 5*time.Second) {
			s.Say("%d faults; %s", s.injected.Load(), s.standing(over))
		}
	}()
	err := torment(over, s)
	cancel()
	<-told
	return errors.Join(err, ctx.Err())
}

// missing returns required faults and situations that have not happened yet. Without them the run
// shows nothing.
func (s *stage) missing(ctx context.Context) ([]string, error) {
	var so checker.State
	err := rig.Again(ctx, rig.Patience, "see how far it is", func(ctx context.Context) (err error) {
		if so.Marks, err = rig.Collect[checker.Mark](ctx, s.db.shop, "SELECT epoch, max(high) FROM witness GROUP BY 1"); err != nil {
			return err
		}
		n, err := s.db.shop.Number(ctx, "SELECT count(*) FROM change")
		so.Domain = make([]checker.Event, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	history, err := checker.ReadHistory(s.dir)
	covered := checker.Cover(history, so)
	missing := covered.Missing()
	for _, lane := range s.plan {
		for _, f := range lane { // the rest of the plan: on a busy machine, the time may end before all required faults are injected
			if f.kind.first && covered.Faults[f.kind.name] == 0 && !slices.Contains(missing, f.kind.name) {
				missing = append(missing, f.kind.name)
			}
		}
	}
	return missing, err
}

// open starts everything, and waits until it works.
func (s *stage) open(ctx context.Context) (err error) {
	if s.dir = s.opt.keep; s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "postroom-chaos-"); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
		s.Later(func() error { return os.RemoveAll(s.dir) })
	} else if err := os.Mkdir(s.dir, 0o700); err != nil {
		return fmt.Errorf("make the directory for --keep, which must not exist yet: %w", err)
	}
	if s.journal, err = checker.OpenJournal(s.dir, ours); err != nil {
		return err
	}
	s.Later(s.journal.Close)
	if err := s.startServers(ctx); err != nil {
		return err
	}
	if s.vendor, err = workload.StartVendor(s.journal); err != nil {
		return err
	}
	s.Later(s.vendor.Close)
	s.net = rig.NewNetwork()
	s.Later(s.net.Close)
	s.Later(func() error { s.crew.end(); return nil })
	if err := s.muster(); err != nil {
		return err
	}
	if err := (poller{s}).started(ctx); err != nil {
		return err
	}
	return rig.Again(ctx, rig.Patience, "read who the handlers are", func(ctx context.Context) error {
		return s.db.books.Pool.QueryRow(ctx, "SELECT id::text FROM postroom.instance").Scan(&s.instance)
	})
}

func (s *stage) startServers(ctx context.Context) (err error) {
	if s.dbDisk, err = rig.NewDisk("postgres", diskBytes); err != nil {
		return err
	}
	s.Later(s.dbDisk.Close)
	if s.natsDisk, err = rig.NewDisk("nats", diskBytes); err != nil {
		return err
	}
	s.Later(s.natsDisk.Close)
	if !s.dbDisk.Own || !s.natsDisk.Own {
		s.Say("NO DISKS ARE FILLED: the servers' own file systems need root on Linux")
	}
	s.db, err = startPostgres(ctx, s.dbDisk.Dir)
	if s.db != nil {
		s.Later(s.db.close)
	}
	if err != nil {
		return err
	}
	if s.brokers, err = natsfleet.StartBrokers(ctx, s.opt.nodes, s.natsDisk.Dir, nil); err != nil {
		return err
	}
	s.Later(s.brokers.Close)
	if s.client, err = rig.Connect(s.brokers.URLs(), ours); err != nil {
		return err
	}
	s.Later(s.client.Close)
	return rig.Again(ctx, rig.Patience, "make the stream", func(ctx context.Context) error {
		return natsjs.EnsureStream(ctx, s.client.Conn, jetstream.StreamConfig{
			Name: workload.Stream, Subjects: []string{workload.Subject, natsjs.LeaseSubjects(workload.Stream)}, Replicas: s.opt.nodes, AllowAtomicPublish: true,
			// The broker drops a message that a relay repeats within this time. The inbox drops
			// later repetitions.
			Duplicates: 20 * time.Second,
		})
	})
}

// standing describes the progress: the numbers of events, effects, held and dead events.
func (s *stage) standing(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	events, err := s.db.shop.Number(ctx, "SELECT count(*) FROM change")
	if err != nil {
		return "PostgreSQL does not answer"
	}
	var parts []string
	for _, q := range []struct{ what, sql string }{
		{"effects", "SELECT count(*) FROM effect"},
		{"held", "SELECT count(*) FROM postroom.held WHERE dead_at IS NULL"},
		{"dead", "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL"},
	} {
		n, err := s.db.books.Number(ctx, q.sql)
		if err != nil {
			return "PostgreSQL does not answer"
		}
		parts = append(parts, fmt.Sprintf("%d %s", n, q.what))
	}
	return fmt.Sprintf("%d events, %s", events, strings.Join(parts, ", "))
}
