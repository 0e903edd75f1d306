package model

// orders are the orders in which three transactions can take a number each.
var orders = [...][events]uint8{{0, 1, 2}, {0, 2, 1}, {2, 0, 1}, {1, 0, 2}, {1, 2, 0}, {2, 1, 0}}

// seqOrders is the number of possible orders of seqs. The first two transactions share a key,
// and the first holds the key's lock before it takes its seq.
const seqOrders = 3

// number gives the open transactions their seqs and xids, beginning with the given ones. Other
// processes cannot see when a transaction takes them, only the result after its commit. So
// only the orders matter, and they are drawn before everything else.
func (d *db) number(seqs, xids [events]uint8, seq, xid uint8) {
	for n := range events {
		if t := &d.txs[seqs[n]]; t.fate == open {
			seq++
			t.seq = seq
		}
		if t := &d.txs[xids[n]]; t.fate == open {
			xid++
			t.xid = xid
		}
	}
}

// draw takes the first step: an order of seqs, and any order of xids. A transaction takes its
// xid with its first change, which may be long before it writes an event. Its seq may also
// come before its xid.
func (w World) draw(s state, yield func(Step, state)) {
	for seqs := range uint8(seqOrders) {
		for xids := range uint8(len(orders)) {
			if xids > 0 && w.has(LateOpen|LateNew) && !w.Plain {
				break // whatever the xids are, a pass finds rows that are visible now and were not before
			}
			next := s
			next.drawn = true
			next.number(orders[seqs], orders[xids], 0, 0)
			yield(Step{Act: draws, Seqs: seqs, XIDs: xids}, next)
		}
	}
}

// mayEnd reports whether a transaction may have ended by now. The second wrote its event only
// after the first had ended and released their key. An event with a higher seq was written
// later still.
func (d *db) mayEnd(i int) bool {
	return d.txs[i].fate == open && (i == 0 || d.txs[0].fate != open || d.txs[i].seq < d.txs[1].seq)
}

// produce takes the steps of the producers.
func produce(s state, yield func(Step, state)) {
	for i := range s.txs {
		if !s.mayEnd(i) {
			continue
		}
		next := s
		next.completed = max(next.completed, s.txs[i].xid)
		next.txs[i].fate = committed
		yield(Step{Act: commits, Event: uint8(i)}, next) //nolint:gosec // below events
		next.txs[i].fate = rolledBack
		yield(Step{Act: rollsBack, Event: uint8(i)}, next) //nolint:gosec // below events
	}
}

// failOver takes the steps of a database that is lost, and of the copy that goes on. The copy
// had stopped following some time before. Later commits are gone, and seqs and xids are handed
// out again.
func (w World) failOver(s state, yield func(Step, state)) {
	switch {
	case s.left.Failovers == 0:
		return
	case !s.copied:
		next := s
		next.copy, next.copied = s.db, true
		yield(Step{Act: fallsBehind}, next)
		return
	}
	next := s
	next.left.Failovers--
	next.db, next.copy, next.copied = s.copy, db{}, false
	var seq uint8
	for i, was := range s.txs {
		t := &next.txs[i]
		switch {
		case t.fate != open:
			seq = max(seq, t.seq)
		case was.fate == committed:
			t.fate = lost
		case was.fate == rolledBack:
			t.fate = rolledBack
		}
	}
	next.number(orders[0], orders[0], seq, next.completed)
	for i := range next.relays {
		r := &next.relays[i]
		r.lose(r.stored)
		if w.has(DropMemory) {
			*r = relay{sent: r.sent}
		}
	}
	yield(Step{Act: failsOver}, next)
}
