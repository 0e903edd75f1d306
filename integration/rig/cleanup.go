package rig

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Cleanup is what is to be undone at the end.
type Cleanup struct{ undo []func() error }

// Later notes what is to be undone, last first.
func (c *Cleanup) Later(undo func() error) { c.undo = append(c.undo, undo) }

// Clean undoes all of it.
func (c *Cleanup) Clean() error {
	var errs []error
	for len(c.undo) > 0 {
		last := len(c.undo) - 1
		errs = append(errs, c.undo[last]())
		c.undo = c.undo[:last]
	}
	return errors.Join(errs...)
}

// Story tells how far a run is, line by line, with the time since it began. Lines of several
// that share a writer stay whole if that writer is safe for concurrent use.
type Story struct {
	out   io.Writer
	name  string // before each line; may be empty
	began time.Time
}

// NewStory returns a story that begins now.
func NewStory(out io.Writer, name string) *Story {
	return &Story{out: out, name: name, began: time.Now()}
}

// Say tells how far the run is.
func (s *Story) Say(format string, args ...any) {
	fmt.Fprintf(s.out, "%s%5s  %s\n", s.name, s.Took().Round(time.Second), fmt.Sprintf(format, args...))
}

// Took is how long the story has been told.
func (s *Story) Took() time.Duration { return time.Since(s.began) }

// Lines is a writer for lines that come from several sides.
type Lines struct {
	mu  sync.Mutex
	out io.Writer
}

// NewLines returns one that writes to out.
func NewLines(out io.Writer) *Lines { return &Lines{out: out} }

// Write implements [io.Writer].
func (w *Lines) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(text)
}
