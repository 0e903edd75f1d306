package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/cause"
)

// Record notes what became of events, stores it with the epoch of this term, and
// renews the lease. It returns [eventlog.ErrLeaseLost] where another term has
// begun: then nothing was stored. After any other error it is unknown whether it
// was.
func (t *logTerm) Record(ctx context.Context, p eventlog.Progress) error {
	t.mu.Lock()
	t.unheld = append(t.unheld, p.Held...)
	for _, at := range p.Places {
		t.places[at.Stream] = at
	}
	if len(p.Owed) > 0 {
		t.progress.owe(spansOf(slices.Clone(p.Owed)))
	}
	t.repeats.settle(p.Repeated, p.Held)
	held := t.sort(p.Published)
	t.progress.done(p.Published)
	t.progress.done(held.schedule)
	t.progress.done(held.read)
	next := t.progress.state()
	t.mu.Unlock()

	held.late = spansOf(slices.Clone(p.Late))
	held.mark = len(t.places) > 0 && len(p.Published)+len(p.Owed) > 0 && time.Since(t.marked) >= markEvery
	quiet := len(p.Published)+len(p.Places) == 0 && next.high == t.recorded.high && slices.Equal(next.pending, t.recorded.pending)
	if err := t.store(ctx, next, held, quiet); err != nil {
		return err
	}
	if held.mark {
		t.marked = time.Now()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.later = t.later[len(held.schedule):] // what Read has added meanwhile
	t.unheld = nil
	t.repeats.stored(held.advances)
	for _, seqs := range [][]int64{held.settle, held.rehold.seqs, p.Returned} {
		for _, seq := range seqs {
			delete(t.due, seq)
		}
	}
	return nil
}

// store writes the state, unless it is quiet, and the changes to held.
func (t *logTerm) store(ctx context.Context, next state, held changes, quiet bool) error {
	switch {
	case !held.empty():
		err := t.storeHeld(ctx, next, held)
		if isAboutData(err) {
			err = t.storeApart(ctx, next, held)
		}
		if err != nil {
			return err
		}
	case quiet:
		// Nothing was published and nothing is newly owed. The older snapshot that
		// stays recorded only makes the next leader look further back.
		return t.update(ctx, t.sql.renew, t.epoch, t.lease)
	default:
		if err := t.update(ctx, t.sql.record, t.recordParameters(next)...); err != nil {
			return err
		}
	}
	t.recorded = next
	return nil
}

// recordParameters returns the parameters of record.sql.
func (t *logTerm) recordParameters(next state) []any {
	return []any{t.epoch, next.high, next.floor, next.snap, next.pending.String(), t.lease, streamsOf(t.places)}
}

// storeHeld writes the state and the other changes in one transaction and one round
// trip.
func (t *logTerm) storeHeld(ctx context.Context, next state, held changes) error {
	var batch pgx.Batch // without a BEGIN it is one transaction
	batch.Queue(t.sql.record, t.recordParameters(next)...)
	if len(held.schedule) > 0 {
		batch.Queue(t.sql.schedule, t.epoch, held.schedule)
	}
	if len(held.settle) > 0 {
		batch.Queue(t.sql.settle, t.epoch, held.settle)
		batch.Queue(t.sql.settled, t.epoch, held.settle)
	}
	if len(held.late) > 0 {
		batch.Queue(t.sql.late, t.epoch, held.late.String(), held.late.size())
	}
	if held.mark {
		batch.Queue(t.sql.mark, t.epoch)
	}
	if len(held.rehold.seqs) > 0 {
		batch.Queue(t.sql.rehold, held.rehold.parameters(t.epoch)...)
	}
	if len(held.hold.seqs) > 0 {
		batch.Queue(t.sql.hold, held.hold.parameters(t.epoch)...)
	}
	if u := held.unstorable; u != nil {
		batch.Queue(t.sql.holdBare, u.parameters(t.epoch)...)
	}
	if len(held.keys) > 0 {
		batch.Queue(t.sql.wake, t.epoch, held.keys, append(held.hold.seqs, held.rehold.seqs...), append(held.hold.after, held.rehold.after...))
	}
	for _, a := range held.advances {
		batch.Queue(t.sql.advance, a.args...)
	}
	results := t.writer.SendBatch(ctx, &batch)
	tag, err := results.Exec()
	if err == nil && tag.RowsAffected() == 0 {
		err = eventlog.ErrLeaseLost
	}
	if err := errors.Join(err, results.Close()); err != nil {
		return fmt.Errorf("outbox: record: %w", t.advise(err))
	}
	return nil
}

// changes are what a recording does beside the state: to held, above all.
type changes struct {
	schedule []int64  // of the log, to be published later
	settle   []int64  // published from held
	rehold   holdings // refused again
	hold     holdings // of the log, refused or behind one that was
	read     []int64  // of these, those that are published for the first time
	keys     []string // whose first held event may be another now
	woken    []string // of these, those of events that were published from held
	late     spans    // lost by the broker, and too late to be published in order
	mark     bool     // a mark is made too

	advances []advance // how far rewinds are

	unstorable *unstorable // instead of all that: one that could not be held as it is
}

// markEvery is how often what is published is marked: so much, and what came after it,
// is compared where a broker lost the end of a stream.
const markEvery = 10 * time.Second

func (c *changes) empty() bool {
	return !c.mark && c.unstorable == nil && len(c.schedule)+len(c.settle)+len(c.rehold.seqs)+len(c.hold.seqs)+len(c.late)+len(c.advances) == 0
}

// sort finds out what is to be changed in held. What is to be put there is kept
// until it is: Release may have to try again.
func (t *logTerm) sort(published []int64) changes {
	c := changes{schedule: slices.Clone(t.later), advances: t.repeats.advances(t.epoch)}
	for _, seq := range published {
		if key, ok := t.due[seq]; ok {
			c.settle = append(c.settle, seq)
			c.touch(key)
		}
	}
	c.woken = slices.Clone(c.keys)
	for _, h := range t.unheld {
		key, ok := t.due[h.Seq]
		switch {
		case h.Rewind != 0:
			c.hold.add(h, "") // it holds up nobody
			continue
		case ok:
			c.rehold.add(h, key)
		default:
			key = h.Key
			c.hold.add(h, key)
			c.read = append(c.read, h.Seq)
		}
		c.touch(key)
	}
	c.sortKeys()
	return c
}

// sortKeys has each key once.
func (c *changes) sortKeys() {
	slices.Sort(c.keys)
	c.keys = slices.Compact(c.keys)
}

func (c *changes) touch(key string) {
	if n := len(c.keys); key != "" && (n == 0 || c.keys[n-1] != key) {
		c.keys = append(c.keys, key)
	}
}

// holdings are the columns of hold.sql.
type holdings struct {
	seqs          []int64
	keys          []*string
	classes, text []*string
	attempts      []int32
	dead          []bool
	after         []time.Duration
	fingerprints  [][]byte
	rewinds       []*int64

	waking []string // no column: the key of each whose first held event it may be
}

func (hs *holdings) add(h eventlog.Holding, waking string) {
	hs.seqs, hs.waking = append(hs.seqs, h.Seq), append(hs.waking, waking)
	hs.keys = append(hs.keys, optional(h.Key))
	f := h.Failure
	if f == nil {
		f = &eventlog.Failure{}
	}
	hs.classes = append(hs.classes, optional(f.Class))
	hs.text = append(hs.text, optional(printable(f.Text)))
	hs.attempts = append(hs.attempts, int32(min(f.Attempts, 1<<30))) //nolint:gosec // bounded here
	hs.dead = append(hs.dead, f.Dead)
	hs.after = append(hs.after, f.After)
	var fingerprint []byte
	if f.Class != "" {
		fingerprint = cause.Fingerprint(outgoing, f.Class, "", f.Text, h.Key)
	}
	hs.fingerprints = append(hs.fingerprints, fingerprint)
	var rewind *int64
	if h.Rewind != 0 {
		rewind = &h.Rewind
	}
	hs.rewinds = append(hs.rewinds, rewind)
}

func (hs *holdings) parameters(epoch int64) []any {
	return []any{epoch, hs.seqs, hs.keys, hs.classes, hs.text, hs.attempts, hs.dead, hs.after, hs.fingerprints, hs.rewinds}
}

// outgoing is the handler of held events that are on their way to the broker.
const outgoing = "outbox"

// maxText bounds the text of a failure that is stored.
const maxText = 500

// printable returns a text as the database can store it.
func printable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s[:min(len(s), maxText)], "?"), "\x00", "?")
}

// HeldKeys returns the keys that have events in held, in no order. Later events
// of them have to be held too. It may run beside Record or Release, not beside
// Read.
func (t *logTerm) HeldKeys(ctx context.Context) ([]string, error) {
	rows, _ := t.reader.Query(ctx, t.sql.keys) // CollectRows reports the error
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("outbox: read held keys: %w", t.advise(err))
	}
	return keys, nil
}
