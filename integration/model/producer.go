package model

// orders are the orders in which three transactions can each take a number.
var orders = [...][events]uint8{{0, 1, 2}, {0, 2, 1}, {2, 0, 1}, {1, 0, 2}, {1, 2, 0}, {2, 1, 0}}

// seqOrders is how many of these orders are possible for seqs: the first three. The first two
// transactions share a key. The first one gets the key's lock first, so it takes its seq first.
const seqOrders = 3

// number gives the open transactions the seqs and xids after the given seq and xid, in the given
// orders. Other processes cannot see when a transaction takes these numbers. They see only the
// result, after the commit. So only the orders matter, and the model draws them before everything
// else.
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

// draw takes the first step: it draws a possible order of seqs, and any order of xids. A
// transaction takes its xid with its first change, which may be long before it writes an event. It
// may also take its seq before its xid.
func (w World) draw(s state, yield func(Step, state)) {
	for seqs := range uint8(seqOrders) {
		for xids := range uint8(len(orders)) {
			if xids > 0 && w.has(LateOpen|LateNew) && !w.Plain {
				break // one order of xids is enough: with these rules, a pass finds every row that became visible since the pass before
			}
			next := s
			next.drawn = true
			next.number(orders[seqs], orders[xids], 0, 0)
			yield(Step{Act: draws, Seqs: seqs, XIDs: xids}, next)
		}
	}
}

// mayEnd reports whether a transaction may end now. The second transaction writes its event only
// after the first has ended and released their key. If the third has a higher seq than the second,
// it writes its event after the second does. So it, too, ends after the first.
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
		yield(Step{Act: commits, Event: uint8(i)}, next) //nolint:gosec // i is below the constant events
		next.txs[i].fate = rolledBack
		yield(Step{Act: rollsBack, Event: uint8(i)}, next) //nolint:gosec // i is below the constant events
	}
}

// failOver takes the two steps of a failover. First the copy stops following the database. Later
// the database is lost, and the copy goes on in its place. The copy lacks the commits between these
// steps, and hands out their seqs and xids again.
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
