package terminal

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Bar shows on a terminal how far a program is; elsewhere nothing. What is written to it
// goes above the bar. It may be used concurrently.
type Bar struct {
	out   io.Writer
	width func() int
	began time.Time

	mu   sync.Mutex // guards out and line: parts log from goroutines of their own
	line string
}

// NewBar returns a bar on out. It asks for the width each time, because a terminal changes
// its size; 0 says that out is no terminal.
func NewBar(out io.Writer, width func() int) *Bar {
	return &Bar{out: out, width: width, began: time.Now()}
}

// Show shows that done of total is done, and what comes next.
func (b *Bar) Show(done, total int, next string) {
	const width = 24
	filled := width * done / total
	b.Draw(fmt.Sprintf("[%s%s] %d/%d  %s  %s", strings.Repeat("=", filled), strings.Repeat(" ", width-filled),
		done, total, time.Since(b.began).Round(time.Second), next))
}

// Clear clears the line for what comes after it.
func (b *Bar) Clear() { b.Draw("") }

// Draw shows a line.
func (b *Bar) Draw(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if width := b.width(); width > 0 {
		fmt.Fprint(b.out, Progress(width, line))
	}
	b.line = line
}

// Write writes a line of the log.
func (b *Bar) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	width := b.width()
	if width == 0 {
		return b.out.Write(text)
	}
	_, err := fmt.Fprintf(b.out, "\r\x1b[K%s%s", text, Clip(b.line, width-1))
	return len(text), err
}

// Grouped writes a number with its thousands apart: 20,000.
func Grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
