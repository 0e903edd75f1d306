package ledger

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/lent"
)

// Accepts stores events that come without a broker. One statement stores the events of
// many callers.
type Accepts struct {
	// OnDead is called in the transaction in which an event is held as a conflict. It may be nil.
	OnDead func(ctx context.Context, tx *Borrowed, handler string, t delivery.Task, h delivery.Holding) error

	db      *DB
	group   Group[acceptances]
	blocked waitRoom
}

// Borrowed is a transaction that another function ends, such as that of a caller of AcceptTx.
type Borrowed struct {
	tx   pgx.Tx
	loan *lent.Tx
}

// Lend lends the transaction for one call.
func (b *Borrowed) Lend() *lent.Tx {
	b.loan = lent.New(b.tx, ErrTxOwned, nil)
	return b.loan
}

// Abandon gives up the transaction.
func (b *Borrowed) Abandon() { b.loan.Cut() }

// Healthy returns nil: the function that ends the transaction notices what is wrong with it.
func (b *Borrowed) Healthy() error { return nil }

// acceptances are the events of one call. One transaction stores all of them.
type acceptances []*delivery.Acceptance

// NewAccepts returns the part of the ledger that stores events that come without a broker.
func NewAccepts(db *DB) *Accepts {
	a := &Accepts{db: db}
	a.group.Bytes, a.group.Joint, a.group.Enough = acceptances.bytes, acceptances.waitsWith, enoughAccepts
	a.group.Write = func(ctx context.Context, calls []acceptances) error {
		//guard:an-accept-that-waits-stops-no-other 4 = WritePatience
		return a.store(ctx, db.pool, slices.Concat(calls...), togetherPatience)
	}
	return a
}

// enoughAccepts is how many calls must wait before a second statement runs beside the first and
// stores them. In a measurement, eight clients got a quarter more answers in the same time with
// this number. A second statement for two or three calls did not help.
const enoughAccepts = 4

// bytes returns about how much memory a statement needs for the events.
func (all acceptances) bytes() (n int) {
	for _, a := range all {
		n += len(a.D.Event.Data)
	}
	return n
}

// waitsWith reports whether this call would probably fail as the call other failed: err says that
// the call other waited too long for a transaction, and the two calls have an event in common.
func (all acceptances) waitsWith(other acceptances, err error) bool {
	return isLockTimeout(err) && slices.ContainsFunc(all, func(a *delivery.Acceptance) bool {
		return slices.ContainsFunc(other, func(b *delivery.Acceptance) bool { return identityOf(a) == identityOf(b) })
	})
}

// Store stores events in one transaction, and sets the result of each event. A second transaction
// holds the events that conflict with others. If ctx ends before a statement has begun to store
// the events, they are not stored. If ctx ends later, they may be stored.
func (a *Accepts) Store(ctx context.Context, all []*delivery.Acceptance) error {
	for _, one := range all { // copies, because a caller that gives up may use its events while they are written
		//guard:an-accept-keeps-the-callers-bytes do _, _ = @1, @2
		one.D.Event.Data, one.D.Event.Headers = bytes.Clone(one.D.Event.Data), maps.Clone(one.D.Event.Headers)
	}
	err := a.storeOwn(ctx, all)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, isConflict) {
		return nil
	}
	if err := pgx.BeginFunc(ctx, a.db.pool, func(tx pgx.Tx) error { return a.holdConflicts(ctx, tx, all) }); err != nil {
		return fmt.Errorf("%w: %w", delivery.ErrConflictNotHeld, err)
	}
	return nil
}

// storeOwn stores the events of one call together with the events of other calls. If one of the
// events must wait for another transaction, the call waits in the wait room and does not delay
// other calls.
func (a *Accepts) storeOwn(ctx context.Context, all acceptances) error {
	patient, cancel := context.WithTimeout(ctx, WritePatience)
	defer cancel()
	for {
		if err := a.blocked.await(patient, all); err != nil {
			return err
		}
		err := a.group.DoUntil(ctx, all)
		if !isLockTimeout(err) {
			return err
		}
		leave, entered, err := a.blocked.enter(patient, all)
		if err != nil {
			return err
		}
		if entered {
			err = a.storeAlone(patient, all)
			leave()
			return err
		}
	}
}

// storeAlone stores the events of one call, and waits for other transactions until shortly before
// ctx ends. Then the server ends the wait. If ctx ended the wait, pgx would close the connection.
func (a *Accepts) storeAlone(ctx context.Context, all acceptances) error {
	patience := WritePatience
	if end, ok := ctx.Deadline(); ok {
		patience = time.Until(end) * 9 / 10
	}
	return delivery.Written(a.store(ctx, a.db.pool, all, patience))
}

// StoreIn stores events in the caller's transaction, and sets the result of each event.
func (a *Accepts) StoreIn(ctx context.Context, tx pgx.Tx, all []*delivery.Acceptance) error {
	if err := a.store(ctx, tx, all, 0); err != nil {
		return err
	}
	return a.holdConflicts(ctx, tx, all)
}

func isConflict(a *delivery.Acceptance) bool { return a.Result == delivery.AcceptConflict }

// A sender is a pool or a transaction.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// store stores the events whose identities are not known yet, and compares the other events with
// those that were decided. The parameter patience limits how long it waits for another transaction
// that stores one of the events. If patience is 0, the transaction's lock_timeout limits that wait.
func (a *Accepts) store(ctx context.Context, db sender, all acceptances, patience time.Duration) error {
	batch := &pgx.Batch{}
	stored := make(map[*delivery.Acceptance]bool, len(all))
	for _, some := range all.withoutTwins() {
		s, err := a.statement(some, patience)
		if err != nil {
			return err
		}
		batch.Queue(s.sql, s.args...).Query(func(rows pgx.Rows) error { return some.noteStored(rows, stored) })
	}
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("store events: %w", err)
	}
	for _, one := range all { // if compare fails, a group may repeat store; an event that the first run stored keeps its result
		//guard:a-stored-event-keeps-its-result do one.Result = ""; @
		if stored[one] {
			one.Result = delivery.Accepted
		}
	}
	if err := a.compare(ctx, db, all); err != nil {
		return err
	}
	for _, one := range all {
		if isConflict(one) && one.IgnoreChanged {
			one.Result = delivery.AcceptChanged
		}
	}
	return nil
}

// noteStored adds to the map stored the events that accept.sql stored.
func (all acceptances) noteStored(rows pgx.Rows, stored map[*delivery.Acceptance]bool) error {
	these := make(map[identity]bool, len(all))
	var of identity
	_, err := pgx.ForEachRow(rows, []any{&of.handler, &of.key}, func() error {
		these[of] = true
		return nil
	})
	for _, a := range all {
		if these[identityOf(a)] {
			stored[a] = true
		}
	}
	return err
}

// withoutTwins splits the events into parts, so that no part has two events with the same
// identity. The parts are stored one after the other.
func (all acceptances) withoutTwins() (parts []acceptances) {
	seen := make(map[identity]int, len(all))
	for _, a := range all {
		of := identityOf(a)
		n := seen[of]
		seen[of]++
		if n == len(parts) {
			parts = append(parts, nil)
		}
		parts[n] = append(parts[n], a)
	}
	return parts
}

// compare compares the events that were not stored with the events that were decided under the same
// identities.
func (a *Accepts) compare(ctx context.Context, db sender, all acceptances) error {
	batch := &pgx.Batch{}
	for _, one := range all {
		switch {
		case one.Result != "":
		case one.D.Digest == nil:
			one.Result = delivery.AcceptedBefore
		default:
			batch.Queue(a.db.sql.Decided, one.Handler, one.D.Key, one.D.Digest).QueryRow(func(row pgx.Row) error {
				var same bool
				if err := row.Scan(&same); err != nil {
					return err
				}
				one.Result = delivery.AcceptConflict
				if same {
					one.Result = delivery.AcceptedBefore
				}
				return nil
			})
		}
	}
	if batch.Len() == 0 {
		return nil
	}
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("compare inbox rows: %w", err)
	}
	return nil
}

// holdConflicts holds each event that conflicts with another event, and makes it dead. It is not an
// error if the same conflict is held already.
func (a *Accepts) holdConflicts(ctx context.Context, tx pgx.Tx, all acceptances) error {
	for _, one := range all {
		if !isConflict(one) {
			continue
		}
		d := delivery.Conflicting(one.D)
		hold, err := a.db.holdStatement(true, Owed{Handler: one.Handler, D: d, H: delivery.AsConflict})
		if err != nil {
			return err
		}
		var fate delivery.Fate
		if err := tx.QueryRow(ctx, hold.sql, hold.args...).Scan(&fate); err != nil {
			return fmt.Errorf("hold conflict: %w", err)
		}
		if fate != delivery.FateHeld || a.OnDead == nil {
			continue
		}
		if err := a.OnDead(ctx, &Borrowed{tx: tx}, one.Handler, d.Task, delivery.AsConflict); err != nil {
			return err
		}
	}
	return nil
}

// statement returns accept.sql with its parameters.
func (a *Accepts) statement(all acceptances, patience time.Duration) (*Statement, error) {
	var (
		handlers, keys, sources, ids, types, subjects, contentTypes     []string
		digests, data                                                   [][]byte
		eventKeys, correlations, causations, parents, states, allHeader []*string
		occurred                                                        []*time.Time
	)
	var limit *string // the limit of waits for locks
	if patience > 0 {
		text := milliseconds(patience) + "ms"
		limit = &text
	}
	for _, one := range all {
		ev := &one.D.Event
		headers, err := delivery.EncodeHeaders(ev.Headers)
		if err != nil {
			return nil, err
		}
		handlers, keys, digests = append(handlers, one.Handler), append(keys, one.D.Key), append(digests, one.D.Digest)
		sources, ids, types, subjects = append(sources, ev.Source), append(ids, ev.ID), append(types, ev.Type), append(subjects, ev.Subject)
		eventKeys, contentTypes = append(eventKeys, optional(ev.Key)), append(contentTypes, ev.ContentType)
		correlations, causations = append(correlations, optional(ev.CorrelationID)), append(causations, optional(ev.CausationID))
		occurred = append(occurred, optional(ev.Time))
		parents, states = append(parents, optional(ev.TraceParent)), append(states, optional(ev.TraceState))
		allHeader, data = append(allHeader, headers), append(data, notNull(ev.Data))
	}
	return &Statement{sql: a.db.sql.Accept, args: []any{
		handlers, keys, digests, sources, ids, types, subjects, eventKeys, contentTypes,
		correlations, causations, occurred, parents, states, allHeader, data, limit,
	}}, nil
}
