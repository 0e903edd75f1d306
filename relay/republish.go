package relay

import (
	"context"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/internal/schedule"
)

const (
	// While no republish runs, the relay looks for one at this interval. While a republish waits
	// for the outcomes of its last events, the relay asks at least this often whether it ended.
	republishIdle = time.Second

	// republishEvery is the usual wait between two reads of a republish. A read returns at most the
	// events that the rate allows in republishBurst. After a slow read, the reader waits
	// republishShare times as long as the read took.
	republishEvery = 50 * time.Millisecond
	republishBurst = 2 * republishEvery
	republishShare = 4

	// Republishes may use at most an eighth (republishPart) of Config.MaxUnpublished. Even if the
	// rate is low, republishFloor events of republishes may be on their way. So an event that the
	// broker refuses does not stop the other events.
	republishPart  = 8
	republishFloor = 16
)

// republishPacer limits how fast events of republishes are read: no faster than the rate of the
// republish, and no faster than the broker acknowledges these events.
type republishPacer struct {
	running  bool          // a republish is known
	rate     float64       // the rate of the republish
	credit   float64       // events that may be read now
	creditAt time.Time     // when the field credit was computed
	readAt   time.Time     // the last read
	next     time.Time     // the next read
	wait     time.Duration // the wait after the last read; it doubles while the reads find no events
	fill     int           // how many events fill a page if they are as large as the last events
}

// allow returns how many events may be read now. onTheirWay is the number of events of republishes
// that were read and have no outcome yet, and the parameter bytes is their size.
func (r *republishPacer) allow(now time.Time, limit int, onTheirWay, bytes int64) int {
	if !r.running {
		return 1 // the rate is unknown until the first read
	}
	burst := max(1, r.rate*republishBurst.Seconds())
	r.credit = min(burst, r.credit+r.rate*now.Sub(r.creditAt).Seconds())
	r.creditAt = now
	if bytes >= schedule.MaxBytes/republishPart {
		return 0
	}
	room := min(max(republishFloor, int(burst)), limit/republishPart) - int(onTheirWay)
	return max(0, min(int(r.credit), room, r.fill))
}

// noteRead notes a read of the republishes, and sets the time of the next read.
func (r *republishPacer) noteRead(page *eventlog.RepublishPage, took time.Duration, now time.Time) {
	if page.ID == 0 {
		*r = republishPacer{next: now.Add(republishIdle)}
		if len(page.Ended) > 0 {
			r.next = now // another republish may wait
		}
		return
	}
	if !r.running {
		r.running, r.creditAt, r.credit = true, now, 0
	}
	r.rate = page.Rate
	r.credit -= float64(len(page.Events))
	switch {
	case len(page.Events) > 0:
		r.fill = nextLimit(page.Events)
		if r.wait = republishEvery; r.credit >= float64(r.fill) { // the rate allows more events than the page had
			r.wait = busyPoll
		}
	case page.Advanced: // the part of the log that was read has no events of the republish
		r.wait = busyPoll
	default: // all remaining events are on their way
		r.wait = min(max(2*r.wait, republishEvery), republishIdle)
	}
	if r.fill == 0 {
		r.fill = firstPage
	}
	r.next = now.Add(max(r.wait, republishShare*took))
}

// shorten shortens a wait if a republish must be read before the wait ends.
func (r *republishPacer) shorten(wait time.Duration, now time.Time) time.Duration {
	if r.running {
		wait = min(wait, r.next.Sub(now))
	}
	return wait
}

// readRepublish reads events of a republish and passes them to the dispatcher, if a read is due.
func (r *reader) readRepublish(ctx context.Context) error {
	w, now := &r.pacer, time.Now()
	if w.next.After(now) {
		return nil
	}
	limit := w.allow(now, r.relay.cfg.MaxUnpublished, r.republishEvents.Load(), r.republishBytes.Load())
	if limit == 0 && now.Sub(w.readAt) < republishIdle { // read anyway after a while: the republish may have been cancelled
		w.next = now.Add(republishEvery)
		if w.credit >= 1 { // events that are on their way may be acknowledged soon
			w.next = now.Add(republishEvery / 10)
		}
		return nil
	}
	w.readAt = now
	var page eventlog.RepublishPage
	err := r.relay.timeouts.republish.run(ctx, func(ctx context.Context) (err error) {
		page, err = r.term.ReadRepublish(ctx, limit)
		return err
	})
	if err != nil {
		return err
	}
	w.noteRead(&page, time.Since(now), time.Now())
	r.logRepublish(ctx, &page)
	if page.Advanced {
		signal(r.buffer.due)
	}
	p := r.republishPage(&page)
	if len(p.events)+len(p.cancelled) == 0 {
		return nil
	}
	return r.pass(ctx, p)
}

// republishPage returns the page for the dispatcher, and adds its events to the intake's counters.
func (r *reader) republishPage(found *eventlog.RepublishPage) page {
	p := page{events: found.Events}
	for _, ended := range found.Ended {
		if ended.Cancelled {
			p.cancelled = append(p.cancelled, ended.ID)
		}
	}
	bytes := 0
	for i := range found.Events {
		bytes += found.Events[i].Size()
	}
	r.republishEvents.Add(int64(len(found.Events)))
	r.republishBytes.Add(int64(bytes))
	return p
}

// logRepublish logs that a republish begins or ends.
func (r *reader) logRepublish(ctx context.Context, page *eventlog.RepublishPage) {
	log := r.relay.cfg.Logger
	for _, ended := range page.Ended {
		what := "republish is done"
		if ended.Cancelled {
			what = "republish was cancelled"
		}
		log.InfoContext(ctx, what, "republish", ended.ID, "events", ended.Events, "published", ended.Published, "skipped", ended.Skipped, "held", ended.Held)
	}
	if page.Begins {
		what := "republish begins"
		if page.Published+page.Held > 0 {
			what = "republish goes on"
		}
		log.InfoContext(ctx, what, "republish", page.ID, "events", page.RepublishStatus.Events, "published", page.Published, "rate", page.Rate)
	}
}
