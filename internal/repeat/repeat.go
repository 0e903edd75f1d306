// Package repeat limits repeated warnings, so that a log stays readable.
package repeat

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Every is the shortest time between two lines with the same warning.
const Every = 30 * time.Second

// The constant most is the largest number of different lines that Lines remembers.
const most = 256

// Lines writes warnings. It writes a repeated warning only every 30 seconds, and says how often it
// left the warning out in between. The zero value is ready to use. Lines is safe for concurrent
// use.
type Lines struct {
	mu   sync.Mutex
	told map[line]*tally
}

// line identifies a warning. Two warnings are the same if they have the same source, message
// and error. Other attributes, such as a number of attempts, may differ.
type line struct {
	log         *slog.Logger
	text, cause string
}

type tally struct {
	at   time.Time
	left int // how often Lines left the line out since the time in the field at
}

// Warn writes a warning with its error and other attributes. If l remembers that it wrote the same
// warning within the last 30 seconds, Warn only counts the new one.
func (l *Lines) Warn(ctx context.Context, log *slog.Logger, text string, err error, args ...any) {
	left, due := l.due(line{log, text, wording(err)}, time.Now())
	if !due {
		return
	}
	args = append([]any{"error", err}, args...)
	if left > 0 {
		args = append(args, "left_out", left)
	}
	log.WarnContext(ctx, text, args...)
}

// due reports whether to write a line now. It also returns how often the line was left out since it
// was last written.
func (l *Lines) due(of line, now time.Time) (left int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.told[of]; known != nil {
		//guard:repeated-warnings-are-left-out false
		if now.Sub(known.at) < Every {
			known.left++
			return 0, false
		}
		left = known.left
	}
	//guard:remembered-warnings-are-bounded 2 false
	if l.told == nil || len(l.told) >= most { // forget all lines: if there are so many different ones, few are repeated
		l.told = make(map[line]*tally)
	}
	l.told[of] = &tally{at: now}
	return left, true
}

// wording returns an error's text, with # in place of each word that contains a digit. Such words
// are times, ports and counts, which differ between failures with the same cause.
func wording(err error) string {
	if err == nil {
		return ""
	}
	words := strings.Fields(err.Error())
	for i, word := range words {
		if strings.ContainsAny(word, "0123456789") && !isState(words, i) {
			words[i] = "#"
		}
	}
	return strings.Join(words, " ")
}

// isState reports whether word i is an SQLSTATE. The function wording keeps an SQLSTATE, because it
// says what went wrong.
func isState(words []string, i int) bool { return i > 0 && words[i-1] == "(SQLSTATE" }
