package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/eventlog"
)

// logTerm is a term of a [Log], as [eventlog.Term] describes. Reader, recorder and
// memory share one fate.
//
// Read, and Record with Release, may run beside each other; neither may run
// twice at once.
type logTerm struct {
	sql      statements
	advise   func(error) error // is that of the Log
	pool     *pgxpool.Pool
	lease    time.Duration // Record's and Renew's
	instance string
	epoch    int64
	reader   *pgx.Conn
	writer   *pgx.Conn
	pid      string // the server process behind reader
	pruned   pruned // how far Prune came

	taken     time.Time     // before the statement was sent that took the lease
	roundTrip time.Duration // a statement to the database and back
	high      int64         // the recorded high that the term began with
	looked    bool          // for what is held above it; Read's

	stride      *stride
	searchAbove int64
	searchAfter time.Duration
	searchTime  time.Duration
	passed      time.Time // when the last pass ended; Read's, as is search
	search      *search   // for late rows; nil where none is under way

	mu       sync.Mutex // guards what follows but recorded
	progress *progress
	ahead    map[int64]struct{} // held, though above the high that the term began with
	later    []int64            // read from the log and scheduled: to be held by the next recording
	unheld   []eventlog.Holding // likewise refused, or behind one that was
	due      map[int64]string   // read from held and not yet recorded, and the key that each blocks
	spoilt   int                // events that could not be held as they are, and were not told of
	repeats  repeats            // events that are published again
	recorded state              // what the row says
	places   map[string]eventlog.Place
	marked   time.Time // when the last mark was made; Record's
}

// begin starts from the row that taking the lease returned.
func (t *logTerm) begin(row leadRow) error {
	pending, err := parseSpans(row.Pending)
	if err != nil {
		return err
	}
	if t.places, err = placesOf(row.Streams); err != nil {
		return err
	}
	t.epoch, t.instance = row.Epoch, row.Instance
	t.ahead, t.high = make(map[int64]struct{}), row.High
	t.recorded = state{high: row.High, floor: row.Floor, snap: row.Snap, pending: pending}
	t.progress = resume(t.recorded)
	t.due = make(map[int64]string)
	return nil
}

// lookAhead notes what is held above the recorded high, before the first row is read
// there. It is not done while the lease is taken: that has to be renewed soon.
func (t *logTerm) lookAhead(ctx context.Context) error {
	if t.looked {
		return nil
	}
	rows, _ := t.reader.Query(ctx, t.sql.ahead, unplanned, t.high) // CollectRows reports the error
	seqs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("look for held events: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, seq := range seqs {
		t.ahead[seq] = struct{}{}
	}
	t.looked = true
	return nil
}

// Claim returns the identity of the log's instance, and the number of the term. That
// only rises.
func (t *logTerm) Claim() (instance string, epoch int64) { return t.instance, t.epoch }

// Places returns where streams ended when the last relay recorded that. Call it before
// the first Record.
func (t *logTerm) Places() []eventlog.Place { return slices.Collect(maps.Values(t.places)) }

// Confirm returns nil where this term still leads, and [eventlog.ErrLeaseLost] where
// another has begun. It takes a connection of the pool, and may run beside everything
// else.
func (t *logTerm) Confirm(ctx context.Context) error {
	var leads bool
	if err := t.pool.QueryRow(ctx, t.sql.confirm, t.epoch).Scan(&leads); err != nil {
		return fmt.Errorf("outbox: look at lease: %w", t.advise(err))
	}
	if !leads {
		return fmt.Errorf("outbox: look at lease: %w", eventlog.ErrLeaseLost)
	}
	return nil
}

// Read returns the next committed events in the order in which they are to be
// published, at most limit newer ones, as many late ones and as many that were
// held and are due; none where there is nothing to do. Every event is returned
// once in a term. They lie in the memory of into, which may be nil, where that is
// large enough: what was in it is overwritten.
//
// Where much was committed since the last call, it looks for late events first, for a
// second at a time: it may return none and say that there is More.
func (t *logTerm) Read(ctx context.Context, limit int, into []eventlog.Logged) (eventlog.Page, error) {
	page, err := t.read(ctx, limit, into)
	if err != nil {
		return eventlog.Page{}, fmt.Errorf("outbox: read: %w", t.advise(err))
	}
	return page, nil
}

func (t *logTerm) read(ctx context.Context, limit int, into []eventlog.Logged) (page eventlog.Page, err error) {
	if err := t.lookAhead(ctx); err != nil {
		return eventlog.Page{}, err
	}
	late, more, err := t.catchUp(ctx)
	if err != nil || more {
		return eventlog.Page{More: more}, err
	}
	if page, err = t.readNext(ctx, limit, into); err != nil {
		return eventlog.Page{}, err
	}
	page.Late += int(late)
	t.passed = time.Now()
	return page, nil
}

// readNext reads what is owed, or makes a pass.
func (t *logTerm) readNext(ctx context.Context, limit int, into []eventlog.Logged) (eventlog.Page, error) {
	t.mu.Lock()
	owed, due := len(t.progress.backlog) > 0, slices.AppendSeq([]int64{}, maps.Keys(t.due))
	t.mu.Unlock()
	if owed {
		return t.readBacklog(ctx, limit)
	}

	from := t.progress // high, floor and snap are written by this goroutine alone
	found, err := t.collect(ctx, into, t.sql.pass, from.high, from.floor, from.snap, limit, due)
	if err == nil {
		err = t.samePID(found.pid)
	}
	if err != nil {
		return eventlog.Page{}, err
	}
	if len(found.late) > limit || found.full(partLate) {
		return t.readBacklog(ctx, limit)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.progress.readLate(found.late)
	t.progress.readPage(found.page)
	t.progress.snap = found.snap
	return eventlog.Page{Events: t.admit(found), Late: len(found.late), Scheduled: len(found.scheduled), Unstorable: t.tellSpoilt(), More: found.full(partPage) || found.full(partDue)}, nil
}

// tellSpoilt returns how many events could not be held as they are, once.
func (t *logTerm) tellSpoilt() int {
	n := t.spoilt
	t.spoilt = 0
	return n
}

// admit returns the events that are to be published now: late and new ones of
// the log, then held ones that are due. What the log has scheduled for later
// stays owed until the next recording holds it.
func (t *logTerm) admit(found *rows) []eventlog.Logged {
	if len(found.scheduled) == 0 && len(found.late) == 0 && len(found.due) == 0 && len(t.ahead) == 0 {
		return found.page
	}
	events := make([]eventlog.Logged, 0, len(found.late)+len(found.page)+len(found.due))
	for _, ev := range append(found.late, found.page...) {
		if _, held := t.ahead[ev.Seq]; held {
			delete(t.ahead, ev.Seq)
			t.progress.done([]int64{ev.Seq})
			continue
		}
		if slices.Contains(found.scheduled, ev.Seq) {
			if ev.Fault == nil && ev.Validate() == nil {
				t.later = append(t.later, ev.Seq)
				continue
			}
			ev.Unordered = true // it is refused now, and not when it is due: nobody has to wait for that
		}
		events = append(events, ev)
	}
	for _, ev := range found.due {
		if _, reading := t.due[ev.Seq]; reading {
			continue // it waited behind one that was late, and is on its way
		}
		t.due[ev.Seq] = ""
		if !ev.Unordered {
			t.due[ev.Seq] = ev.Key
		}
		events = append(events, ev)
	}
	return events
}

// readBacklog adds what became visible late to the backlog and reads the
// lowest of it. Nothing newer is read meanwhile.
func (t *logTerm) readBacklog(ctx context.Context, limit int) (eventlog.Page, error) {
	from := t.progress
	row, err := oneRow[gatherRow](ctx, t.reader, t.sql.gather, from.high, from.floor, from.snap)
	if err != nil {
		return eventlog.Page{}, fmt.Errorf("gather late rows: %w", err)
	}
	late, err := parseSpans(row.Late)
	if err = cmp.Or(t.samePID(row.PID), err); err != nil {
		return eventlog.Page{}, err
	}

	t.mu.Lock()
	from.owe(late)
	from.snap = row.Snap
	head, rest := from.backlog.cut(int64(limit))
	t.mu.Unlock()

	lows, highs := make([]int64, len(head)), make([]int64, len(head))
	for i, r := range head {
		lows[i], highs[i] = r.lo, r.hi
	}
	found, err := t.collect(ctx, nil, t.sql.pending, lows, highs)
	if err != nil {
		return eventlog.Page{}, fmt.Errorf("pending rows: %w", err)
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if found.full(partLate) { // what is above was not read
		last := found.late[len(found.late)-1].Seq
		head, rest = head.upTo(last), head.above(last).union(rest)
	}
	from.backlog = rest
	from.readLate(found.late)
	missing := head.size() - int64(len(found.late))
	return eventlog.Page{Events: t.admit(found), Late: int(late.size()), Scheduled: len(found.scheduled), Unstorable: t.tellSpoilt(), Missing: missing, More: found.full(partLate)}, nil
}

type gatherRow struct{ Snap, PID, Late string }

// samePID returns [ErrPooled] where the server process changed under the
// reader's connection.
func (t *logTerm) samePID(pid string) error {
	if t.pid == "" {
		t.pid = pid
	}
	if t.pid != pid {
		return postroom.Refuse(ErrPooled)
	}
	return nil
}

// update runs a statement that changes a row where this term still leads.
func (t *logTerm) update(ctx context.Context, sql string, args ...any) error {
	tag, err := t.writer.Exec(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("outbox: record: %w", t.advise(err))
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("outbox: record: %w", eventlog.ErrLeaseLost)
	}
	return nil
}

// Release records what became of events and gives the lease back, so that another
// relay can take it at once, and closes the term's connections. The term is over
// whatever it returns; [eventlog.ErrLeaseLost] as for [eventlog.Term.Record].
func (t *logTerm) Release(ctx context.Context, p eventlog.Progress) error {
	var err error
	if !t.writer.IsClosed() {
		if err = t.Record(ctx, p); err == nil {
			_, err = t.writer.Exec(ctx, t.sql.release, unplanned, t.epoch)
		}
	}
	return errors.Join(err, t.close())
}

// end gives up a term that did not begin.
func (t *logTerm) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_, err := t.writer.Exec(ctx, t.sql.release, unplanned, t.epoch)
	return errors.Join(err, t.close())
}

func (t *logTerm) close() error {
	return errors.Join(closeConn(t.writer), closeConn(t.reader))
}
