package saga

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/sqlfile"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the statements of this package, for one schema. Each has a file in sql.
type statements struct {
	Begin, Input, Lock, Save, Record, Expire, Decided string // of a Saga
	Defined, Define, Unended, Status                  string
	List, Show, Steps, Decide                         string // of a Store
}

var written = sqlfile.MustRead[statements](files)

// row is a row of table saga that is locked, or says that there is none.
type row struct {
	owner       [16]byte
	now         time.Time
	exists      bool
	version     int
	state       State
	step        string
	run         int
	revision    int64
	data        []byte
	correlation string
	cause       string
	waitsSince  time.Time
	deadline    time.Time
	alarm       time.Time
	note        string
	key         string
}

// lock locks the row of an instance.
func (g *Saga[S]) lock(ctx context.Context, tx pgx.Tx, key string) (row, error) {
	r := row{key: key}
	var version, run *int
	var state, step, correlation, cause, note *string
	var revision *int64
	var waits, deadline, alarm *time.Time
	err := tx.QueryRow(ctx, g.sql.Lock, g.def.Name, key).
		Scan(&r.owner, &r.now, &version, &state, &step, &run, &revision, &r.data, &correlation, &cause, &waits, &deadline, &alarm, &note)
	if err != nil {
		return row{}, fmt.Errorf("lock the instance: %w", g.advise(err, tx))
	}
	if version == nil {
		return r, nil
	}
	r.exists, r.version, r.state, r.step, r.run, r.revision = true, *version, State(*state), *step, *run, *revision
	r.correlation, r.cause, r.waitsSince, r.note = *correlation, or(cause), *waits, or(note)
	r.deadline, r.alarm = or(deadline), or(alarm)
	return r, nil
}

// decode returns the instance of a row.
func decode[S any](r row) (*instance[S], error) {
	inst := &instance[S]{
		key: r.key, state: r.state, step: r.step, run: r.run, revision: r.revision, correlation: r.correlation, cause: r.cause,
		deadline: r.deadline, alarm: r.alarm, note: r.note,
	}
	if err := json.Unmarshal(r.data, &inst.data); err != nil {
		return nil, fmt.Errorf("%w: decode the state of key %s as %T: %w", errLasting, r.key, inst.data, err)
	}
	return inst, nil
}

// ErrTooLarge says that a state takes more than 960 KiB. It is a permanent failure.
var ErrTooLarge = errors.New("the state is too large")

// errLasting marks failures that another attempt would repeat.
var errLasting = errors.New("cannot go on")

// encode returns the bytes of a state.
func encode[S any](s S) ([]byte, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("%w: encode the state: %w", errLasting, err)
	}
	if len(data) > postroom.MaxData {
		return nil, fmt.Errorf("%w: %w: %d bytes, and %d are allowed", errLasting, ErrTooLarge, len(data), postroom.MaxData)
	}
	return data, nil
}

// store stores a turn: the row, the history and the events, in one round trip.
func (g *Saga[S]) store(ctx context.Context, tx pgx.Tx, t *turn[S]) error {
	inst := t.inst
	data, err := encode(inst.data)
	if err != nil {
		return err
	}
	var batch pgx.Batch
	batch.Queue(g.sql.Save, g.def.Name, inst.key, inst.state, inst.step, inst.run, inst.revision, data, t.waits, given(inst.deadline), given(inst.alarm),
		given(inst.note), inst.state.Ended())
	if len(t.history) > 0 {
		var steps, directions, what, types, events []string
		for _, h := range t.history {
			steps, directions, what = append(steps, h.step), append(directions, string(h.direction)), append(what, h.what)
			types, events = append(types, h.eventType), append(events, h.eventID)
		}
		batch.Queue(g.sql.Record, g.def.Name, inst.key, inst.revision, steps, directions, what, types, events)
	}
	if t.begins {
		batch.Queue(g.sql.Expire, g.def.Name, g.def.Keep)
	}
	if len(t.events) > 0 {
		if err := g.out.Queue(&batch, t.events...); err != nil {
			return fmt.Errorf("%w: write commands: %w", errLasting, err)
		}
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("store the step: %w", g.advise(err, tx))
	}
	return nil
}

// errForged says that an event of type decision is not an operator's.
var errForged = errors.New("the audit has no such decision")

// decision reads an operator's decision. Anybody who may publish could write such an event, so it
// counts only if the audit has it too.
func (g *Saga[S]) decision(ctx context.Context, tx pgx.Tx, ev postroom.Event) (decided, error) {
	sum := sha256.Sum256(ev.Data)
	var known bool
	if err := tx.QueryRow(ctx, g.sql.Decided, ev.Source, ev.ID, hex.EncodeToString(sum[:])).Scan(&known); err != nil {
		return decided{}, fmt.Errorf("look up the decision: %w", g.advise(err, tx))
	}
	if !known {
		return decided{}, errForged
	}
	var d decided
	if err := ev.JSON(&d); err != nil {
		return decided{}, err
	}
	if d.Saga != g.def.Name || d.Key != ev.Key {
		return decided{}, fmt.Errorf("%w for this instance", errForged)
	}
	return d, nil
}

// given is a value, or NULL if it is zero.
func given[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}

// or is a value, or zero for NULL.
func or[T any](v *T) (value T) {
	if v != nil {
		value = *v
	}
	return value
}
