// Package clock gives statements a second opinion on the time. The database's clock decides when
// something has expired. But one wrong look at this clock could remove at once what protects
// against duplicates. So such statements count only what has expired by both clocks: by the
// database's clock, and by the clock of the process that sends the statement.
package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// tolerance is how far the database's clock may be ahead of this process's clock before the
	// statements stop to believe it. The doctor reports a fault if the clocks differ by more.
	tolerance = time.Minute

	// settled is how long this process's clock must be ahead before the process believes it.
	settled = time.Hour
)

// Latest returns the latest time that the database's clock may show if it is right: this process's
// time and a minute. If this process's clock jumps ahead, Latest goes on at a steady pace for an
// hour, because database and process may have the same clock. Several goroutines may call it.
func Latest() time.Time {
	return process.Look(time.Now()).Add(tolerance - time.Duration(behind.Load()))
}

var (
	process Watch
	behind  atomic.Int64
)

// OverrideLatest makes this process's clock go behind the database's by some time, in a test that
// cannot set the database's clock ahead. Call restore at the end.
func OverrideLatest(by time.Duration) (restore func()) {
	behind.Store(int64(by))
	return func() { behind.Store(0) }
}

// Watch follows a clock that may jump ahead, with a clock that cannot. The zero value believes the
// first time that it is shown. Several goroutines may use a Watch.
type Watch struct {
	mu    sync.Mutex
	shown time.Time // the last time that was believed
	at    time.Time // when that was, by the steady clock
	ahead time.Time // since when the clock is ahead of what it should show, by the steady clock; zero if it is not
}

// Look returns the time to believe when the clock shows a time: that time, unless the clock jumped
// ahead by more than a minute within the last hour.
func (w *Watch) Look(shown time.Time) time.Time { return w.look(shown, time.Now()) }

func (w *Watch) look(shown, now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	expected := w.shown.Add(now.Sub(w.at)) // of now and at, Sub takes the steady clock
	jumped := !w.at.IsZero() && shown.Sub(expected) > tolerance
	if jumped && w.ahead.IsZero() {
		w.ahead = now
	}
	//guard:a-clock-that-jumps-is-not-believed false
	//guard:a-clock-that-was-set-is-believed-later 2 true
	if jumped && now.Sub(w.ahead) < settled {
		return expected
	}
	w.shown, w.at, w.ahead = shown.Round(0), now, time.Time{}
	return w.shown
}
