package model

// inbox is one handler: its inbox rows and effects, and the deliveries of its messages.
type inbox struct {
	owed    set // numbers of messages that are not acknowledged; see the function message
	ledger  set // events whose inbox row is committed
	effects [events]uint8
	held    [events]heldEvent
	gone    set // events that an operator cancelled while they were held
	workers [2]worker
}

// heldEvent is the row of an event that is held.
type heldEvent struct {
	is    holdingState
	epoch uint8 // rises with each claim
}

type holdingState uint8

const (
	notHeld holdingState = iota
	due
	claimed
)

// worker is a worker of the handler, with the message on which it works.
type worker struct {
	stage   stage
	message uint8
	epoch   uint8 // the epoch of its claim
}

type stage uint8

const (
	idle    stage = iota
	taken         // a message was delivered
	begun         // a transaction is open, and has inserted the inbox row
	ran           // the handler ran in that transaction
	decided       // the effect is committed, or the event is a repetition or is held
	retries       // the worker has claimed a held event
	retried       // the handler ran for the held event, in a transaction that is open
)

// message returns the number of a copy of an event in the stream.
func message(event, copy uint8) uint8 { return event*maxCopies + copy }
func eventOf(message uint8) uint8     { return message / maxCopies }

// beginHandling starts the handler's part when nothing else can happen any more. The model still
// covers everything that workers can do: the stream only grows, so that workers can do later what
// they could have done earlier.
func beginHandling(s state) state {
	next := state{handling: true}
	for i, t := range s.txs {
		next.txs[i].fate = t.fate
		for n := range s.stream.copies[i] {
			next.inbox.owed |= only(message(uint8(i), n)) //nolint:gosec // i is below the constant events
		}
	}
	next.stream.copies = s.stream.copies
	next.left = Faults{Deaths: s.left.Deaths, Refusals: s.left.Refusals, Failures: s.left.Failures, Lapses: s.left.Lapses, Cancels: s.left.Cancels}
	return next
}

// workerSteps takes the steps of one worker. An unacknowledged message may be delivered at any
// time, even while another worker has it.
func (w World) workerSteps(s state, n int, yield func(Step, state)) {
	at := s.inbox.workers[n]
	i := eventOf(at.message)
	step := func(act Act, to stage, change func(*inbox)) { work(s, n, act, to, change, yield) }
	switch at.stage {
	case idle:
		w.deliver(s, n, yield)
		claim(s, n, yield)
		return
	case taken:
		switch {
		case s.inbox.ledger.has(i):
			step(findsRow, decided, nil)
		case w.has(InsertFirst) && s.inbox.locked(i): // the worker waits until the other transaction ends
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
		w.fail(s, n, yield)
	case decided:
		step(acks, idle, func(in *inbox) { in.owed &^= only(at.message) })
	case retries:
		step(handlesAgain, retried, nil)
	case retried:
		w.settle(s, n, yield)
	}
	if s.left.Deaths > 0 {
		s.left.Deaths--
		step(dies, idle, func(in *inbox) {
			if h := &in.held[i]; h.is == claimed && h.epoch == at.epoch { // no process renews the claim any more
				h.is = due
			}
		})
	}
}

// work takes a step of a worker.
func work(s state, n int, act Act, to stage, change func(*inbox), yield func(Step, state)) {
	at := &s.inbox.workers[n]
	i := eventOf(at.message)
	if at.stage = to; to == idle {
		*at = worker{}
	}
	if change != nil {
		change(&s.inbox)
	}
	yield(Step{Act: act, Event: i}, s)
}

// fail takes two steps that a worker may take in place of its commit. First: the commit fails.
// Second: the handler has failed, and another transaction stores the event as held.
func (w World) fail(s state, n int, yield func(Step, state)) {
	i := eventOf(s.inbox.workers[n].message)
	if s.left.Refusals > 0 {
		refused := s
		refused.left.Refusals--
		to := idle // the broker delivers the message again
		if !w.has(CommitDecides) {
			to = decided
		}
		work(refused, n, commitFails, to, nil, yield)
	}
	if s.left.Failures > 0 {
		s.left.Failures--
		work(s, n, holds, decided, func(in *inbox) {
			in.ledger |= only(i)
			in.held[i].is = due
		}, yield)
	}
}

// claim lets a worker claim a held event that is due. If a worker sleeps, its claim may end. An
// operator may cancel a held event that no worker has claimed.
func claim(s state, n int, yield func(Step, state)) {
	for i := range uint8(events) {
		next := s
		if s.inbox.held[i].is == due && s.left.Cancels > 0 {
			gone := s
			gone.left.Cancels--
			gone.inbox.held[i], gone.inbox.gone = heldEvent{}, gone.inbox.gone|only(i)
			yield(Step{Act: cancels, Event: i}, gone)
		}
		switch h := &next.inbox.held[i]; {
		case h.is == due:
			h.is = claimed
			h.epoch++
			next.inbox.workers[n] = worker{message: message(i, 0), epoch: h.epoch}
			work(next, n, claims, retries, nil, yield)
		case h.is == claimed && s.left.Lapses > 0:
			h.is = due
			next.left.Lapses--
			yield(Step{Act: lapses, Event: i}, next)
		}
	}
}

// settle ends the transaction of a worker that has run a held event.
func (w World) settle(s state, n int, yield func(Step, state)) {
	at := s.inbox.workers[n]
	i := eventOf(at.message)
	h := s.inbox.held[i]
	//planted:settling-without-the-epoch 2.2 false
	if w.has(ClaimCheck) && (h.is == notHeld || h.epoch != at.epoch) {
		work(s, n, comesLate, idle, nil, yield)
		return
	}
	if h.is != notHeld && h.epoch != at.epoch {
		s.broken |= Fence
	}
	work(s, n, settles, idle, func(in *inbox) {
		in.effects[i]++
		in.held[i] = heldEvent{}
	}, yield)
}

// deliver gives a worker a message.
func (w World) deliver(s state, n int, yield func(Step, state)) {
	for m := range uint8(events * maxCopies) {
		if s.inbox.owed.has(m) {
			next := s
			next.inbox.workers[n] = worker{stage: taken, message: m}
			if !w.has(AckAfterCommit) {
				next.inbox.owed &^= only(m)
			}
			yield(Step{Act: takes, Event: eventOf(m)}, next)
		}
	}
}

// locked reports whether an open transaction has inserted an event's inbox row.
func (in *inbox) locked(event uint8) bool {
	for _, at := range in.workers {
		if (at.stage == begun || at.stage == ran) && eventOf(at.message) == event {
			return true
		}
	}
	return false
}
