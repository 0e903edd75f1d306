package model

// broker takes the steps of the broker, and of the network between the relays and the broker.
func (w World) broker(s state, yield func(Step, state)) {
	for n, r := range s.relays {
		for i := range uint8(events) {
			if !r.sent.has(i) || i == 1 && r.sent.has(0) { // a connection keeps the order of a key: the first event arrives first
				continue
			}
			next := s
			again := next.store(w, i)
			next.relays[n].sent &^= only(i)
			if r.flying.has(i) {
				next.relays[n].stored |= only(i)
			}
			yield(Step{Act: again, Epoch: r.epoch, Event: i}, next)
			if s.left.Losses > 0 {
				next := s
				next.left.Losses--
				next.relays[n].lose(only(i))
				yield(Step{Act: losesPublish, Epoch: r.epoch, Event: i}, next)
			}
		}
	}
	for i := range uint8(events) {
		if s.left.Forgets > 0 && s.stream.window.has(i) {
			next := s
			next.left.Forgets--
			next.stream.window &^= only(i)
			yield(Step{Act: forgets, Event: i}, next)
		}
	}
}

// store adds an event to the stream. If the broker remembers the event's message id, it drops the
// event as a repetition.
func (s *state) store(w World, i uint8) Act {
	act := stores
	if s.stream.window.has(i) {
		if w.has(SameMessageID) {
			return dropsRepeat
		}
		s.broken |= OneCopy
	}
	if s.stream.copies[i] > 0 {
		act = storesAgain
	}
	s.stream.copies[i] = min(s.stream.copies[i]+1, maxCopies)
	s.stream.window |= only(i)
	return act
}
