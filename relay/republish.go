package relay

import (
	"context"
	"time"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/relay/internal/schedule"
)

const (
	// While no rewind is known it is asked for one this often, and so often, in the
	// end, whether one that waits for its last events has ended.
	republishIdle = time.Second

	// Events of a rewind are read this often, those of twice the time at once at the
	// most. No more than a fifth of the time is spent on it.
	republishEvery = 50 * time.Millisecond
	republishBurst = 2 * republishEvery
	republishShare = 4

	// Of all that may be read, events of rewinds are an eighth at the most; and so many
	// at the least that one which the broker refuses does not stop the others.
	republishPart  = 8
	republishFloor = 16
)

// republishPacer paces what is read of rewinds: by their rate, and no more than is acknowledged.
type republishPacer struct {
	running  bool          // a rewind is known
	rate     float64       // of it
	credit   float64       // events that may be read now
	creditAt time.Time     // when that was
	readAt   time.Time     // when it was last read
	next     time.Time     // when it is read next
	wait     time.Duration // where nothing of it was to be read
	fill     int           // how many events of their size fill a page
}

// allow returns how many events may be read now, with so many on their way.
func (r *republishPacer) allow(now time.Time, limit int, onTheirWay, bytes int64) int {
	if !r.running {
		return 1 // whose rate is known then
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

// noteRead notes a look at the rewinds that took so long, and sets the time of the next.
func (r *republishPacer) noteRead(page *eventlog.Rewound, took time.Duration, now time.Time) {
	if page.ID == 0 {
		*r = republishPacer{next: now.Add(republishIdle)}
		if len(page.Ended) > 0 {
			r.next = now // another may wait behind it
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
		if r.wait = republishEvery; r.credit >= float64(r.fill) { // it is not the rate that bounds it
			r.wait = busyPoll
		}
	case page.Moved: // a part of the log without any
		r.wait = busyPoll
	default: // all of it is on its way
		r.wait = min(max(2*r.wait, republishEvery), republishIdle)
	}
	if r.fill == 0 {
		r.fill = firstPage
	}
	r.next = now.Add(max(r.wait, republishShare*took))
}

// shorten shortens a wait where something of a rewind is to be read before its end.
func (r *republishPacer) shorten(wait time.Duration, now time.Time) time.Duration {
	if r.running {
		wait = min(wait, r.next.Sub(now))
	}
	return wait
}

// readRepublish hands events of a rewind to the dispatcher where it is time for them.
func (r *reader) readRepublish(ctx context.Context) error {
	w, now := &r.pacer, time.Now()
	if w.next.After(now) {
		return nil
	}
	limit := w.allow(now, r.relay.cfg.MaxUnpublished, r.republishEvents.Load(), r.republishBytes.Load())
	if limit == 0 && now.Sub(w.readAt) < republishIdle { // it may have been cancelled
		w.next = now.Add(republishEvery)
		if w.credit >= 1 { // what is on its way may have arrived soon
			w.next = now.Add(republishEvery / 10)
		}
		return nil
	}
	w.readAt = now
	var page eventlog.Rewound
	err := r.relay.timeouts.rewind.run(ctx, func(ctx context.Context) (err error) {
		page, err = r.term.Rewound(ctx, limit)
		return err
	})
	if err != nil {
		return err
	}
	w.noteRead(&page, time.Since(now), time.Now())
	r.logRepublish(ctx, &page)
	if page.Moved {
		signal(r.buffer.due)
	}
	p := r.republishPage(&page)
	if len(p.events)+len(p.cancelled) == 0 {
		return nil
	}
	select {
	case r.pages <- p:
	case <-ctx.Done():
	}
	return nil
}

// republishPage returns what the dispatcher has to know of a look at the rewinds.
func (r *reader) republishPage(found *eventlog.Rewound) page {
	p := page{events: found.Events}
	for _, ended := range found.Ended {
		if ended.Cancelled {
			p.cancelled = append(p.cancelled, ended.ID)
		}
	}
	bytes := 0
	for i := range found.Events {
		bytes += len(found.Events[i].Data)
	}
	r.republishEvents.Add(int64(len(found.Events)))
	r.republishBytes.Add(int64(bytes))
	return p
}

// logRepublish notes in the log where a rewind begins and ends.
func (r *reader) logRepublish(ctx context.Context, page *eventlog.Rewound) {
	log := r.relay.cfg.Logger
	for _, ended := range page.Ended {
		what := "rewind is done"
		if ended.Cancelled {
			what = "rewind was cancelled"
		}
		log.InfoContext(ctx, what, "rewind", ended.ID, "events", ended.Events, "published", ended.Published, "skipped", ended.Skipped, "held", ended.Held)
	}
	if page.Begins {
		what := "rewind begins"
		if page.Published+page.Held > 0 {
			what = "rewind goes on"
		}
		log.InfoContext(ctx, what, "rewind", page.ID, "events", page.Rewinding.Events, "published", page.Published, "rate", page.Rate)
	}
}
