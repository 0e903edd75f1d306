package saga

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/jcs"
	"github.com/postroom/postroom/internal/lent"
	"github.com/postroom/postroom/internal/session"
	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/internal/telemetry"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/schema"
)

var (
	// ErrConflict says that an instance with this key exists, and that it began with another input.
	ErrConflict = errors.New("an instance with this key began with another input")

	// ErrUnknown says that there is no instance with this key.
	ErrUnknown = errors.New("there is no such instance")
)

// Saga begins instances and handles their events. It is a postroom.Handler for an inbox, and safe
// for concurrent use.
type Saga[S any] struct {
	def     Definition[S]
	plans   map[int]*plan[S] // the versions of the definition, by number
	pool    *pgxpool.Pool
	out     *outbox.Outbox
	table   *table
	err     error // the fault of the definition
	signals *signals
}

// New returns a saga, which has its tables in the schema of the outbox. It does no I/O and cannot fail:
// [Saga.Check] and all other methods return the faults of the definition and of the outbox's Config.
// The pool is for Check and [Saga.Status].
func New[S any](pool *pgxpool.Pool, out *outbox.Outbox, d Definition[S]) *Saga[S] {
	d.complete()
	name, err := schema.DefaultName, faultOf(out)
	if err == nil {
		//guard:a-saga-has-the-schema-of-its-outbox remove
		name = out.Schema()
	}
	g := &Saga[S]{def: d, plans: make(map[int]*plan[S]), pool: pool, out: out, table: &table{saga: d.Name, schema: name}, signals: newSignals(d.MeterProvider)}
	for _, p := range d.plans() {
		g.plans[p.version] = p
	}
	if err = errors.Join(err, d.validate()); err != nil {
		g.err = fmt.Errorf("saga %s: %w", d.Name, err)
	}
	if g.err == nil {
		g.table.sql = sqlfile.Map(written, func(sql string) string { return schema.In(name, sql) })
	}
	return g
}

// faultOf returns the fault of an outbox's Config. Without an event, Queue only looks for that.
func faultOf(out *outbox.Outbox) error {
	if out == nil {
		return errors.New("there is no outbox")
	}
	return out.Queue(new(pgx.Batch))
}

// Types returns the types of all events that the saga handles, sorted. A subscription without Types
// takes them from here. If the events come from several streams, give each subscription its part of
// the types, and the same saga as the handler.
func (g *Saga[S]) Types() []string {
	all := map[string]bool{g.def.Name + deadlineSuffix: true, g.def.Name + decisionSuffix: true}
	for _, p := range g.plans {
		p.types(all)
	}
	if g.def.Start.isSet() {
		all[g.def.Start.eventType] = true
	}
	types := make([]string, 0, len(all))
	for t := range all {
		types = append(types, t)
	}
	slices.Sort(types)
	return types
}

// Begin begins an instance in the caller's transaction, and writes its first command. If steps with
// a Local function come before that command, these functions run in the same transaction. The key
// names the thing that the process is about. All events of the process have this key.
//
// If an instance with the key exists, running or ended, and it began with the same state, Begin
// changes nothing and returns nil. If it began with another state, Begin returns [ErrConflict]. The
// instance and its step are stored when tx commits. After any error the caller must roll back.
//
// Use a key for one process only, for ever: the saga derives the ids of commands from the key, and
// participants recognise these ids even after the instance was removed. Begin compares states as
// JSON. So if S gets a new field, a repeated call of Begin returns ErrConflict, except if the field
// has omitempty and is empty. Begin refuses a state that JSON changes, such as a large int64 in a
// field of type any.
func (g *Saga[S]) Begin(ctx context.Context, tx pgx.Tx, key string, s S) error {
	if g.err != nil {
		return g.err
	}
	input, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("saga %s: begin: encode the state: %w", g.def.Name, err)
	}
	if err := g.begin(ctx, tx, key, s, input, causeOf(ctx)); err != nil {
		return fmt.Errorf("saga %s: begin: %w", g.def.Name, err)
	}
	return nil
}

type causeKey struct{}

// WithCause returns a context that tells [Saga.Begin] and [Saga.Compensate] which event led to the
// call. Use it in a handler of that event. The event is then the cause of the commands that follow.
// With Begin, the process also gets the event's correlation id, and [End] answers the event.
func WithCause(ctx context.Context, ev postroom.Event) context.Context {
	return context.WithValue(ctx, causeKey{}, cause{id: ev.ID, correlation: cmp.Or(ev.CorrelationID, ev.ID)})
}

// cause is the event that led to a call. It is zero if there is no such event.
type cause struct{ id, correlation string }

func causeOf(ctx context.Context) cause {
	c, _ := ctx.Value(causeKey{}).(cause)
	return c
}

// begin begins an instance. The input is the JSON of Begin's state, or the event's data.
func (g *Saga[S]) begin(ctx context.Context, tx pgx.Tx, key string, s S, input []byte, start cause) error {
	if err := (postroom.Event{Type: g.def.Name, Source: "check", Key: key}).Validate(); err != nil || key == "" {
		return fmt.Errorf("%w: the key of an instance must be a valid key of events, and not empty: %w", errLasting, cmp.Or(err, errNoKey))
	}
	sum := sha256.Sum256(input)
	p := g.plans[g.def.Version]
	data, err := encode(s, nil)
	if err != nil {
		return err
	}
	inst, err := decode[S](row{
		key: key, version: p.version, state: Running, step: p.steps[0].Name, run: 1, correlation: start.correlation, cause: start.id,
	}, data) // the instance is decoded anew, so that inst shares no memory with the caller's s: the caller may try again with s
	if err != nil {
		return err
	}
	//guard:a-state-that-json-changes-is-refused 2 false
	if inst.before != nil && !same(inst.before.Its, inst.before.Known) {
		return fmt.Errorf("%w: the state is another one after it was encoded and decoded as JSON. A field of type any, for instance, loses digits of a number above 2^53: use json.Number, or a type of your own", errLasting)
	}
	//guard:a-state-that-is-not-utf8-is-refused 2 false
	if inst.before != nil && bytes.Count(inst.before.Its, replaced) != bytes.Count(inst.before.Known, replaced) {
		return fmt.Errorf("%w: a text of the state is not UTF-8, and JSON would change it: use a []byte", errLasting)
	}
	m, err := g.table.insert(ctx, tx, &inst.row, data, sum[:])
	if errors.Is(err, pgx.ErrNoRows) {
		return g.begun(ctx, tx, key, sum[:], start.id)
	}
	if err != nil {
		return err
	}
	t := &turn[S]{moment: m, plan: p, inst: inst, cause: start.id, trace: telemetry.TraceOf(ctx)}
	t.begin()
	return g.finish(ctx, tx, t)
}

// replaced is what package json writes in the place of bytes that are not UTF-8. It writes the
// character U+FFFD itself as it is.
var replaced = []byte(`\ufffd`)

var errNoKey = errors.New("the key is empty")

// same reports whether two JSON documents have the same values.
func same(a, b []byte) bool {
	one, errOne := jcs.Form(a, jcs.Exact)
	other, errOther := jcs.Form(b, jcs.Exact)
	return errOne == nil && errOther == nil && bytes.Equal(one, other)
}

// begun compares the digest of the input with the digest that the existing instance has. If another
// saga's step began the instance and its operator has the command sent again, the end answers that
// command too.
func (g *Saga[S]) begun(ctx context.Context, tx pgx.Tx, key string, sum []byte, cause string) error {
	before, first, err := g.table.input(ctx, tx, key)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return errors.New("the instance has just been removed; try again")
	case err != nil:
		return err
	//guard:begin-compares-the-input false
	case !bytes.Equal(before, sum):
		return fmt.Errorf("%w: saga %s, key %s", ErrConflict, g.def.Name, key)
	//guard:a-nested-saga-answers-a-retry 1 false
	case !isAgain(cause, first):
		return nil
	}
	m, r, data, err := g.table.lock(ctx, tx, key)
	if err != nil {
		return err
	}
	if r == nil || !r.state.Ended() { // otherwise the end is still to come: it answers the first command, which is enough
		return nil
	}
	t, err := g.turnOf(ctx, m, r, data, cause)
	if err != nil {
		return err
	}
	t.announceAgain()
	return g.finish(ctx, tx, t)
}

// Compensate begins to undo an instance, in the caller's transaction, for example because the
// customer cancels. If apply is not nil, Compensate first calls this function, which may change the
// state. The first step to undo is the pending step, whose outcome is unknown. If that step has no
// Undo, its effects stay. If the instance already undoes its steps, or is undone, Compensate does
// not call apply, undoes nothing more and returns nil. If the instance is done, Compensate returns
// [ErrOver]. If there is no such instance, Compensate returns [ErrUnknown].
//
// If another saga's step began the instance, call Compensate for the Undo of that step, with
// [WithCause]. The Undone event of [End] then answers the Undo, even if the instance already undoes
// its steps. If the instance is undone, Compensate writes that event once more, as the answer.
func (g *Saga[S]) Compensate(ctx context.Context, tx pgx.Tx, key string, apply func(*S)) error {
	if g.err != nil {
		return g.err
	}
	if err := g.compensate(ctx, tx, key, apply); err != nil {
		return fmt.Errorf("saga %s: compensate key %s: %w", g.def.Name, key, err)
	}
	return nil
}

func (g *Saga[S]) compensate(ctx context.Context, tx pgx.Tx, key string, apply func(*S)) error {
	m, r, data, err := g.table.lock(ctx, tx, key)
	if err != nil {
		return err
	}
	if r == nil {
		return ErrUnknown
	}
	cause := causeOf(ctx).id
	//guard:only-the-undo-of-the-start-is-answered 1 true
	answers := isUndo(cause, r.cause) && cause != r.undoCause
	switch {
	case r.state == Done:
		return fmt.Errorf("it is done: %w", ErrOver)
	case r.state != Running && !answers:
		return nil
	}
	t, err := g.turnOf(ctx, m, r, data, cause)
	if err != nil {
		return err
	}
	if apply != nil && r.state == Running {
		apply(&t.inst.data)
	}
	if answers {
		//guard:a-nested-saga-answers-the-undo 2 = t.inst.undoCause
		t.touched, t.inst.undoCause = true, cause
	}
	switch r.state {
	case Running:
		t.compensate()
	case Undone:
		//guard:a-nested-saga-that-is-undone-answers-again remove
		t.announceAgain()
	}
	return g.finish(ctx, tx, t)
}

// turnOf returns the reaction of an instance to an event or call.
func (g *Saga[S]) turnOf(ctx context.Context, m moment, r *row, data []byte, cause string) (*turn[S], error) {
	p, err := g.planOf(r)
	//guard:an-ended-instance-of-another-version-answers 2 false
	if err != nil && r.state.Ended() { // Older need not have its version, and its end is announced as an instance of this version announces it
		p, err = g.plans[g.def.Version], nil
	}
	if err != nil {
		return nil, err
	}
	inst, err := decode[S](*r, data)
	if err != nil {
		return nil, err
	}
	return &turn[S]{moment: m, plan: p, inst: inst, cause: cause, trace: telemetry.TraceOf(ctx)}, nil
}

// planOf returns the version of the definition with which an instance began.
func (g *Saga[S]) planOf(r *row) (*plan[S], error) {
	//guard:a-saga-keeps-its-version 2 = g.def.Version
	p := g.plans[r.version]
	if p == nil {
		return nil, fmt.Errorf("this process does not know version %d; run a program that has it in Older", r.version)
	}
	if p.find(r.step) < 0 {
		return nil, fmt.Errorf("this process does not know step %s of version %d; run the program that has it", r.step, r.version)
	}
	return p, nil
}

// unknownVersion is how long an event waits for a process that knows the version of its instance.
const unknownVersion = 5 * time.Second

// Handle handles one event of the saga. The inbox calls this method.
func (g *Saga[S]) Handle(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	if g.err != nil {
		return g.err
	}
	err := g.handle(ctx, tx, ev)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("saga %s: %w", g.def.Name, err)
	if errors.Is(err, errLasting) || errors.Is(err, ErrConflict) {
		return postroom.Permanent(err)
	}
	return err
}

func (g *Saga[S]) handle(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	if g.def.Start.isSet() && ev.Type == g.def.Start.eventType {
		return g.start(ctx, tx, ev)
	}
	if ev.Key == "" {
		return fmt.Errorf("%w: %s has no key, so it belongs to no instance", errLasting, ev.Type)
	}
	m, r, data, err := g.table.lock(ctx, tx, ev.Key)
	if err != nil {
		return err
	}
	if r == nil {
		return g.withoutInstance(ctx, tx, ev)
	}
	p, err := g.planOf(r)
	if err != nil && r.state.Ended() { // an old deadline, or a late reply: the instance has ended, and this program no longer has its version
		g.signals.ignored(ctx, g.def.Name, stale)
		return nil
	}
	if err != nil {
		return postroom.Snooze(unknownVersion, err)
	}
	inst, err := decode[S](*r, data)
	if err != nil {
		return err
	}
	t := &turn[S]{moment: m, plan: p, inst: inst, cause: ev.ID, trace: telemetry.TraceOf(ctx)}
	out, err := g.apply(ctx, tx, t, ev)
	if err != nil {
		return err
	}
	if err := g.finish(ctx, tx, t); err != nil {
		return err
	}
	if out != counts {
		g.signals.ignored(ctx, g.def.Name, out)
	} else {
		g.signals.stepEnded(ctx, g.def.Name, t.history, m.now.Sub(r.waitsSince))
	}
	return nil
}

// apply applies an event to an instance.
func (g *Saga[S]) apply(ctx context.Context, tx pgx.Tx, t *turn[S], ev postroom.Event) (outcome, error) {
	switch ev.Type {
	case g.def.Name + deadlineSuffix:
		var a alarm
		if err := ev.JSON(&a); err != nil {
			return "", err
		}
		out, over := t.ring(a)
		if !over {
			return out, nil
		}
		next, err := g.table.answered(ctx, tx, t.inst.row, t.answers())
		switch {
		case err != nil:
			return "", err
		//guard:an-answer-that-is-tried-again-comes-first false
		case !next.IsZero():
			t.armAt(next.Add(longGrace))
		default:
			t.tooLate()
		}
		return out, nil
	case g.def.Name + decisionSuffix:
		d, err := g.table.decision(ctx, tx, ev)
		if errors.Is(err, errForged) {
			t.touched, t.inst.note = true, fmt.Sprintf("decision %s was refused: %v", ev.ID, err)
			return refused, nil
		}
		if err != nil {
			return "", err
		}
		return t.decide(d)
	}
	out, err := t.reply(ev)
	if err != nil || out != late {
		return out, err
	}
	wrote, err := g.table.wrote(ctx, tx, ev.CausationID)
	//guard:a-reply-from-the-future = @ && t.inst.state == Running
	if err == nil && !wrote {
		err = fmt.Errorf("%w: %s answers command %s, which the instance has not written; it is at step %s", errAhead, ev.Type, ev.CausationID, t.inst.step)
	}
	return out, err
}

// errAhead says that an event answers a command that the instance has not written, because the
// database was restored from an earlier time.
var errAhead = errors.New("the instance has not come to that step; the database was restored")

// start begins an instance because of an event.
func (g *Saga[S]) start(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	key, s, err := g.def.Start.begin(ev.Data)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errLasting, ev.Type, err)
	}
	return g.begin(ctx, tx, cmp.Or(key, ev.Key), s, ev.Data, causeOf(WithCause(ctx, ev)))
}

// withoutInstance handles an event whose key no instance has. If the event is a reply to a command
// of this saga, the instance was removed, or the database was restored.
func (g *Saga[S]) withoutInstance(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	//guard:a-deadline-outlives-its-instance 1 false
	if ev.Type == g.def.Name+deadlineSuffix || ev.Type == g.def.Name+decisionSuffix {
		g.signals.ignored(ctx, g.def.Name, stale) // the instance ended long ago
		return nil
	}
	m, err := g.table.owner(ctx, tx)
	if err != nil {
		return err
	}
	for _, p := range g.plans {
		t := turn[S]{moment: m, plan: p, inst: &instance[S]{row: row{key: ev.Key}}}
		//guard:a-lost-instance-is-noticed false
		if own := t.ownStep(ev.CausationID); own != nil {
			return fmt.Errorf("%s answers step %s of key %s, but there is no such instance: it was removed, or the database was restored; begin it again, or discard this reply", ev.Type, own.Name, ev.Key)
		}
	}
	g.signals.ignored(ctx, g.def.Name, foreign)
	return nil
}

// finish runs the Local functions of a turn, and stores the turn.
func (g *Saga[S]) finish(ctx context.Context, tx pgx.Tx, t *turn[S]) error {
	for t.local != nil {
		began := time.Now()
		//guard:what-gives-up-is-rolled-back = (@3)(@2)
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return lend(ctx, tx, t.local, &t.inst.data) })
		//guard:a-slow-local-function-takes-no-time-from-the-next-step remove
		t.now = t.now.Add(time.Since(began)) // the next step has its whole time
		if err := t.localEnded(err); err != nil {
			return err
		}
	}
	if !t.changed && !t.touched {
		return nil
	}
	return g.store(ctx, tx, t)
}

// errOwned is the error of Commit and Rollback of the transaction of a Local function.
var errOwned = errors.New("saga: the saga ends the transaction of a Local function; return nil to go on, GiveUp or another error to roll back")

// lend runs a Local function, and takes the transaction back. Otherwise a goroutine of the function
// could use the connection while the saga goes on, and write what does not belong to the step.
func lend[S any](ctx context.Context, tx pgx.Tx, local func(context.Context, pgx.Tx, *S) error, s *S) (err error) {
	seen := new(settings)
	loan := lent.New(tx, errOwned, seen)
	//guard:a-local-function-that-panics-gives-the-transaction-back remove
	defer func() { // even if the function panics
		//guard:a-local-function-gives-the-transaction-back false
		if !loan.Back(lent.Grace(0)) {
			loan.Cut()
			err = errors.Join(lent.ErrStillUsed, err)
		}
		//guard:a-saga-writes-in-its-own-encoding false
		if err == nil && seen.changed.Load() {
			_, err = tx.Exec(ctx, session.FormatsSQL)
		}
	}()
	return local(ctx, loan, s)
}

// settings notes whether a Local function may have changed the encoding or the formats of its
// transaction. It implements lent.Watcher.
type settings struct{ changed atomic.Bool }

func (s *settings) See(sql string, _ []any) {
	if session.See(sql)&(session.Local|session.Settings) != 0 {
		s.changed.Store(true)
	}
}

func (s *settings) Unseen()      { s.changed.Store(true) }
func (s *settings) Failed(error) {}

// store stores a turn: the row, the history and the events, in one round trip.
func (g *Saga[S]) store(ctx context.Context, tx pgx.Tx, t *turn[S]) error {
	data, err := encode(t.inst.data, t.inst.before)
	if err != nil {
		return err
	}
	var batch pgx.Batch
	g.table.save(&batch, t.inst.row, t.before(), data, t.waits)
	g.table.record(&batch, t.inst.row, t.history)
	if t.inst.state.Ended() && t.changed {
		g.table.expire(&batch, g.def.Keep)
	}
	if len(t.events) > 0 {
		if err := g.out.Queue(&batch, t.events...); errors.Is(err, postroom.ErrInvalidEvent) {
			return fmt.Errorf("%w: write commands: %w", errLasting, err)
		} else if err != nil {
			return fmt.Errorf("write commands: %w", err)
		}
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("store the step: %w", g.table.explain(err, tx))
	}
	return nil
}
