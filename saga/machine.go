package saga

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/telemetry"
	"github.com/postroom/postroom/saga/internal/merge"
)

// State says how far an instance has come.
type State string

// The states of an instance. An instance has ended if it is Done or Undone.
const (
	Running      State = "running"
	Compensating State = "compensating"
	Done         State = "done"
	Undone       State = "undone"
)

// Ended reports whether an instance with this state has ended.
func (s State) Ended() bool { return s == Done || s == Undone }

// direction says whether a step is done or undone.
type direction string

const (
	toDo   direction = "do"
	toUndo direction = "undo"
)

// The kinds of entries in the history.
const (
	wasSent       = "sent" // a command was sent
	wasBegun      = "begun"
	wasLocal      = "local"
	wasDone       = "done"
	wasFailed     = "failed"
	wasUndone     = "undone"
	wasGivenUp    = "gave_up"
	wasTooLate    = "deadline"
	wasMarkedDone = "mark_done"
)

// instance is an instance in the form that the methods of turn use.
type instance[S any] struct {
	row
	data   S
	before *merge.State // the state that another program stored; nil if this program stored it
}

// entry is a row of the history.
type entry struct {
	step      string
	direction direction
	what      string
	eventType string
	eventID   string
	command   command // the command that the saga wrote then; zero if the saga wrote no command
}

// command is a command in the history.
type command struct{ step, eventType, id string }

// moment has a turn's time and this Postroom's identity, both from the database.
type moment struct {
	owner [16]byte // the identity of this Postroom: each schema with Postroom's tables has another
	now   time.Time
}

// turn is the reaction to an event or call. Its methods decide what a saga does, without I/O: for a
// Local function they set the field local, and the caller runs it and calls localEnded.
type turn[S any] struct {
	moment
	plan  *plan[S]
	inst  *instance[S]
	cause string // the id of the event that led to this turn; empty if there is no such event
	trace telemetry.Trace

	// The result of the turn.
	changed bool // the instance has a new revision
	touched bool // something must be stored without a new revision
	waits   bool // the instance waits for a new step
	events  []postroom.Event
	history []entry
	local   func(ctx context.Context, tx pgx.Tx, s *S) error
}

// stepKey returns the key of a step of an instance. This key is unique in all databases.
func stepKey(owner [16]byte, name, key, step string) string {
	h := sha256.New()
	for _, part := range []string{string(owner[:]), "saga", name, key, step} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part)))) //nolint:gosec // parts are short
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (t *turn[S]) stepKey(step string) string {
	return stepKey(t.owner, t.plan.name, t.inst.key, step)
}

// commandID returns the id of a command in a direction. The parameter run is 1; each Retry adds 1.
func commandID(stepKey string, d direction, run int) string {
	id := stepKey + ":" + string(d)
	if run > 1 {
		id += "." + strconv.Itoa(run)
	}
	return id
}

// isCommand reports whether id is the id of a command of this step and direction, and returns the
// command's number.
func isCommand(id, stepKey string, d direction) (run int, ok bool) {
	rest, ok := strings.CutPrefix(id, stepKey+":"+string(d))
	switch {
	case !ok:
		return 0, false
	case rest == "":
		return 1, true
	}
	run, err := strconv.Atoi(strings.TrimPrefix(rest, "."))
	return run, err == nil && id == commandID(stepKey, d, run)
}

// ownStep returns the step whose command has this id, or nil if there is no such step.
func (t *turn[S]) ownStep(id string) *Step[S] {
	for i := range t.plan.steps {
		key := t.stepKey(t.plan.steps[i].Name)
		if strings.HasPrefix(id, key+":") {
			return &t.plan.steps[i]
		}
	}
	return nil
}

// direction returns the direction of the instance.
func (t *turn[S]) direction() direction {
	if t.inst.state == Compensating {
		return toUndo
	}
	return toDo
}

// begin begins the instance.
func (t *turn[S]) begin() {
	t.inst.state = Running
	t.change()
	t.record(t.plan.steps[0].Name, toDo, wasBegun, "", t.cause)
	t.forward(0)
	t.arm()
}

// change makes a new revision. Only the first call in a turn does this.
func (t *turn[S]) change() {
	if !t.changed {
		t.changed = true
		t.inst.revision++
	}
}

// before returns the revision that the instance had before the turn.
func (t *turn[S]) before() int64 {
	if t.changed {
		return t.inst.revision - 1
	}
	return t.inst.revision
}

func (t *turn[S]) record(step string, d direction, what, eventType, eventID string) {
	t.history = append(t.history, entry{step: step, direction: d, what: what, eventType: eventType, eventID: eventID})
}

// forward does the steps from the i-th on, until a step has to wait.
func (t *turn[S]) forward(i int) {
	for ; i < len(t.plan.steps); i++ {
		s := &t.plan.steps[i]
		t.enter(s)
		if s.Do.local != nil {
			t.local = s.Do.local
			return
		}
		if t.started(s) {
			return
		}
	}
	t.end(Done, t.plan.ended.Done)
}

// started sends the step's command, if there is one, and reports whether the step waits.
func (t *turn[S]) started(s *Step[S]) bool {
	if s.Do.eventType != "" {
		t.send(s, toDo)
	}
	if !s.Done.isSet() {
		return false
	}
	t.limit(s.Within)
	return true
}

// backward undoes the steps from the i-th down, until a step has to wait.
func (t *turn[S]) backward(i int) {
	t.inst.state = Compensating
	for ; i >= 0; i-- {
		s := &t.plan.steps[i]
		if !s.Undo.isSet() {
			continue
		}
		t.enter(s)
		if s.Undo.local != nil {
			t.local = s.Undo.local
			return
		}
		t.send(s, toUndo)
		return
	}
	t.end(Undone, t.plan.ended.Undone)
}

// enter makes s the pending step.
func (t *turn[S]) enter(s *Step[S]) {
	t.inst.step, t.inst.run, t.inst.deadline, t.waits = s.Name, 1, time.Time{}, true
}

// limit sets the deadline of the pending step.
func (t *turn[S]) limit(within time.Duration) {
	t.inst.deadline, t.waits = time.Time{}, true
	if within > 0 {
		t.inst.deadline = t.now.Add(within).Truncate(time.Microsecond)
	}
}

// end ends the instance, and writes the event that announces the end.
func (t *turn[S]) end(state State, announce Action[S]) {
	t.inst.state, t.inst.deadline, t.waits = state, time.Time{}, true
	t.announce(announce)
}

// announce writes the event that announces the end. It answers another saga's Undo, if there is
// one, and otherwise the event that began the instance.
func (t *turn[S]) announce(end Action[S]) {
	if end.eventType == "" {
		return
	}
	ev := t.event(end.eventType, end.data(&t.inst.data))
	ev.ID = t.stepKey("") + ":ended"
	ev.CausationID = cmp.Or(t.inst.undoCause, t.inst.cause, ev.CausationID)
	t.events = append(t.events, ev)
}

// announceAgain announces the end of an instance that has ended, as the answer to the event that led
// to this turn.
func (t *turn[S]) announceAgain() {
	end := t.plan.ended.Undone
	if t.inst.state == Done {
		end = t.plan.ended.Done
	}
	t.announce(end)
	for i := range t.events { // one, or none if no event announces this end
		t.touched = true
		t.events[i].ID, t.events[i].CausationID = t.events[i].ID+":"+t.cause, t.cause
	}
}

// isUndo reports whether the event undo is the Undo of the step whose Do is the event begun.
func isUndo(undo, begun string) bool {
	step, _, _ := strings.Cut(undo, ":")
	_, undoes := isCommand(undo, step, toUndo)
	_, does := isCommand(begun, step, toDo)
	return undoes && does
}

// isAgain reports whether the event again is another command to do the step whose Do is the event
// begun.
func isAgain(again, begun string) bool {
	step, _, _ := strings.Cut(again, ":")
	_, does := isCommand(again, step, toDo)
	_, did := isCommand(begun, step, toDo)
	return does && did && again != begun
}

// event returns an event of the instance. Its cause is the event that led to this turn.
func (t *turn[S]) event(eventType string, data any) postroom.Event {
	ev := postroom.NewEvent(eventType, data)
	if t.plan.prefix != "" {
		ev.Subject = t.plan.prefix + "." + eventType
	}
	ev.Key, ev.CorrelationID, ev.CausationID = t.inst.key, t.inst.correlation, t.cause
	ev.TraceParent, ev.TraceState = t.trace.Parent, t.trace.State
	return ev
}

// The headers of a command.
const (
	stepHeader = "saga-step" // the StepKey
	sagaHeader = "saga"      // for people: the saga and the step
)

// send writes the command of a step in a direction.
func (t *turn[S]) send(s *Step[S], d direction) {
	action := s.Do
	if d == toUndo {
		action = s.Undo
	}
	key := t.stepKey(s.Name)
	ev := t.event(action.eventType, action.data(&t.inst.data))
	ev.ID = commandID(key, d, t.inst.run)
	ev.Headers = map[string]string{stepHeader: key, sagaHeader: t.plan.name + " " + s.Name}
	t.events = append(t.events, ev)
	if last := len(t.history) - 1; last < 0 || t.history[last].command.id != "" {
		t.record(s.Name, d, wasSent, "", "")
	}
	t.history[len(t.history)-1].command = command{s.Name, ev.Type, ev.ID}
}

// localEnded continues after the Local function of the pending step has returned err. If localEnded
// itself returns an error, the caller must not store the turn.
func (t *turn[S]) localEnded(err error) error {
	t.local = nil
	i := t.plan.find(t.inst.step)
	s, d := &t.plan.steps[i], t.direction()
	var gaveUp *giveUp
	switch {
	//guard:an-undo-cannot-give-up 2 true
	case err != nil && d == toDo && errors.As(err, &gaveUp) && !isContention(err):
		t.record(s.Name, d, wasGivenUp, "", "")
		t.inst.note = fmt.Sprintf("step %s: %v", s.Name, err)
		t.backward(i - 1)
	case err != nil:
		return fmt.Errorf("step %s: %w", s.Name, err)
	case d == toUndo:
		t.record(s.Name, d, wasLocal, "", "")
		t.backward(i - 1)
	default:
		t.record(s.Name, d, wasLocal, "", "")
		if !t.started(s) {
			t.forward(i + 1)
		}
	}
	t.arm()
	return nil
}

// isContention reports whether a transaction failed because of another transaction: a deadlock, a
// serialization failure, or a lock that it did not get in time.
func isContention(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01" || pg.Code == "55P03")
}

// outcome says what an event means for an instance.
type outcome string

const (
	counts  outcome = "counted"
	late    outcome = "late"    // a reply to an earlier command, or a second reply
	foreign outcome = "foreign" // not a reply to a command of the instance
	stale   outcome = "stale"   // a deadline or decision that no longer matters
	refused outcome = "refused" // a decision that no operator made
)

// reply handles an event that may be an answer to the pending step.
func (t *turn[S]) reply(ev postroom.Event) (outcome, error) {
	i := t.plan.find(t.inst.step)
	s, d := &t.plan.steps[i], t.direction()
	own := s // the step whose command ev answers; usually it is the pending step
	if !strings.HasPrefix(ev.CausationID, t.stepKey(s.Name)+":") {
		own = t.ownStep(ev.CausationID)
	}
	if own != nil {
		run, ok := isCommand(ev.CausationID, t.stepKey(s.Name), d)
		//guard:a-reply-names-its-command = @1 || @2 && @3.1 > 99 || @3
		//guard:nothing-counts-after-the-end 1 false
		//guard:a-second-command-from-the-future 3 = @1 > 99
		if t.inst.state.Ended() || !ok || run > t.inst.run {
			return t.noted(ev, own), nil
		}
		found := t.answer(s, d, ev.Type, false)
		if found == nil {
			return "", fmt.Errorf("%w: step %s does not know %s as a reply to its command: add it to the step, or correct the participant", errLasting, s.Name, ev.Type)
		}
		return counts, t.apply(i, d, found, ev)
	}
	if found := t.answer(s, d, ev.Type, true); found != nil && !t.inst.state.Ended() {
		return counts, t.apply(i, d, found, ev)
	}
	return t.noted(ev, nil), nil
}

// answer returns the step's answer for this event type, from Done or Failed. If the step is being
// undone, the answer is from Undone. If the step expects no such event, the result is nil.
func (t *turn[S]) answer(s *Step[S], d direction, eventType string, anyCause bool) *answer[S] {
	if d == toUndo {
		return s.Undone.find(eventType, anyCause)
	}
	if found := s.Done.find(eventType, anyCause); found != nil {
		return found
	}
	return s.Failed.find(eventType, anyCause)
}

// noted notes an event that does not count, and returns its outcome.
func (t *turn[S]) noted(ev postroom.Event, own *Step[S]) outcome {
	t.touched = true
	if own != nil {
		t.inst.note = fmt.Sprintf("%s %s came late or twice: it answers step %s", ev.Type, ev.ID, own.Name)
		return late
	}
	t.inst.note = fmt.Sprintf("%s %s was not caused by a command of this process; a participant answers with Follow", ev.Type, ev.ID)
	return foreign
}

// apply applies an answer to the i-th step, and continues.
func (t *turn[S]) apply(i int, d direction, a *answer[S], ev postroom.Event) error {
	s := &t.plan.steps[i]
	if err := a.apply(&t.inst.data, ev.Data); err != nil {
		return fmt.Errorf("%w: step %s: %s: %w", errLasting, s.Name, ev.Type, err)
	}
	t.change()
	switch {
	case d == toUndo:
		t.record(s.Name, d, wasUndone, ev.Type, ev.ID)
		t.leave(i, d)
	case a == s.Failed.find(ev.Type, false):
		t.record(s.Name, d, wasFailed, ev.Type, ev.ID)
		t.fail(i, a)
	default:
		t.record(s.Name, d, wasDone, ev.Type, ev.ID)
		t.leave(i, d)
	}
	t.arm()
	return nil
}

// leave continues after the i-th step.
func (t *turn[S]) leave(i int, d direction) {
	if d == toUndo {
		t.backward(i - 1)
	} else {
		t.forward(i + 1)
	}
}

// fail begins to compensate because the i-th step failed. Usually the participant says that the
// step had no effect. But the effect is unknown if another service says that the step failed, if
// the command is dead, if the step ran a local function, or if an operator sent its command again.
// Then the step's own Undo comes first.
func (t *turn[S]) fail(i int, a *answer[S]) {
	//guard:a-dead-command-is-undone 2 false
	//guard:a-failure-of-the-second-command 4 false
	//guard:a-failure-of-any-cause 1 false
	//guard:a-failure-of-an-earlier-run 4 false
	if a.anyCause || a.died || t.plan.steps[i].Do.local != nil || t.inst.run > 1 {
		t.backward(i)
	} else {
		t.backward(i - 1)
	}
}

// alarm is the data of an event of type deadline.
type alarm struct {
	At time.Time `json:"at"`
}

// arm schedules the alarm of the instance, an event that comes at the deadline. If the instance
// already has an alarm that comes at the deadline or earlier, the method schedules no other alarm.
// If an alarm comes too early, the method ring calls arm again. An alarm whose time is over may
// have been lost, so it does not count. If the pending step sent a command, that command is the
// alarm's cause, so that the events of a process form one tree.
func (t *turn[S]) arm() {
	due, set := t.inst.deadline, t.inst.alarm
	//guard:a-lost-deadline-is-written-again 3.1 = !@0.1.IsZero()
	if t.local != nil || due.IsZero() || set.After(t.now) && !set.After(due) {
		return
	}
	t.armAt(due)
}

// armAt schedules an alarm.
func (t *turn[S]) armAt(at time.Time) {
	t.inst.alarm = at
	ev := t.event(t.plan.name+deadlineSuffix, alarm{at.UTC()})
	ev.ID = fmt.Sprintf("%s:deadline:%d:%d", t.stepKey(""), at.UnixMicro(), t.now.UnixMicro())
	ev.NotBefore = at
	if i := t.plan.find(t.inst.step); t.plan.steps[i].Do.eventType != "" {
		ev.CausationID = commandID(t.stepKey(t.inst.step), toDo, t.inst.run)
	}
	t.events = append(t.events, ev)
}

// The first alarm at or after the deadline decides nothing: it only schedules another one, which comes
// behind all that was in the stream before. For an answer that was committed in time may still be on
// its way to the saga, or another worker may have just begun with it. If the first alarm comes much
// later than the deadline, the relay or the saga's handler was away, or has a backlog. Then the second
// one comes after a longer time. If the answer is in held, because an attempt failed or was made by an
// older program, each alarm schedules another one behind the next attempt.
const (
	mostLate  = 2 * time.Second
	grace     = 500 * time.Millisecond
	longGrace = 5 * time.Second
)

// ring handles an event of type deadline. The result over says whether the time of the pending step is
// over: then the caller calls tooLate, or armAt if an answer is in held.
func (t *turn[S]) ring(a alarm) (out outcome, over bool) {
	//guard:a-deadline-is-compared 2 false
	if t.inst.alarm.IsZero() || !a.At.Equal(t.inst.alarm) {
		return stale, false
	}
	t.touched = true
	t.inst.alarm = time.Time{}
	if t.inst.state != Running || t.inst.deadline.IsZero() {
		return counts, false
	}
	if t.now.Before(t.inst.deadline) {
		t.arm()
		return counts, false
	}
	//guard:a-deadline-rings-twice false
	if !a.At.After(t.inst.deadline) {
		wait := grace
		//guard:a-late-deadline-rings-later false
		if t.now.Sub(t.inst.deadline) > mostLate {
			wait = longGrace
		}
		t.armAt(t.now.Add(wait))
		return counts, false
	}
	return counts, true
}

// tooLate begins to compensate, because the time of the pending step is over.
func (t *turn[S]) tooLate() {
	t.change()
	i := t.plan.find(t.inst.step)
	t.record(t.inst.step, toDo, wasTooLate, "", t.cause)
	//guard:a-deadline-undoes-its-own-step 1 = @ - 1
	t.backward(i)
	t.arm()
}

// answers returns the types of the events that end the pending step.
func (t *turn[S]) answers() []string {
	s := &t.plan.steps[t.plan.find(t.inst.step)]
	return append(s.Done.types(), s.Failed.types()...)
}
