//go:build linux || darwin

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/postroom/postroom/integration/chaos/internal/workload"
	"github.com/postroom/postroom/integration/rig"
)

// A member is one process of the crew.
type member struct {
	*rig.Process

	job workload.Job
	log *os.File

	struck sync.Mutex // a fault locks this mutex while the fault affects the process
}

// crew has the processes that work while faults are injected.
type crew []*member

// of returns the members of some kinds.
func (c crew) of(kinds ...string) (found crew) {
	for _, m := range c {
		for _, k := range kinds {
			if m.job.Kind == k {
				found = append(found, m)
			}
		}
	}
	return found
}

// end tells all members to finish, at the same time.
func (c crew) end() {
	var all []*rig.Process
	for _, m := range c {
		all = append(all, m.Process)
	}
	rig.EndAll(all)
}

// fallen names the members that ended by themselves, each with its log's last line.
func (c crew) fallen() (names []string) {
	for _, m := range c {
		if m.Fallen() > 0 {
			names = append(names, fmt.Sprintf("%s: %s", m.job.Process, lastLine(m.log.Name())))
		}
	}
	return names
}

// lastLine returns the last line of a log.
func lastLine(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return "see " + filepath.Base(name)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// numbers has the number of processes of each kind.
var numbers = []struct {
	kind string
	n    int
}{{workload.Relays, 3}, {workload.Moves, 2}, {workload.Letters, 2}, {workload.Books, 2}, {workload.Counts, 2}, {workload.Operators, 1}, {workload.Producers, 3}}

// muster starts all processes. Each process has its own connections to the servers. Faults can
// affect these connections.
func (s *stage) muster() error {
	for _, of := range numbers {
		for i := range of.n {
			m, err := s.member(of.kind, fmt.Sprint(of.kind, "-", i), of.n)
			if err != nil {
				return err
			}
			s.crew = append(s.crew, m)
			if err := m.Start(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *stage) member(kind, name string, of int) (*member, error) {
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	s.Later(log.Close)
	m := &member{log: log, job: workload.Job{
		Process: name, Kind: kind, Journal: s.dir, Vendor: s.vendor.URL, Canary: s.canary,
		Rate: float64(s.opt.rate) / float64(of), Atomic: s.opt.inBatches(),
	}}
	for i, c := range name {
		m.job.Seed = m.job.Seed*31 + s.opt.seed + uint64(i) + uint64(c) //nolint:gosec // neither is negative
	}
	postgres, err := s.net.Way(name, toPostgres, s.db.address())
	if err != nil {
		return nil, err
	}
	user := kind
	if slices.Contains(workload.Handlers(), kind) {
		user = "consumer"
	}
	if m.job.Shop, err = rig.Through(s.db.shop.URL, postgres, user, s.canary); err != nil {
		return nil, err
	}
	if m.job.Books, err = rig.Through(s.db.books.URL, postgres, user, s.canary); err != nil {
		return nil, err
	}
	var urls []string
	for i := range s.brokers.Len() {
		address, err := s.net.Way(name, fmt.Sprint(toNATS, "-", i), s.brokers.Address(i))
		if err != nil {
			return nil, err
		}
		urls = append(urls, fmt.Sprintf("nats://%s:%s@%s", user, s.canary, address))
	}
	m.job.NATS = strings.Join(urls, ",")
	m.Process = rig.NewProcess(kind, m.job, log)
	return m, nil
}

// The names of servers in the simulated network.
const (
	toPostgres = "postgres"
	toNATS     = "nats"
)
