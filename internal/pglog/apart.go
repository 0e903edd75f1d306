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

// classUnstorable is the class of an event that held does not take as it is.
const classUnstorable = "unstorable"

// isAboutData reports whether the database refused a value or a row, as it would
// again: data exceptions (class 22), constraints (23), limits of the server (54), and
// what a trigger raises (P0).
func isAboutData(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains([]string{"22", "23", "54", "P0"}, pg.Code[:min(2, len(pg.Code))])
}

// storeApart does as storeHeld where that fails for some event: it finds out which, by
// halves, and stores the others as they are meant to be. Each step is a transaction with
// the epoch of the term, and says of the events that are not held yet that they are owed:
// what is recorded is true at each moment, and no step is done twice.
func (r *recorder) storeApart(ctx context.Context, next state, held changes) error {
	n := held.rows()
	if n == 0 {
		return r.storeHeld(ctx, next, held) // it is no event's fault
	}
	rest := changes{settle: held.settle, late: held.late, mark: held.mark, keys: slices.Clone(held.woken)}
	rest.sortKeys()
	if err := r.storeHeld(ctx, next.owing(held.unheld(0)), rest); err != nil {
		return err
	}
	if err := r.storeRange(ctx, next, &held, 0, n); err != nil {
		return err
	}
	return r.storeHeld(ctx, next, changes{advances: held.advances}) // last: they count what is held
}

// storeRange stores some of the events that are to be held, those before them being
// stored.
func (r *recorder) storeRange(ctx context.Context, next state, held *changes, lo, hi int) error {
	err := r.storeHeld(ctx, next.owing(held.unheld(hi)), held.portion(lo, hi))
	if !isAboutData(err) {
		return err
	}
	if hi-lo == 1 {
		return r.storeUnstorable(ctx, next.owing(held.unheld(hi)), held.bare(lo, err))
	}
	mid := (lo + hi) / 2
	if err := r.storeRange(ctx, next, held, lo, mid); err != nil {
		return err
	}
	return r.storeRange(ctx, next, held, mid, hi)
}

// storeUnstorable stores an event in the form that always fits, which is without its key
// where that is the cause: nobody can wait for it then.
func (r *recorder) storeUnstorable(ctx context.Context, next state, u *unstorable) error {
	err := r.storeHeld(ctx, next, u.changes())
	if isAboutData(err) && u.key != nil {
		u.key = nil
		err = r.storeHeld(ctx, next, u.changes())
	}
	if err != nil {
		return fmt.Errorf("hold event %d, which held does not take: %w", u.seq, err)
	}
	r.memory.spoil()
	return nil
}

// rows is how many events are to be held. They are numbered: those that are scheduled,
// those that were held before, then the others.
func (c *changes) rows() int { return len(c.schedule) + len(c.rehold.seqs) + len(c.hold.seqs) }

// cut returns which of a list, that begins with the event of number first, are in a range
// of numbers.
func cut(first, n, lo, hi int) (from, to int) {
	return min(max(lo-first, 0), n), min(max(hi-first, 0), n)
}

// portion returns the changes for some of the events that are to be held, alone.
func (c *changes) portion(lo, hi int) (p changes) {
	from, to := cut(0, len(c.schedule), lo, hi)
	p.schedule = c.schedule[from:to]
	first := len(c.schedule)
	from, to = cut(first, len(c.rehold.seqs), lo, hi)
	p.rehold = c.rehold.portion(from, to)
	first += len(c.rehold.seqs)
	from, to = cut(first, len(c.hold.seqs), lo, hi)
	p.hold = c.hold.portion(from, to)
	for _, key := range slices.Concat(p.rehold.waking, p.hold.waking) {
		p.touch(key)
	}
	p.sortKeys()
	return p
}

func (hs *holdings) portion(from, to int) holdings {
	return holdings{
		seqs: hs.seqs[from:to:to], keys: hs.keys[from:to], classes: hs.classes[from:to], text: hs.text[from:to], attempts: hs.attempts[from:to],
		dead: hs.dead[from:to], after: hs.after[from:to:to], fingerprints: hs.fingerprints[from:to], rewinds: hs.rewinds[from:to],
		waking: hs.waking[from:to],
	}
}

// unheld returns the seqs of the log that are to be held, from a number on. What is in
// held already, and what is there for a rewind, is not owed by the log.
func (c *changes) unheld(from int) []int64 {
	p := c.portion(from, c.rows())
	seqs := slices.Clone(p.schedule)
	for i, seq := range p.hold.seqs {
		if p.hold.rewinds[i] == nil {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// owing is the state where some events are not stored yet.
func (s state) owing(seqs []int64) state {
	s.pending = s.pending.Union(seqset.Of(seqs)).UpTo(s.high)
	return s
}

// unstorable is an event that held does not take as it is.
type unstorable struct {
	seq         int64
	key, waking *string
	text        string
	attempts    int32
	fingerprint []byte
	rewind      *int64
}

// bare returns the event of a number in the form that always fits.
func (c *changes) bare(number int, err error) *unstorable {
	p := c.portion(number, number+1)
	u := &unstorable{text: "it cannot be held as it is: " + violation(err)}
	was := p.hold
	if len(p.rehold.seqs) > 0 {
		was = p.rehold
	}
	if len(p.schedule) > 0 {
		u.seq = p.schedule[0]
	} else {
		u.seq, u.key, u.attempts, u.rewind = was.seqs[0], was.keys[0], was.attempts[0], was.rewinds[0]
		u.waking = optional(was.waking[0])
		if t := was.text[0]; t != nil {
			u.text += "; before that: " + *t
		}
	}
	u.text = printable(u.text)
	u.fingerprint = cause.Fingerprint(outgoing, classUnstorable, "", u.text)
	return u
}

// violation says what the database refused, without the values that it names.
func violation(err error) string {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return "it was refused"
	}
	return strings.Join(strings.Fields("SQLSTATE "+pg.Code+" "+pg.TableName+" "+pg.ColumnName+" "+pg.ConstraintName), " ")
}

// changes are those of the event alone.
func (u *unstorable) changes() changes {
	c := changes{unstorable: u}
	if u.waking != nil {
		c.keys = []string{*u.waking}
	}
	return c
}

// parameters returns the parameters of hold_bare.sql.
func (u *unstorable) parameters(epoch int64) []any {
	return []any{epoch, u.seq, u.key, classUnstorable, u.text, u.attempts, u.fingerprint, u.rewind}
}
