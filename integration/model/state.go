package model

// maxSeq is the highest possible seq. After a failover, the database hands out seqs a second time.
const maxSeq = 2 * events

// events is the number of events, each with a transaction of its own. The first two events share a
// key, and the transaction of the first event gets the key's lock first.
const events = 3

// keys has, for each event, the events with the same key.
var keys = [events]set{0b011, 0b011, 0b100}

// set is a set of small numbers: of events (their indexes), of seqs, of xids, or of messages.
type set uint8

func (s set) has(i uint8) bool { return s&(1<<i) != 0 }
func only(i uint8) set         { return 1 << i }

// state is everything: the database, both relays, the broker and the handler. States are small, and
// can be compared with ==.
type state struct {
	db
	copy   db // the copy that replaces the database in a failover
	copied bool

	relays [2]relay
	stream stream
	inbox  inbox
	left   Faults

	drawn    bool      // the first step is taken
	handling bool      // the relays are done, and the workers begin
	broken   Invariant // broken by a step, if the state itself does not show it
}

// db is the database.
type db struct {
	txs       [events]tx
	completed uint8 // the highest xid that ended
	row       row
}

// tx is a producer's transaction, with the seq of its event.
type tx struct {
	fate     fate
	xid, seq uint8 // from 1 on
}

type fate uint8

const (
	open fate = iota
	committed
	rolledBack
	lost // it committed, but the copy that replaced the database lacks it
)

// row is the state row: every event up to the field high that is visible in the field snap is
// published, except the events of the field pending.
type row struct {
	epoch   uint8
	high    uint8
	snap    snapshot
	pending set // seqs
}

// snapshot is a snapshot of the database. If the xid of a transaction is below xmax and not in xip,
// the transaction ended before the snapshot.
type snapshot struct {
	xmax uint8
	xip  set
}

func (s snapshot) sees(xid uint8) bool { return xid < s.xmax && !s.xip.has(xid) }

// snapshot takes a snapshot now.
func (d *db) snapshot() snapshot {
	s := snapshot{xmax: d.completed + 1}
	for _, t := range d.txs {
		if t.fate == open && t.xid < s.xmax {
			s.xip |= only(t.xid)
		}
	}
	return s
}

// at returns the committed event with the given seq.
func (d *db) at(seq uint8) (event uint8, ok bool) {
	for i, t := range d.txs {
		if t.fate == committed && t.seq == seq {
			return uint8(i), true //nolint:gosec // i is below the constant events
		}
	}
	return 0, false
}

// stream is the broker's stream: how many copies it has of each event, and which events it
// remembers by their message ids. It does not count a third copy, because that makes no difference.
type stream struct {
	copies [events]uint8
	window set
}

const maxCopies = 2

// first returns the first state.
func first(w World) state { return state{db: db{row: row{snap: snapshot{xmax: 1}}}, left: w.Faults} }

// canonical returns the same state for all states that no later step can tell apart.
func (w World) canonical(s state) state {
	if w.Plain {
		return s
	}
	for i := range s.relays {
		r := &s.relays[i]
		if w.Faults.Failovers == 0 && w.has(EpochCheck) && r.epoch > 0 && r.epoch < s.row.epoch { // this relay will never record
			r.late, r.page, r.done, r.base = r.unacked(), 0, 0, r.high
		}
		w.simplify(&r.snap, &s.db, r.high)
	}
	w.simplify(&s.row.snap, &s.db, s.row.high)
	if s.left.isLast() && s.led() { // no relay will read the row again
		s.row = row{epoch: s.row.epoch}
	}
	// The order of the relays makes no difference, nor does the order of the workers.
	if a, b := s.relays[0], s.relays[1]; a.epoch > b.epoch || a.epoch == b.epoch && a.sent > b.sent {
		s.relays[0], s.relays[1] = b, a
	}
	if a, b := s.inbox.workers[0], s.inbox.workers[1]; a.stage > b.stage || a.stage == b.stage && (a.message > b.message || a.message == b.message && a.epoch > b.epoch) {
		s.inbox.workers[0], s.inbox.workers[1] = b, a
	}
	return s
}

// isLast reports whether the present leader leads to the end.
func (f Faults) isLast() bool { return f.Crashes == 0 && f.TakeOvers == 0 && f.Failovers == 0 }

// simplify changes a snapshot, so that all snapshots that see the same rows up to the parameter
// high become equal. If a snapshot does not see a row, the row's transaction was in progress, or
// began later. That difference matters only if a rule for late rows is missing.
func (w World) simplify(s *snapshot, d *db, high uint8) {
	if !w.has(LateOpen | LateNew) {
		return
	}
	var xip set
	for _, t := range d.txs {
		if t.seq <= high && t.fate <= committed && !s.sees(t.xid) {
			xip |= only(t.xid)
		}
	}
	*s = snapshot{xmax: maxSeq + 1, xip: xip}
}
