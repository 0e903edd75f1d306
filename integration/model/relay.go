package model

// pageLimit is the largest number of rows with a seq above the field high that a pass returns.
const pageLimit = 2

// relay is a relay's process, with its publishes that are on the way to the broker. The epoch is 0
// while the relay does not lead.
type relay struct {
	epoch uint8
	high  uint8 // the last seq that was read
	base  uint8 // the broker acknowledged all events up to this seq that were read in order
	snap  snapshot

	backlog set  // seqs that were pending at take-over, and are not read yet
	late    set  // events that were read out of order, and are not acknowledged
	page    set  // events that were read in order, above the field base
	done    set  // the acknowledged events of the field page
	flying  set  // events that were sent, with an unknown outcome
	newer   bool // the relay sends the second event of the first key before the first event

	sent   set // events on the way to the broker, maybe sent in a term that is over
	stored set // events that the broker stored, and whose acknowledgement is on its way back
}

// unacked returns the events that were read and are not acknowledged.
func (r *relay) unacked() set { return r.late | r.page&^r.done }

// lose removes the given events from the events in flight. If an event is not acknowledged, the
// relay sends it again.
func (r *relay) lose(events set) {
	r.flying &^= events
	r.sent &^= events
	r.stored &^= events
}

// led reports whether a relay has the present epoch.
func (s *state) led() bool {
	return s.row.epoch > 0 && (s.relays[0].epoch == s.row.epoch || s.relays[1].epoch == s.row.epoch)
}

// relaySteps takes the steps of one relay.
func (w World) relaySteps(s state, n int, yield func(Step, state)) {
	r := s.relays[n]
	if r.epoch == 0 {
		w.lead(s, n, yield)
		return
	}
	if next := s; w.pass(&next, n) {
		yield(Step{Act: reads, Epoch: r.epoch}, next)
	}
	for i := range uint8(events) {
		if w.maySend(&r, i) {
			next := s
			next.relays[n].sent |= only(i)
			next.relays[n].flying |= only(i)
			yield(Step{Act: sends, Epoch: r.epoch, Event: i}, next)
		}
		if !r.stored.has(i) {
			continue
		}
		next := s
		next.relays[n].acknowledge(&s.db, i)
		yield(Step{Act: isAcked, Epoch: r.epoch, Event: i}, next)
		if s.left.Losses > 0 {
			next := s
			next.left.Losses--
			next.relays[n].lose(only(i))
			yield(Step{Act: losesAck, Epoch: r.epoch, Event: i}, next)
		}
	}
	w.record(s, n, yield)
	if s.left.Crashes > 0 {
		next := s
		next.left.Crashes--
		next.relays[n] = relay{sent: r.sent}
		yield(Step{Act: crashes, Epoch: r.epoch}, next)
	}
}

// lead lets a relay take the lease if no relay holds it, or if the relay that holds it sleeps. The
// new leader begins with the values of the state row.
func (w World) lead(s state, n int, yield func(Step, state)) {
	act := takesLease
	if s.led() {
		if s.left.TakeOvers == 0 {
			return
		}
		act = takesOver
		s.left.TakeOvers--
	}
	s.row.epoch++
	row := s.row
	s.relays[n] = relay{epoch: row.epoch, high: row.high, base: row.high, snap: row.snap, backlog: row.pending, sent: s.relays[n].sent}
	yield(Step{Act: act, Epoch: row.epoch}, s)
}

// pass reads the log, and reports whether the relay changed. If events were pending at the
// take-over, the first pass reads these and late rows. Every other pass reads late rows and the
// next page.
func (w World) pass(s *state, n int) bool {
	r := &s.relays[n]
	before := *r
	now := s.snapshot()
	var late set
	for i, t := range s.txs {
		if t.seq > r.high || t.fate != committed {
			continue
		}
		wasOpen := r.snap.xip.has(t.xid) && w.has(LateOpen)
		isNew := t.xid >= r.snap.xmax && w.has(LateNew)
		if wasOpen || isNew {
			late |= 1 << i
		}
	}
	r.snap = now
	if r.backlog != 0 { // this pass reads nothing newer
		for seq := range uint8(maxSeq + 1) {
			if i, ok := s.at(seq); ok && r.backlog.has(seq) {
				late |= only(i)
			}
		}
		r.backlog = 0
		r.late |= late
		return true
	}
	page := w.page(s, r.high)
	r.late |= late
	r.page |= page
	for i, t := range s.txs {
		if page.has(uint8(i)) { //nolint:gosec // i is below the constant events
			r.high = max(r.high, t.seq)
		}
	}
	if !w.has(LateFirst) && late.has(0) && page.has(1) {
		r.newer = true
	}
	return *r != before
}

// page returns the events with the next seqs above the parameter high.
func (w World) page(s *state, high uint8) (page set) {
	for seq, n := high+1, 0; seq <= maxSeq && n < pageLimit; seq++ {
		for i, t := range s.txs {
			if t.seq == seq && (t.fate == committed || t.fate == open && !w.has(ReadCommitted)) {
				page |= 1 << i
				n++
			}
		}
	}
	return page
}

// maySend reports whether a leader may send an event now. A leader sends the events of a key one at
// a time, in the order in which it read them.
func (w World) maySend(r *relay, i uint8) bool {
	if !r.unacked().has(i) || r.flying.has(i) || r.sent.has(i) {
		return false
	}
	others := keys[i] &^ only(i)
	if w.has(OnePerKey) && r.flying&others != 0 {
		return false
	}
	if before := i == 0 && r.newer || i == 1 && !r.newer; before && r.unacked()&^r.flying&others != 0 {
		return false
	}
	return true
}

// acknowledge notes that an event is published.
func (r *relay) acknowledge(d *db, i uint8) {
	r.lose(only(i))
	if r.late.has(i) {
		r.late &^= only(i)
		return
	}
	r.done |= only(i)
	for seq := r.base + 1; seq <= r.high; seq++ { // drop acknowledged events, beginning after base
		for i, t := range d.txs {
			switch {
			case t.seq != seq || r.page&(1<<i) == 0:
			case r.done&(1<<i) == 0:
				return
			default:
				r.base = seq
				r.page &^= 1 << i
				r.done &^= 1 << i
			}
		}
	}
}

// record writes to the state row which events are published. If the row has a later epoch, the
// database refuses the recording, and the relay does not lead any more.
func (w World) record(s state, n int, yield func(Step, state)) {
	r := s.relays[n]
	if w.has(EpochCheck) && r.epoch != s.row.epoch {
		s.relays[n] = relay{sent: r.sent}
		yield(Step{Act: isRefused, Epoch: r.epoch}, s)
		return
	}
	if r.epoch != s.row.epoch {
		s.broken |= Fence
	}
	done := r.done
	if !w.has(RecordAcked) {
		done |= r.flying & r.page
	}
	s.row.high, s.row.snap, s.row.pending = r.base, r.snap, 0
	for i, t := range s.txs {
		if done.has(uint8(i)) { //nolint:gosec // i is below the constant events
			s.row.high = max(s.row.high, t.seq)
		}
	}
	owed := r.backlog
	for i, t := range s.txs {
		if (r.unacked() &^ done).has(uint8(i)) { //nolint:gosec // i is below the constant events
			owed |= only(t.seq)
		}
	}
	if w.has(RecordPending) {
		s.row.pending = owed & (only(s.row.high+1) - 1)
	}
	if s.isMarked() {
		s.broken |= MarkImpliesStored
	}
	yield(Step{Act: records, Epoch: r.epoch}, s)
}
