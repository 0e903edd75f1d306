package gate

import "time"

// A window counts the events that were tried recently, for instance in the last minute: those whose
// failure counts (see Gate.Failed), and the others. If an event failed several times, it counts once.
type window struct {
	width   int64    // the length of a slot, in nanoseconds
	slots   [60]slot // a ring buffer
	failing map[string]streak
	swept   int64 // the slot in which the method sweep last removed events from the map failing
}

// A slot counts the events that ended or failed in a sixtieth of the window.
type slot struct {
	n      int64 // the slot's number, counted from 1970; if it is not in the window, the counts are out of date
	ended  int   // events that succeeded, or whose failure does not count
	failed int   // events whose last failure was in this slot
}

// A streak counts the failures of one event.
type streak struct {
	slot  int64 // the slot of its last failure
	times int   // how often it failed, not counting snoozes
}

// mostFailing is how many failing events a window remembers. If more events fail, each failure of
// an event that it does not remember counts as a different event.
const mostFailing = 20_000

func newWindow(length time.Duration) window {
	return window{width: max(int64(length)/60, 1), failing: make(map[string]streak)}
}

func (w *window) reset() {
	w.slots = [60]slot{}
	clear(w.failing)
}

// at returns the slot of a time. It clears the counts of an older time in that slot.
func (w *window) at(now time.Time) *slot {
	n := now.UnixNano() / w.width
	s := &w.slots[n%60]
	if s.n != n {
		*s = slot{n: n}
	}
	return s
}

// forget removes an event from the failing events, and returns how often the event failed. If the
// event's last failure is no longer in the window, the result is 0.
func (w *window) forget(event string, now time.Time) (times int) {
	f, ok := w.failing[event]
	if !ok {
		return 0
	}
	delete(w.failing, event)
	if s := &w.slots[f.slot%60]; s.n == f.slot {
		s.failed--
	}
	if !w.covers(f.slot, now) {
		return 0
	}
	return f.times
}

func (w *window) covers(n int64, now time.Time) bool { return n > now.UnixNano()/w.width-60 }

// ended notes that an event ended: it succeeded, or its failure does not count.
func (w *window) ended(event string, now time.Time) {
	if len(w.failing) > 0 {
		w.forget(event, now)
	}
	w.at(now).ended++
}

// failed notes that an event failed, and whether that counts as an attempt.
func (w *window) failed(event string, now time.Time, counts bool) {
	//guard:a-pause-needs-different-events = 0
	times := w.forget(event, now)
	if counts {
		times++
	}
	s := w.at(now)
	s.failed++
	if len(w.failing) >= mostFailing && w.swept != s.n {
		w.swept = s.n
		w.sweep(now)
	}
	if len(w.failing) < mostFailing {
		w.failing[event] = streak{s.n, times}
	}
}

// sweep forgets events whose failures are no longer in the window.
func (w *window) sweep(now time.Time) {
	for event, f := range w.failing {
		if !w.covers(f.slot, now) {
			delete(w.failing, event)
		}
	}
}

// counts returns how many events were tried within the window, and how many of these
// failed.
func (w *window) counts(now time.Time) (tried, failed int) {
	for _, s := range w.slots {
		if w.covers(s.n, now) {
			tried += s.ended + s.failed
			failed += s.failed
		}
	}
	return tried, failed
}

// repeated returns the events that failed more than once, if their last failure is in the window.
// Each has the number of its failures after the first.
func (w *window) repeated(now time.Time) map[string]int {
	all := make(map[string]int)
	for event, f := range w.failing {
		if f.times > 1 && w.covers(f.slot, now) {
			all[event] = f.times - 1
		}
	}
	return all
}
