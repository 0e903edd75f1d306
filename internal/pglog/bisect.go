package pglog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/cause"
	"github.com/postroom/postroom/internal/seqset"
)

// classUnstorable is the class of an event that the database refuses to hold as it is.
const classUnstorable = "unstorable"

// isAboutData reports whether the database refused a value or a row, and would refuse it
// again: data exceptions (class 22), constraints (23), limits of the server (54), and
// errors that a trigger raises (P0).
func isAboutData(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains([]string{"22", "23", "54", "P0"}, pg.Code[:min(2, len(pg.Code))])
}

// bisect stores changes that storeHeld could not store because the database refused some events. It
// halves the events until it has found the refused ones, and stores all others unchanged. Each step
// is one transaction with the epoch of this relay. The step also records as pending all events that
// are not held yet. So the recorded state is correct after each step, even if the next step fails.
func (r *recorder) bisect(ctx context.Context, next state, held changes) error {
	n := held.rows()
	if n == 0 {
		return r.storeHeld(ctx, next, held) // there is no event to hold, so none is the cause
	}
	rest := changes{published: held.published, late: held.late, checkpoint: held.checkpoint, keys: slices.Clone(held.unblocked)}
	rest.sortKeys()
	if err := r.storeHeld(ctx, next.withPending(held.pendingFrom(0)), rest); err != nil {
		return err
	}
	if err := r.bisectRange(ctx, next, &held, 0, n); err != nil {
		return err
	}
	return r.storeHeld(ctx, next, changes{republishes: held.republishes}) // this comes last, because the progress of a republish counts the events held above
}

// bisectRange stores a part of the events to hold: those whose number (see the method rows) is at
// least lo and less than hi. Events before lo are stored already.
func (r *recorder) bisectRange(ctx context.Context, next state, held *changes, lo, hi int) error {
	err := r.storeHeld(ctx, next.withPending(held.pendingFrom(hi)), held.portion(lo, hi))
	if !isAboutData(err) {
		return err
	}
	if hi-lo == 1 {
		return r.storeUnstorable(ctx, next.withPending(held.pendingFrom(hi)), held.asUnstorable(lo, err))
	}
	mid := (lo + hi) / 2
	if err := r.bisectRange(ctx, next, held, lo, mid); err != nil {
		return err
	}
	return r.bisectRange(ctx, next, held, mid, hi)
}

// storeUnstorable holds an event in the reduced form of hold_unstorable.sql. If the database
// refuses this form too, storeUnstorable leaves out the key, and no event waits behind this event.
func (r *recorder) storeUnstorable(ctx context.Context, next state, u *unstorable) error {
	err := r.storeHeld(ctx, next, u.changes())
	if isAboutData(err) && u.key != nil {
		u.key = nil
		err = r.storeHeld(ctx, next, u.changes())
	}
	if err != nil {
		return fmt.Errorf("hold event %d, which the database refused before: %w", u.seq, err)
	}
	r.memory.addUnstorable()
	return nil
}

// rows returns the number of events to hold. The events are numbered: first the scheduled events,
// then events that were held before, then the others.
func (c *changes) rows() int { return len(c.schedule) + len(c.holdAgain.seqs) + len(c.hold.seqs) }

// cut returns the part of a list (list[from:to]) whose events have numbers from lo up to hi - 1.
// The list has n events, and the parameter first is the number of its first event.
func cut(first, n, lo, hi int) (from, to int) {
	return min(max(lo-first, 0), n), min(max(hi-first, 0), n)
}

// portion returns only the changes for events to hold with numbers from lo to hi - 1.
func (c *changes) portion(lo, hi int) (p changes) {
	from, to := cut(0, len(c.schedule), lo, hi)
	p.schedule = c.schedule[from:to]
	first := len(c.schedule)
	from, to = cut(first, len(c.holdAgain.seqs), lo, hi)
	p.holdAgain = c.holdAgain.portion(from, to)
	first += len(c.holdAgain.seqs)
	from, to = cut(first, len(c.hold.seqs), lo, hi)
	p.hold = c.hold.portion(from, to)
	for _, key := range slices.Concat(p.holdAgain.unblocks, p.hold.unblocks) {
		p.addKey(key)
	}
	p.sortKeys()
	return p
}

func (hs *deferrals) portion(from, to int) deferrals {
	return deferrals{
		seqs: hs.seqs[from:to:to], keys: hs.keys[from:to], classes: hs.classes[from:to], text: hs.text[from:to], attempts: hs.attempts[from:to],
		dead: hs.dead[from:to], after: hs.after[from:to:to], fingerprints: hs.fingerprints[from:to], republishIDs: hs.republishIDs[from:to],
		unblocks: hs.unblocks[from:to],
	}
}

// pendingFrom examines the events to hold, from the given number on. It returns the seqs of those
// that are pending in the log. Events to hold are not pending if they are in the table held
// already, or are events of republishes.
func (c *changes) pendingFrom(from int) []int64 {
	p := c.portion(from, c.rows())
	seqs := slices.Clone(p.schedule)
	for i, seq := range p.hold.seqs {
		if p.hold.republishIDs[i] == nil {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// withPending returns a state in which the given events are also pending, if not above its high.
func (s state) withPending(seqs []int64) state {
	list := &s.pending
	if s.isListed() {
		list = &s.open
	}
	*list = list.Union(seqset.Of(seqs)).UpTo(s.high)
	return s
}

// unstorable is an event that the database refuses to hold unchanged.
type unstorable struct {
	seq           int64
	key, unblocks *string
	text          string
	attempts      int32
	fingerprint   []byte
	republishID   *int64
}

// asUnstorable returns the event with the given number in the reduced form of hold_unstorable.sql.
func (c *changes) asUnstorable(number int, err error) *unstorable {
	p := c.portion(number, number+1)
	u := &unstorable{text: "it cannot be held as it is: " + violation(err)}
	was := p.hold
	if len(p.holdAgain.seqs) > 0 {
		was = p.holdAgain
	}
	if len(p.schedule) > 0 {
		u.seq = p.schedule[0]
	} else {
		u.seq, u.key, u.attempts, u.republishID = was.seqs[0], was.keys[0], was.attempts[0], was.republishIDs[0]
		u.unblocks = optional(was.unblocks[0])
		if t := was.text[0]; t != nil {
			u.text += "; before that: " + *t
		}
	}
	u.text = printable(u.text, maxText)
	u.fingerprint = cause.Fingerprint(outgoing, classUnstorable, "", u.text)
	return u
}

// violation says what the database refused, without the values.
func violation(err error) string {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return "it was refused"
	}
	return strings.Join(strings.Fields("SQLSTATE "+pg.Code+" "+pg.TableName+" "+pg.ColumnName+" "+pg.ConstraintName), " ")
}

// changes returns the changes that hold only this event.
func (u *unstorable) changes() changes {
	c := changes{unstorable: u}
	if u.unblocks != nil {
		c.keys = []string{*u.unblocks}
	}
	return c
}

// parameters returns the parameters of hold_unstorable.sql.
func (u *unstorable) parameters(epoch int64) []any {
	return []any{epoch, u.seq, u.key, classUnstorable, u.text, u.attempts, u.fingerprint, u.republishID}
}
