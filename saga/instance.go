package saga

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/clock"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/internal/sqlfile"
	"github.com/postroom/postroom/saga/internal/merge"
)

//go:embed sql/*.sql
var files embed.FS

// statements has the statements of this package for one schema. Each has a file in sql.
type statements struct {
	Owner                                             string
	Begin, Input, Lock, Save, Record, Expire, Decided string // for the type Saga
	Defined, Define, Stuck, Unended, Wrote, Status    string
	Answered, StuckLater                              string
	List, ListStuck, ListKey, ListSagas               string // for the type Store
	Show, Steps, Decide                               string
}

var written = sqlfile.MustRead[statements](files)

// row is a row of the table saga, without the column data, which is the user's state.
type row struct {
	key         string
	version     int
	state       State
	step        string
	run         int
	revision    int64
	correlation string
	cause       string // the event that began the instance
	undoCause   string // the command of another saga to undo the instance; its step began the instance
	waitsSince  time.Time
	deadline    time.Time
	alarm       time.Time
	note        string // a note to store; if it is empty, the old note stays
}

// table has the instances of a saga in a database.
type table struct {
	saga   string
	schema string
	sql    statements
	ends   atomic.Int64 // how many instances this Saga value has ended; see expireEvery
}

// explain adds advice to an error of the database, which the connection db returned.
func (tb *table) explain(err error, db any) error {
	return remedy.Explain(err, remedy.Use{Grant: "sagas", Schema: tb.schema, DB: db})
}

// insert stores a new instance, and sets r.correlation. It returns pgx.ErrNoRows if the instance
// exists.
func (tb *table) insert(ctx context.Context, tx pgx.Tx, r *row, data, input []byte) (m moment, err error) {
	err = tx.QueryRow(ctx, tb.sql.Begin, tb.saga, r.key, r.version, r.step, data, input, r.correlation, given(r.cause)).
		Scan(&m.owner, &m.now, &r.correlation)
	if err != nil {
		err = fmt.Errorf("store the instance: %w", tb.explain(err, tx))
	}
	return m, err
}

// wrote reports whether an instance has written a command.
func (tb *table) wrote(ctx context.Context, tx pgx.Tx, command string) (yes bool, err error) {
	if err = tx.QueryRow(ctx, tb.sql.Wrote, command).Scan(&yes); err != nil {
		err = fmt.Errorf("look up the command: %w", tb.explain(err, tx))
	}
	return yes, err
}

// answered returns when the next attempt is due at an event that is in held, has one of the types, and was
// written before the deadline of the instance. Without such an event the time is zero.
func (tb *table) answered(ctx context.Context, tx pgx.Tx, r row, types []string) (time.Time, error) {
	var next *time.Time
	if err := tx.QueryRow(ctx, tb.sql.Answered, r.key, types, r.deadline).Scan(&next); err != nil {
		return time.Time{}, fmt.Errorf("look for an answer that is held: %w", tb.explain(err, tx))
	}
	return or(next), nil
}

// input returns the digest of the input with which an instance began, and the event that began it.
func (tb *table) input(ctx context.Context, tx pgx.Tx, key string) (sum []byte, cause string, err error) {
	var by *string
	err = tx.QueryRow(ctx, tb.sql.Input, tb.saga, key).Scan(&sum, &by)
	if err != nil {
		err = fmt.Errorf("read the instance: %w", tb.explain(err, tx))
	}
	return sum, or(by), err
}

// lock locks the row of an instance and returns it with the instance's state. The row is nil if
// there is no instance.
func (tb *table) lock(ctx context.Context, tx pgx.Tx, key string) (m moment, r *row, data []byte, err error) {
	r = &row{key: key}
	var cause, undoCause *string
	var deadline, alarm *time.Time
	err = tx.QueryRow(ctx, tb.sql.Lock, tb.saga, key).
		Scan(&m.now, &m.owner, &r.version, &r.state, &r.step, &r.run, &r.revision, &data, &r.correlation, &cause, &undoCause, &r.waitsSince, &deadline, &alarm)
	if errors.Is(err, pgx.ErrNoRows) {
		return m, nil, nil, nil
	}
	if err != nil {
		return m, nil, nil, fmt.Errorf("lock the instance: %w", tb.explain(err, tx))
	}
	r.cause, r.undoCause, r.deadline, r.alarm = or(cause), or(undoCause), or(deadline), or(alarm)
	return m, r, data, nil
}

// owner returns the identity of this Postroom.
func (tb *table) owner(ctx context.Context, tx pgx.Tx) (m moment, err error) {
	if err := tx.QueryRow(ctx, tb.sql.Owner).Scan(&m.owner); err != nil {
		return m, fmt.Errorf("read the identity of this Postroom: %w", tb.explain(err, tx))
	}
	return m, nil
}

// save adds to a batch the statement that stores a locked row, which had the revision before. The
// parameter waits says whether the instance begins to wait for a step.
func (tb *table) save(batch *pgx.Batch, r row, before int64, data []byte, waits bool) {
	batch.Queue(tb.sql.Save, tb.saga, r.key, r.state, r.step, r.run, r.revision, data, waits, given(r.deadline), given(r.alarm), given(guard.Clean(r.note, maxNote)), r.state.Ended(), given(r.undoCause), before).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() == 0 { // the row is locked, so this transaction changed it
			return fmt.Errorf("%w: a Local function called Begin or Compensate for the key of its own instance, %s: to undo the instance, return an error of GiveUp", errLasting, r.key)
		}
		return nil
	})
}

// maxNote is how many bytes of a note are stored.
const maxNote = 1000

// record adds statements to a batch: one for each entry of the history of a revision.
func (tb *table) record(batch *pgx.Batch, r row, history []entry) {
	for _, e := range history {
		batch.Queue(tb.sql.Record, tb.saga, r.key, r.revision, e.step, e.direction, e.what, given(e.eventType), given(e.eventID),
			given(e.command.step), given(e.command.eventType), given(e.command.id))
	}
}

// A saga removes old instances when another instance ends, in the same transaction. It skips
// instances that another transaction has locked. A [Saga] value does this when its first instance
// ends, and again after each expireEvery instances that end. Each time it removes at most
// expireBatch old instances.
const (
	expireEvery = 64
	expireBatch = 2 * expireEvery // more than the expireEvery instances that end until the next removal, so that old instances do not pile up
)

// expire counts an instance that ends. For the first of each expireEvery instances, it adds the
// statement that removes old instances.
func (tb *table) expire(batch *pgx.Batch, keep time.Duration) {
	if tb.ends.Add(1)%expireEvery == 1 {
		batch.Queue(tb.sql.Expire, tb.saga, keep, expireBatch, clock.Latest())
	}
}

// errForged says that an event of type decision does not come from an operator.
var errForged = errors.New("no operator made this decision, or another one took its place")

// decision reads an operator's decision. Every client that may publish could write an event that
// looks like a decision. So the event counts only if decide_saga has recorded the decision.
func (tb *table) decision(ctx context.Context, tx pgx.Tx, ev postroom.Event) (d decisionData, err error) {
	sum := sha256.Sum256(ev.Data)
	var known bool
	if err := tx.QueryRow(ctx, tb.sql.Decided, tb.saga, ev.Key, ev.Source, ev.ID, sum[:]).Scan(&known); err != nil {
		return d, fmt.Errorf("look up the decision: %w", tb.explain(err, tx))
	}
	//guard:a-decision-is-an-operators false
	if !known {
		return d, errForged
	}
	return d, ev.JSON(&d)
}

// ErrTooLarge says that a state has more than 960 KiB. It is a permanent failure.
var ErrTooLarge = errors.New("the state is too large")

// errLasting marks failures that would occur again in another attempt.
var errLasting = errors.New("cannot continue")

// encode returns a state's bytes. The parameter before is the state of another program, or nil.
func encode[S any](s S, before *merge.State) ([]byte, error) {
	data, err := json.Marshal(s)
	if err == nil && before != nil {
		data, err = before.Merge(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: encode the state: %w", errLasting, err)
	}
	//guard:a-state-is-utf8 false
	if !utf8.Valid(data) { // as of a json.RawMessage
		return nil, fmt.Errorf("%w: encode the state: a text is not UTF-8", errLasting)
	}
	if len(data) > postroom.MaxData {
		return nil, fmt.Errorf("%w: %w: %d bytes, and %d are allowed", errLasting, ErrTooLarge, len(data), postroom.MaxData)
	}
	return data, nil
}

// decode returns the instance of a row.
func decode[S any](r row, data []byte) (*instance[S], error) {
	inst := &instance[S]{row: r}
	if err := json.Unmarshal(data, &inst.data); err != nil {
		return nil, fmt.Errorf("%w: decode the state of key %s as %T: %w", errLasting, r.key, inst.data, err)
	}
	if known, err := json.Marshal(inst.data); err == nil && !bytes.Equal(known, data) { // if Marshal fails here, encode fails later and returns its error
		//guard:an-older-program-keeps-new-fields remove
		inst.before = &merge.State{Its: data, Known: known}
	}
	return inst, nil
}

// given returns a value, or NULL if the value is zero.
func given[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}

// or returns a value, or zero for NULL.
func or[T any](v *T) (value T) {
	if v != nil {
		value = *v
	}
	return value
}
