package main

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/postroom/postroom/internal/childproc"
)

// endPatience is how long a service may take to finish its work.
const endPatience = 24 * drainTimeout

// staff are the processes of the three services.
type staff struct {
	jobs map[string]job
	log  io.Writer

	mu       sync.Mutex
	children map[string]*childproc.Child
	enough   bool
}

func newStaff(jobs map[string]job, log io.Writer) *staff {
	return &staff{jobs: jobs, log: log, children: make(map[string]*childproc.Child)}
}

// start starts the process of a service, and returns the id of the process.
func (s *staff) start(service string) (pid int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := childproc.Start(roleService, s.jobs[service], s.log)
	if err != nil {
		return 0, err
	}
	s.children[service] = c
	if s.enough {
		c.Say(sayEnough)
	}
	return c.PID(), nil
}

// kill kills the process of a service, and returns the id of the process.
func (s *staff) kill(service string) (pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.children[service]
	delete(s.children, service)
	c.Kill()
	return c.PID()
}

// stopPlacing tells the order service to place no more orders, now and after each restart.
func (s *staff) stopPlacing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enough = true
	if c := s.children[order]; c != nil {
		c.Say(sayEnough)
	}
}

// allPlaced reports whether no more orders will be placed.
func (s *staff) allPlaced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.children[order] != nil && s.children[order].Says() == sayPlaced
}

// fallen returns an error if a process has ended by itself.
func (s *staff) fallen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for service, c := range s.children {
		if c.Ended() {
			delete(s.children, service)
			return errors.Join(fmt.Errorf("service %s ended by itself", service), c.Failure())
		}
	}
	return nil
}

// end tells all processes to finish, and returns when they have ended. It is idempotent.
func (s *staff) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all sync.WaitGroup
	errs := make(chan error, len(s.children))
	for service, c := range s.children {
		all.Go(func() {
			if err := c.EndWithin(endPatience); err != nil {
				errs <- fmt.Errorf("service %s: %w", service, err)
			}
		})
	}
	all.Wait()
	close(errs)
	clear(s.children)
	var err error
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}
