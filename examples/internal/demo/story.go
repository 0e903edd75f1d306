package demo

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/postroom/postroom/internal/terminal"
)

// Story prints what happens in a run. On a terminal it prints lines that stay, and below them one
// line of progress that changes. If the output is no terminal, it prints a line of progress every
// few seconds. It is safe for concurrent use.
type Story struct {
	out      io.Writer
	terminal bool
	began    time.Time

	mu    sync.Mutex
	shown time.Time // when the progress was last shown
}

// NewStory returns a story that begins now, and prints to out.
func NewStory(out io.Writer) *Story {
	s := &Story{out: out, terminal: width(out) > 0, began: time.Now(), shown: time.Now()}
	return s
}

// Tell prints a line that stays.
func (s *Story) Tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(format, args...)
}

// Progress prints the progress of a run.
func (s *Story) Progress(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	every := 3 * time.Second
	if s.terminal {
		every = 100 * time.Millisecond
	}
	if time.Since(s.shown) < every {
		return
	}
	s.shown = time.Now()
	if s.terminal {
		fmt.Fprint(s.out, terminal.Progress(width(s.out), "  "+fmt.Sprintf(format, args...)))
	} else {
		s.write(format, args...)
	}
}

// End clears the line of progress.
func (s *Story) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
}

func (s *Story) write(format string, args ...any) {
	if s.terminal {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
	fmt.Fprintf(s.out, "%6.1f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// width returns how many characters fit on a line of w, or 0 if w is not a terminal.
func width(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// Grouped writes a number with separated thousands: 20,000.
func Grouped(n int64) string { return terminal.Grouped(n) }
