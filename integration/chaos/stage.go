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
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/integration/checker"
	"github.com/postroom/postroom/integration/natsfleet"
	"github.com/postroom/postroom/internal/fleet"
	"github.com/postroom/postroom/natsjs"
)

// diskBytes is the size of a server's disk.
const diskBytes = 8 << 30

// stage is everything that a run needs.
type stage struct {
	opt      options
	progress io.Writer
	began    time.Time
	dir      string // histories and logs
	canary   string

	dbDisk, natsDisk *disk
	db               *postgres
	brokers          *natsfleet.Brokers
	client           *client
	net              *network
	vendor           *vendorServer
	journal          *journal
	crew             crew
	plan             [lanes][]fault // what is still to be injected
	injected         atomic.Int64
	load

	undo []func() error
}

// later notes what is to be undone at the end, last first.
func (s *stage) later(undo func() error) { s.undo = append(s.undo, undo) }

func (s *stage) close() error {
	var errs []error
	for len(s.undo) > 0 {
		last := len(s.undo) - 1
		errs = append(errs, s.undo[last]())
		s.undo = s.undo[:last]
	}
	return errors.Join(errs...)
}

// say tells how far the run is.
func (s *stage) say(format string, args ...any) {
	fmt.Fprintf(s.progress, "%5s  %s\n", time.Since(s.began).Round(time.Second), fmt.Sprintf(format, args...))
}

// stage makes a run, and returns what there is to judge.
func (o options) stage(ctx context.Context, progress io.Writer) (history []checker.Record, found checker.State, err error) {
	s := &stage{opt: o, progress: progress, began: time.Now(), canary: "canary-" + rand.Text()}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		return nil, found, err
	}
	s.plan = makePlan(o.seed, o, s.dbDisk.own && s.natsDisk.own)
	s.say("seed %d, %d NATS, atomic batches %t: faults for %d s", o.seed, o.nodes, o.inBatches(), o.seconds)
	if err := s.breakThings(ctx); err != nil {
		return nil, found, err
	}
	if found, err = s.conclude(ctx); err != nil {
		return nil, found, err
	}
	history, err = readHistory(s.dir)
	addCalls(&found, history)
	return history, found, err
}

// rounds are how often faults are injected: once, and again for a quarter of the time as
// long as something is missing.
const rounds = 8

// breakThings injects faults for as long as was asked for, and for a while longer where
// one of them did not meet work yet.
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
		s.say("no %s yet: going on", strings.Join(missing, ", no "))
		seconds = max(10, s.opt.seconds/4)
	}
	return nil
}

func (s *stage) breakFor(ctx context.Context, d time.Duration) error {
	over, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	told := make(chan struct{})
	go func() { // ends with the time for faults
		defer close(told)
		for fleet.Sleep(over, 5*time.Second) {
			s.say("%d faults; %s", s.injected.Load(), s.standing(over))
		}
	}()
	err := s.torment(over)
	cancel()
	<-told
	return errors.Join(err, ctx.Err())
}

// missing says what has not happened yet without which the run shows nothing.
func (s *stage) missing(ctx context.Context) ([]string, error) {
	var so checker.State
	err := again(ctx, patience, "see how far it is", func(ctx context.Context) (err error) {
		if so.Marks, err = collect[checker.Mark](ctx, &s.db.shop, "SELECT epoch, max(high) FROM witness GROUP BY 1"); err != nil {
			return err
		}
		n, err := s.db.shop.number(ctx, "SELECT count(*) FROM change")
		so.Domain = make([]checker.Event, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	history, err := readHistory(s.dir)
	covered := checker.Cover(history, so)
	missing := covered.Missing()
	for _, lane := range s.plan {
		for _, f := range lane { // what is still to come: on a busy machine a fault takes long
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
		s.later(func() error { return os.RemoveAll(s.dir) })
	} else if err := os.Mkdir(s.dir, 0o700); err != nil {
		return fmt.Errorf("make directory for --keep, which must not be there yet: %w", err)
	}
	if s.journal, err = openJournal(s.dir, ours); err != nil {
		return err
	}
	s.later(s.journal.close)
	if err := s.startServers(ctx); err != nil {
		return err
	}
	if s.vendor, err = startVendor(s.journal); err != nil {
		return err
	}
	s.later(s.vendor.close)
	s.net = newNetwork()
	s.later(func() error { s.net.close(); return nil })
	s.later(func() error { s.crew.end(); return nil })
	if err := s.muster(); err != nil {
		return err
	}
	if err := s.started(ctx); err != nil {
		return err
	}
	return again(ctx, patience, "read who the handlers are", func(ctx context.Context) error {
		return s.db.books.pool.QueryRow(ctx, "SELECT id::text FROM postroom.instance").Scan(&s.instance)
	})
}

func (s *stage) startServers(ctx context.Context) (err error) {
	if s.dbDisk, err = newDisk("postgres", diskBytes); err != nil {
		return err
	}
	s.later(s.dbDisk.close)
	if s.natsDisk, err = newDisk("nats", diskBytes); err != nil {
		return err
	}
	s.later(s.natsDisk.close)
	if !s.dbDisk.own || !s.natsDisk.own {
		s.say("NO DISKS ARE FILLED: that needs root on Linux, for file systems of the servers' own")
	}
	s.db, err = startPostgres(ctx, s.dbDisk.dir)
	if s.db != nil {
		s.later(s.db.close)
	}
	if err != nil {
		return err
	}
	if s.brokers, err = natsfleet.StartBrokers(ctx, s.opt.nodes, s.natsDisk.dir, nil); err != nil {
		return err
	}
	s.later(s.brokers.Close)
	if s.client, err = connect(s.brokers.URLs()); err != nil {
		return err
	}
	s.later(func() error { s.client.nc.Close(); return nil })
	return again(ctx, patience, "make the stream", func(ctx context.Context) error {
		return natsjs.EnsureStream(ctx, s.client.nc, jetstream.StreamConfig{
			Name: stream, Subjects: []string{subject, natsjs.LeaseSubjects(stream)}, Replicas: s.opt.nodes, AllowAtomicPublish: true,
			// What is published again is met by the broker, or by the inbox where it takes
			// longer.
			Duplicates: 20 * time.Second,
		})
	})
}

// client is the rig's own connection to the brokers.
type client struct {
	nc *nats.Conn
	js jetstream.JetStream
}

func connect(urls string) (*client, error) {
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.Name(ours),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // they are on purpose
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	js, err := jetstream.New(nc)
	return &client{nc: nc, js: js}, err
}

// standing says how far the processes are.
func (s *stage) standing(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	events, err := s.db.shop.number(ctx, "SELECT count(*) FROM change")
	if err != nil {
		return "PostgreSQL does not answer"
	}
	var parts []string
	for _, q := range []struct{ what, sql string }{
		{"effects", "SELECT count(*) FROM effect"},
		{"held", "SELECT count(*) FROM postroom.held WHERE dead_at IS NULL"},
		{"dead", "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL"},
	} {
		n, err := s.db.books.number(ctx, q.sql)
		if err != nil {
			return "PostgreSQL does not answer"
		}
		parts = append(parts, fmt.Sprintf("%d %s", n, q.what))
	}
	return fmt.Sprintf("%d events, %s", events, strings.Join(parts, ", "))
}
