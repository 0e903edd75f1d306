package main

import (
	"fmt"
	"io"
	"time"

	"github.com/postroom/postroom/examples/internal/narrate"
	"github.com/postroom/postroom/internal/terminal"
)

// progress says how far the run is: on a terminal in one line that changes,
// elsewhere in a line every few seconds.
type progress struct {
	out      io.Writer // nil: quiet
	terminal bool
	began    time.Time
	shown    time.Time
}

func newProgress(out io.Writer, opt options) *progress {
	p := &progress{out: out, terminal: narrate.Width(out) > 0, began: time.Now(), shown: time.Now()}
	if opt.json {
		p.out = nil
	}
	return p
}

func (p *progress) report(s state) {
	every := 3 * time.Second
	if p.terminal {
		every = 100 * time.Millisecond
	}
	if p.out == nil || time.Since(p.shown) < every {
		return
	}
	p.shown = time.Now()
	line := fmt.Sprintf("placed %s  published %s  charged %s  counted %s  duplicates suppressed %s  %s orders/s",
		grouped(s.placed), grouped(s.published), grouped(s.charge.done), grouped(s.tallied.done),
		grouped(s.charge.suppressed+s.tallied.suppressed), grouped(perSecond(s.charge.done, time.Since(p.began))))
	if p.terminal {
		fmt.Fprint(p.out, terminal.Progress(narrate.Width(p.out), line))
	} else {
		fmt.Fprintln(p.out, line)
	}
}

// end clears the line of a terminal for what comes after it.
func (p *progress) end() {
	if p.out != nil && p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

func perSecond(n int64, d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64(float64(n) / d.Seconds())
}

// grouped writes a number with its thousands apart: 20,000.
func grouped(n int64) string { return terminal.Grouped(n) }
