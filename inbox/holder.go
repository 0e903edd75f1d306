package inbox

import "context"

// holder holds events that failed on the straight path, as many at a time as wait:
// a handler that fails often costs its neighbours less than a transaction for each.
// It implements postroom.Runner.
type holder struct {
	inbox *Inbox
	queue chan owed     // has room for whatever is in hand
	done  chan struct{} // closed when nothing more comes
}

// holdAtOnce is how many events one statement holds.
const holdAtOnce = 100

func newHolder(in *Inbox) *holder {
	room := 0
	for _, c := range in.consumers {
		room += c.hand.most
	}
	return &holder{inbox: in, queue: make(chan owed, room), done: make(chan struct{})}
}

// Run holds what it is given until the consumers have ended.
func (h *holder) Run(ctx context.Context) error {
	work, cancel := h.inbox.drain(ctx)
	defer cancel()
	for {
		select {
		case <-h.done:
			return nil
		case first := <-h.queue:
			events := []owed{first}
			for len(events) < holdAtOnce && len(h.queue) > 0 {
				events = append(events, <-h.queue)
			}
			h.hold(ctx, work, events)
		}
	}
}

// hold stores events, and answers for each that it did. The others go their own
// way: another process decided them, or one of them takes no row.
func (h *holder) hold(ctx, work context.Context, events []owed) {
	var fates []fate
	err := events[0].c.persist(ctx, work, func() (err error) {
		fates, err = h.inbox.store(work, events...)
		return written(err)
	})
	for i, o := range events {
		if err == nil && fates[i] == fateHeld {
			o.c.held(work, o.d, o.h)
		} else {
			o.c.hold(ctx, work, o.d, o.h)
		}
		o.c.owing.Done()
	}
}
