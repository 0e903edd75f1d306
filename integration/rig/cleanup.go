package rig

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Cleanup has functions that undo work at the end.
type Cleanup struct{ undo []func() error }

// Later adds a function. Clean calls the functions in reverse order.
func (c *Cleanup) Later(undo func() error) { c.undo = append(c.undo, undo) }

// Clean calls all functions.
func (c *Cleanup) Clean() error {
	var errs []error
	for len(c.undo) > 0 {
		last := len(c.undo) - 1
		errs = append(errs, c.undo[last]())
		c.undo = c.undo[:last]
	}
	return errors.Join(errs...)
}

// Story prints the progress of a run, line by line, with the time since it began. Several stories
// may share a writer. If the writer is safe for concurrent use, their lines do not mix.
type Story struct {
	out   io.Writer
	name  string // before each line; may be empty
	began time.Time
}

// NewStory returns a story that begins now.
func NewStory(out io.Writer, name string) *Story {
	return &Story{out: out, name: name, began: time.Now()}
}

// Say prints a line.
func (s *Story) Say(format string, args ...any) {
	fmt.Fprintf(s.out, "%s%5s  %s\n", s.name, s.Took().Round(time.Second), fmt.Sprintf(format, args...))
}

// Took returns the time since the story began.
func (s *Story) Took() time.Duration { return time.Since(s.began) }

// Lines is a writer for lines from several goroutines and processes.
type Lines struct {
	mu  sync.Mutex
	out io.Writer
}

// NewLines returns a Lines that writes to out.
func NewLines(out io.Writer) *Lines { return &Lines{out: out} }

// Write implements [io.Writer].
func (w *Lines) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(text)
}
