package model

// orders are the orders in which three transactions can take a number each.
var orders = [...][events]uint8{{0, 1, 2}, {0, 2, 1}, {2, 0, 1}, {1, 0, 2}, {1, 2, 0}, {2, 1, 0}}

// seqOrders is how many of them seqs can be taken in: the first two transactions have
// a key in common, and the first holds the lock on it before it takes its seq.
const seqOrders = 3

// number gives the transactions that are open their seqs and xids, from the given
// ones on. When a transaction takes them is nothing that others could see before it
// commits; only the orders matter, and so they are drawn before all else.
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

// draw takes the first step: an order of seqs, and one of xids, which is free. A
// transaction takes its xid with its first change, long before it writes an event or
// with it, and the seq may come before the xid.
func (w World) draw(s state, yield func(Step, state)) {
	for seqs := range uint8(seqOrders) {
		for xids := range uint8(len(orders)) {
			if xids > 0 && w.has(LateOpen|LateNew) && !w.Plain {
				break // whatever the xids are, a pass finds what is visible and was not
			}
			next := s
			next.drawn = true
			next.number(orders[seqs], orders[xids], 0, 0)
			yield(Step{Act: draws, Seqs: seqs, XIDs: xids}, next)
		}
	}
}

// mayEnd reports whether a transaction may have ended by now. The second wrote its event
// only after the first had ended and let go of their key; whatever has a higher seq
// was written later still.
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

// failOver takes the steps of a database that is lost, and of the one that goes on:
// a copy that had stopped following it some time before. What was committed in
// between is gone, and seqs and xids are handed out again.
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
