// Package repeat limits warnings that repeat themselves, so that a log stays readable.
package repeat

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Every is how often a repeated line is written.
const Every = 30 * time.Second

// most is how many different lines are remembered.
const most = 256

// Lines writes warnings. It writes a repeated one only every 30 seconds, with how often it
// was left out. The zero value is ready to use. It is safe for concurrent use.
type Lines struct {
	mu   sync.Mutex
	told map[line]*tally
}

// line says whether two warnings are the same: they have the same source, message and error.
// Other attributes, such as a number of attempts, may differ.
type line struct {
	log         *slog.Logger
	text, cause string
}

type tally struct {
	at   time.Time
	left int // how often it was left out since then
}

// Warn writes a warning with its error and other attributes, unless it wrote the same one
// within the last 30 seconds.
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

// due reports whether to write a line now, and how often it was left out before.
func (l *Lines) due(of line, now time.Time) (left int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.told[of]; known != nil {
		if now.Sub(known.at) < Every {
			known.left++
			return 0, false
		}
		left = known.left
	}
	if l.told == nil || len(l.told) >= most { // with so many different lines, few repeat
		l.told = make(map[line]*tally)
	}
	l.told[of] = &tally{at: now}
	return left, true
}

// wording returns an error's text without the words that contain a digit, such as times,
// ports and counts: these differ between failures with the same cause.
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

// isState reports whether a word is an SQLSTATE. It says what went wrong, so it is kept.
func isState(words []string, i int) bool { return i > 0 && words[i-1] == "(SQLSTATE" }
