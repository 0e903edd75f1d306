package model

// inbox is one handler: its ledger and effects, and the deliveries of its messages.
type inbox struct {
	owed    set // messages that are not acknowledged; see message
	ledger  set // events whose ledger row is committed
	effects [events]uint8
	workers [2]worker
}

// worker is what a worker does with one message.
type worker struct {
	stage   stage
	message uint8
}

type stage uint8

const (
	idle    stage = iota
	taken         // a message was delivered
	begun         // the ledger row is inserted, in a transaction that is open
	ran           // and the handler ran in it
	decided       // committed, or found to be a repetition
)

// message numbers the copies of an event in the stream.
func message(event, copy uint8) uint8 { return event*maxCopies + copy }
func eventOf(message uint8) uint8     { return message / maxCopies }

// beginHandling turns to the handler, when nothing can happen any more at the relays:
// a stream only grows, so that workers who start earlier can do no more and no less.
func beginHandling(s state) state {
	next := state{handling: true}
	for i, t := range s.txs {
		next.txs[i].fate = t.fate
		for n := range s.stream.copies[i] {
			next.inbox.owed |= only(message(uint8(i), n)) //nolint:gosec // below events
		}
	}
	next.stream.copies = s.stream.copies
	next.left.Deaths = s.left.Deaths
	return next
}

// workerSteps takes the steps of one worker. A message that is not acknowledged may be
// delivered at any time, also while another worker has it.
func (w World) workerSteps(s state, n int, yield func(Step, state)) {
	at := s.inbox.workers[n]
	i := eventOf(at.message)
	step := func(act Act, to stage, change func(*inbox)) {
		next := s
		next.inbox.workers[n].stage = to
		if to == idle {
			next.inbox.workers[n].message = 0
		}
		if change != nil {
			change(&next.inbox)
		}
		yield(Step{Act: act, Event: i}, next)
	}
	switch at.stage {
	case idle:
		w.deliver(s, n, yield)
		return
	case taken:
		switch {
		case s.inbox.ledger.has(i):
			step(findsRow, decided, nil)
		case w.has(InsertFirst) && s.inbox.locked(i): // waits for the other transaction's end
		case w.has(InsertFirst):
			step(inserts, begun, nil)
		default:
			step(Looks, begun, nil)
		}
	case begun:
		step(handles, ran, func(in *inbox) {
			if !w.has(OneTransaction) {
				in.effects[i]++
			}
		})
	case ran:
		step(commitsEffect, decided, func(in *inbox) {
			in.ledger |= only(i)
			if w.has(OneTransaction) {
				in.effects[i]++
			}
		})
	case decided:
		step(acks, idle, func(in *inbox) { in.owed &^= only(at.message) })
	}
	if s.left.Deaths > 0 {
		s.left.Deaths--
		step(dies, idle, nil)
	}
}

// deliver gives a worker a message.
func (w World) deliver(s state, n int, yield func(Step, state)) {
	for m := range uint8(events * maxCopies) {
		if s.inbox.owed.has(m) {
			next := s
			next.inbox.workers[n] = worker{taken, m}
			if !w.has(AckAfterCommit) {
				next.inbox.owed &^= only(m)
			}
			yield(Step{Act: takes, Event: eventOf(m)}, next)
		}
	}
}

// locked reports whether an open transaction has inserted an event's ledger row.
func (in *inbox) locked(event uint8) bool {
	for _, at := range in.workers {
		if (at.stage == begun || at.stage == ran) && eventOf(at.message) == event {
			return true
		}
	}
	return false
}
