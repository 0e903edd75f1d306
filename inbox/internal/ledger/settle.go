package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// SettleAndCommit removes a held event, in the transaction of its effects, and commits. If the
// parameter next is not nil, the same round trip begins the transaction of the next event. If this
// process no longer has the claim, SettleAndCommit rolls back and returns delivery.ErrSettled.
func (a *Handler) SettleAndCommit(ctx context.Context, tx *Tx, h *delivery.HeldEvent, next *Statement) (*Opened, error) {
	settle := Statement{sql: a.sql.SettleLast, args: []any{h.ID, h.Epoch}}
	if !tx.loan.Used() {
		return tx.commit(ctx, a.sql.Still, a.isolation, next, settle)
	}
	own := Statement{}
	if own.sql, own.args = tx.loan.Own(); tx.joins && !tx.loan.ChangesUser() {
		//guard:a-held-event-is-settled-as-the-inbox 5 remove
		return tx.commit(ctx, a.sql.Still, a.isolation, next, own, settle)
	}
	if err := tx.asOwn(ctx); err != nil {
		return nil, a.End(ctx, tx, err)
	}
	return tx.commit(ctx, a.sql.Still, a.isolation, next, settle)
}

// joins reports whether two statements can be sent together: the one that makes the inbox's
// database user current again, and the settling one. They cannot be sent together if the server
// must first prepare the settling statement: it would then check the rights of the handler's user.
func (a *Handler) joins(ctx context.Context, conn *pgx.Conn) bool {
	switch modeOf(conn) {
	case pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec: // statements are not prepared
		return true
	case pgx.QueryExecModeCacheStatement:
	default:
		return false
	}
	data := conn.PgConn().CustomData()
	prepared, known := data[settlesKey].(bool)
	if !known {
		_, err := conn.Prepare(ctx, a.sql.SettleLast, a.sql.SettleLast) // pgx keeps a statement that was prepared with a name
		prepared = err == nil
		data[settlesKey] = prepared
	}
	return prepared
}

const settlesKey = "postroom.inbox.settles"

// NoteResult stores a handler's text about what it did, in the transaction of its effects.
func (a *Handler) NoteResult(ctx context.Context, tx *Tx, key, text string) error {
	if err := tx.asOwn(ctx); err != nil {
		return err
	}
	_, err := tx.Tx.Exec(ctx, a.sql.Result, a.name, key, text)
	switch {
	case err == nil:
		return nil
	//guard:what-a-handler-set-is-no-outage false
	case tx.Differs(): // what the handler set may be the cause, for instance a read-only transaction or a statement_timeout
		return fmt.Errorf("write the result: %w", err)
	}
	return &delivery.LedgerError{Err: err}
}

// SettleAll removes held events, in the transaction of their effects. If this process no longer has
// one of the claims, SettleAll returns delivery.ErrSettled.
func (a *Handler) SettleAll(ctx context.Context, tx *Tx, all []*delivery.HeldEvent) error {
	if err := tx.asOwn(ctx); err != nil {
		return err
	}
	ids, epochs := make([]int64, len(all)), make([]int64, len(all))
	for i, h := range all {
		ids[i], epochs[i] = h.ID, h.Epoch
	}
	settled := int64(0)
	batch := &pgx.Batch{}
	batch.Queue(a.sql.Plan)
	batch.Queue(a.sql.SettleMany, ids, epochs).Exec(func(tag pgconn.CommandTag) error {
		settled = tag.RowsAffected()
		return nil
	})
	if err := tx.Tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	//guard:a-batch-commits-only-with-all-its-claims false
	if settled != int64(len(all)) {
		return delivery.ErrSettled
	}
	return nil
}

// Follower says what happens to the next event of a key: a process claims it, or it becomes due.
type Follower struct {
	Process         *string // the process that claims the event; nil: any process may claim it
	Lease           time.Duration
	Types, Subjects *string // which events this process takes
	Bytes           int64   // the largest size of an event that is claimed
}

// settled is the result of settling an event of a key.
type settled struct {
	Next  []delivery.HeldEvent // the claimed event, if there is one
	More  bool                 // more events of the key are held
	Whole bool                 // all events that ran in the same transaction were settled too
}

// SettleKey removes a held event for which other events of its key may wait, and the events that
// ran in the same transaction. It also makes the next event of the key due, or claims that event.
func (a *Handler) SettleKey(ctx context.Context, tx *Tx, h *delivery.HeldEvent, along []int64, last int64, by Follower) (s settled, err error) {
	if err := tx.asOwn(ctx); err != nil {
		return s, err
	}
	var head, others pgconn.CommandTag
	batch := &pgx.Batch{}
	batch.Queue(a.sql.Plan)
	batch.Queue(a.sql.LockKey, a.name, h.Blocking)
	batch.Queue(a.sql.Settle, h.ID, h.Epoch).Exec(func(tag pgconn.CommandTag) error {
		head = tag
		return nil
	})
	if len(along) > 0 {
		batch.Queue(a.sql.SettleAlong, along).Exec(func(tag pgconn.CommandTag) error {
			others = tag
			return nil
		})
	}
	follow := a.follow(h.Blocking, last, by)
	batch.Queue(follow.sql, follow.args...).Query(intoHeld(&s.Next))
	batch.Queue(a.sql.More, a.name, h.Blocking, last).QueryRow(func(row pgx.Row) error { return row.Scan(&s.More) })
	if err := tx.Tx.SendBatch(ctx, batch).Close(); err != nil {
		return s, fmt.Errorf("settle: %w", err)
	}
	if head.RowsAffected() == 0 {
		return s, delivery.ErrSettled
	}
	s.Whole = others.RowsAffected() == int64(len(along))
	return s, nil
}

// LeaveKey takes a held event out of its key, so that later events of the key need not wait for it.
// It is for a handler that was ordered when the event was held, and is not ordered now. Such a
// handler may need an isolation level at which its transaction would not see all events that wait
// for the key. So LeaveKey has its own transaction, at READ COMMITTED.
func (a *Handler) LeaveKey(ctx context.Context, h *delivery.HeldEvent, by Follower) error {
	_, err := a.exec(ctx, []Statement{
		//guard:an-event-leaves-its-key-at-read-committed 1.1 = ""
		{sql: beginStatement(pgx.ReadCommitted)},
		{sql: a.sql.Plan},
		{sql: a.sql.LockKey, args: []any{a.name, h.Blocking}},
		{sql: a.sql.LeaveKey, args: []any{h.ID, h.Epoch}},
		a.follow(h.Blocking, h.Pos, by), commitStatement,
	})
	if err == nil {
		h.Blocking, h.Followed = "", false
	}
	return delivery.Written(err)
}

// Identify gives a held event the dedupe key that its handler has made. It returns false if another
// event with this key was decided, or if this process no longer has the claim.
func (a *Handler) Identify(ctx context.Context, h *delivery.HeldEvent, key string) (fresh bool, err error) {
	tag, err := a.pool.Exec(ctx, a.sql.Identify, h.ID, h.Epoch, key)
	return tag.RowsAffected() > 0, delivery.Written(err)
}

// follow returns the statement for the next event of a key behind a position: it makes that event
// due, or claims it for a process.
func (a *Handler) follow(key string, behind int64, by Follower) Statement {
	return Statement{sql: a.sql.Follow, args: []any{a.name, key, behind, by.Process, by.Lease, by.Types, by.Subjects, by.Bytes}}
}

// Failed is a failed attempt at a held event. It says how the event is held from now on.
type Failed struct {
	Held    *delivery.HeldEvent
	Holding delivery.Holding
	Skipped bool // later events of its key do not wait for this event
	By      Follower
}

// noted returns the parameters of noted.sql.
func (f Failed) noted() []any {
	var attempts *int
	if f.Holding.IsDiscarded() {
		attempts = &f.Holding.Attempts
	}
	return []any{f.Held.ID, f.Held.Epoch, attempts}
}

// noting returns the statements that record a failed attempt, and the index of the statement that
// updates the event. If began is the id of a transaction that committed, they record nothing; began
// may be empty.
func (a *Handler) noting(f Failed, began string) (all []Statement, fail int, err error) {
	failure := f.Holding.Failure
	var text *string
	var fingerprint []byte
	//guard:a-failure-that-is-the-reason-again-is-not-doubled true
	if !failure.Again {
		document, err := failure.Document()
		if err != nil {
			return nil, 0, fmt.Errorf("encode failure: %w", err)
		}
		text, fingerprint = &document, failure.Fingerprint(a.name, f.Held.Event)
	}
	noting := Statement{sql: a.sql.Fail, args: []any{
		f.Held.ID, f.Held.Epoch, f.Holding.After, f.Holding.Attempts, failure.Class,
		fingerprint, text, f.Skipped, failure.Snoozed, optional(began),
	}}
	all = []Statement{noting}
	if f.Skipped {
		all, fail = []Statement{
			{sql: a.sql.Plan},
			{sql: a.sql.LockKey, args: []any{a.name, f.Held.Blocking}},
			noting,
			a.follow(f.Held.Blocking, f.Held.Pos, f.By),
		}, 2
	}
	if f.Holding.IsDiscarded() {
		all = append(all, a.archiveStatement(a.name, f.Held.Key, failure.Text))
	}
	return all, fail, nil
}

// Fail records a failed attempt, and when the next attempt is due. It reports whether the failure
// is recorded now, or was recorded by an earlier call whose answer was lost. If it returns false,
// this process no longer had the claim.
func (a *Handler) Fail(ctx context.Context, f Failed) (noted bool, err error) {
	noting, fail, err := a.noting(f, "")
	if err != nil {
		return false, err
	}
	tags, err := a.exec(ctx, noting)
	if err != nil || tags[fail].RowsAffected() > 0 {
		return err == nil, delivery.Written(err)
	}
	tag, err := a.pool.Exec(ctx, a.sql.Noted, f.noted()...)
	return tag.RowsAffected() > 0, delivery.Written(err)
}

// FailAlone records a failed attempt in a transaction that has no other effect yet. It reports
// whether it recorded the failure now, and in noted the same as Fail.
func (a *Handler) FailAlone(ctx context.Context, tx *Tx, f Failed) (now, noted bool, err error) {
	noting, fail, err := a.noting(f, "")
	if err != nil {
		return false, false, err
	}
	for i, s := range append(noting, Statement{sql: a.sql.Noted, args: f.noted()}) {
		tag, err := tx.Tx.Exec(ctx, s.sql, s.args...)
		if err != nil {
			return false, false, &delivery.LedgerError{Err: err}
		}
		noted = tag.RowsAffected() > 0 // of the last statement
		now = now || noted && i == fail
	}
	return now, noted, nil
}

// FailIn rolls back a failed attempt, and records the failure in the same round trip. The result
// stored reports whether the failure was recorded. If not, the caller must record it, but must
// first ask whether the handler committed the transaction itself: see DB.WasCommitted.
func (a *Handler) FailIn(ctx context.Context, tx *Tx, f Failed) (stored bool, err error) {
	//guard:a-failure-of-a-committed-transaction-is-not-recorded 2 = ""
	noting, fail, err := a.noting(f, tx.ID)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	closing := append([]Statement{rollbackStatement}, noting...)
	tags, _, writing := tx.endWith(ctx, a.isolation, closing, nil)
	if writing != nil {
		return false, nil //nolint:nilerr // the caller records the failure in a separate transaction
	}
	return tags[1+fail].RowsAffected() == 1, nil
}
