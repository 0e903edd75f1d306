package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
)

// Term is the time in which one owner leads a log: it reads events, and records
// which are published. Reader, recorder and memory share one fate. After any
// error a Term is over, because a database that failed over hands out seqs
// again, and what is remembered of the old ones would hide new events: release
// it and lead anew.
//
// Read, and Record with Release, may run beside each other; neither may run
// twice at once.
type Term struct {
	sql    statements
	lease  time.Duration
	epoch  int64
	reader *pgx.Conn
	writer *pgx.Conn
	pid    string // the server process behind reader

	mu       sync.Mutex // guards progress, later and due
	progress *progress
	later    []int64            // read from the log and scheduled: to be held by the next recording
	due      map[int64]struct{} // read from held and not yet recorded as published
	recorded state              // what the row says
}

// begin starts from the row that taking the lease returned.
func (t *Term) begin(row leadRow) error {
	pending, err := parseSpans(row.Pending)
	if err != nil {
		return err
	}
	t.epoch = row.Epoch
	t.recorded = state{high: row.High, floor: row.Floor, snap: row.Snap, pending: pending}
	t.progress = resume(t.recorded)
	t.due = make(map[int64]struct{})
	return nil
}

// Epoch numbers the terms of a log. It only rises.
func (t *Term) Epoch() int64 { return t.epoch }

// Read returns the next committed events in the order in which they are to be
// published, at most limit newer ones, as many late ones and as many that were
// held and are due; none where there is nothing to do. Every event is returned
// once in a term.
func (t *Term) Read(ctx context.Context, limit int) (postroom.Page, error) {
	page, err := t.read(ctx, limit)
	if err != nil {
		return postroom.Page{}, fmt.Errorf("outbox: read: %w", err)
	}
	return page, nil
}

func (t *Term) read(ctx context.Context, limit int) (postroom.Page, error) {
	t.mu.Lock()
	owed := len(t.progress.backlog) > 0
	t.mu.Unlock()
	if owed {
		return t.readBacklog(ctx, limit)
	}

	from := t.progress // high, floor and snap are written by this goroutine alone
	found, err := t.pass(ctx, from.high, from.floor, from.snap, limit)
	if err != nil {
		return postroom.Page{}, err
	}
	if len(found.late) > limit {
		return t.readBacklog(ctx, limit)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.progress.readLate(found.late)
	t.progress.readPage(found.page)
	t.progress.snap = found.snap
	return postroom.Page{Events: t.admit(found), Late: len(found.late), Held: len(found.scheduled)}, nil
}

// admit returns the events that are to be published now: late and new ones of
// the log, then held ones that are due. What the log has scheduled for later
// stays owed until the next recording holds it.
//
// An event can be found in both, after a crash: it was held, and the recording
// that a new leader began from stopped short of it. One of the two is let pass.
func (t *Term) admit(found rows) []postroom.Logged {
	if len(found.scheduled) == 0 && len(found.late) == 0 && len(found.due) == 0 && len(t.due) == 0 {
		return found.page
	}
	var events []postroom.Logged
	for _, ev := range append(found.late, found.page...) {
		if _, held := t.due[ev.Seq]; held || slices.Contains(found.scheduled, ev.Seq) {
			t.later = append(t.later, ev.Seq)
			continue
		}
		events = append(events, ev)
	}
	for _, ev := range found.due {
		if !t.progress.isOpen(ev.Seq) {
			t.due[ev.Seq] = struct{}{}
			events = append(events, ev)
		}
	}
	return events
}

// readBacklog adds what became visible late to the backlog and reads the
// lowest of it. Nothing newer is read meanwhile.
func (t *Term) readBacklog(ctx context.Context, limit int) (postroom.Page, error) {
	from := t.progress
	row, err := oneRow[gatherRow](ctx, t.reader, t.sql.gather, from.high, from.floor, from.snap)
	if err != nil {
		return postroom.Page{}, fmt.Errorf("gather late rows: %w", err)
	}
	if err := t.samePID(row.PID); err != nil {
		return postroom.Page{}, err
	}
	late, err := parseSpans(row.Late)
	if err != nil {
		return postroom.Page{}, err
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
	found, err := t.collect(ctx, t.sql.pending, lows, highs)
	if err != nil {
		return postroom.Page{}, fmt.Errorf("pending rows: %w", err)
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	from.backlog = rest
	from.readLate(found.late)
	missing := head.size() - int64(len(found.late))
	return postroom.Page{Events: t.admit(found), Late: int(late.size()), Held: len(found.scheduled), Missing: missing}, nil
}

type gatherRow struct{ Snap, PID, Late string }

// pass runs pass.sql.
func (t *Term) pass(ctx context.Context, high, floor int64, snap string, limit int) (rows, error) {
	t.mu.Lock()
	due := slices.Collect(maps.Keys(t.due))
	t.mu.Unlock()
	found, err := t.collect(ctx, t.sql.pass, high, floor, snap, limit, append([]int64{}, due...))
	if err != nil {
		return rows{}, err
	}
	return found, t.samePID(found.pid)
}

// samePID returns [ErrPooled] where the server process changed under the
// reader's connection.
func (t *Term) samePID(pid string) error {
	if t.pid == "" {
		t.pid = pid
	}
	if t.pid != pid {
		return postroom.Refuse(ErrPooled)
	}
	return nil
}

// logRow is a row of pass.sql and pending.sql.
type logRow struct {
	Part                       int
	Seq                        int64
	Note                       *string
	EventID                    string
	Source, Type, Subject, Key *string
	ContentType, Correlation   *string
	Causation                  *string
	Occurred                   *time.Time
	TraceParent, TraceState    *string
	Headers                    []byte
	Data                       []byte
	LoggedAt                   time.Time
	Scheduled                  bool
}

// rows are what a statement over the log found: late ones, the next page and
// those that are held and due, each sorted as they come, and which of the log's
// are scheduled for later.
type rows struct {
	snap, pid       string
	late, page, due []postroom.Logged
	scheduled       []int64
}

// collect runs pass.sql or pending.sql and splits the rows by part.
func (t *Term) collect(ctx context.Context, sql string, args ...any) (found rows, err error) {
	result, _ := t.reader.Query(ctx, sql, args...) // result.Err reports the error
	defer result.Close()
	for result.Next() {
		var r logRow
		if err := result.Scan(&r.Part, &r.Seq, &r.Note, &r.EventID, &r.Source, &r.Type, &r.Subject, &r.Key, &r.ContentType,
			&r.Correlation, &r.Causation, &r.Occurred, &r.TraceParent, &r.TraceState, &r.Headers, &r.Data, &r.LoggedAt, &r.Scheduled); err != nil {
			return found, fmt.Errorf("scan: %w", err)
		}
		if r.Scheduled {
			found.scheduled = append(found.scheduled, r.Seq)
		}
		switch r.Part {
		case 0:
			found.snap, found.pid = text(r.Note), r.EventID
		case 1:
			found.late = append(found.late, r.logged())
		case 2:
			found.page = append(found.page, r.logged())
		default:
			found.due = append(found.due, r.logged())
		}
	}
	sortBySeq(found.late)
	sortBySeq(found.page)
	return found, result.Err()
}

func (r *logRow) logged() postroom.Logged {
	ev := postroom.Event{
		ID: r.EventID, Source: text(r.Source), Type: text(r.Type), Subject: text(r.Subject), Key: text(r.Key),
		ContentType: text(r.ContentType), CorrelationID: text(r.Correlation), CausationID: text(r.Causation),
		TraceParent: text(r.TraceParent), TraceState: text(r.TraceState),
		Time: r.LoggedAt, LoggedAt: r.LoggedAt, Data: r.Data,
	}
	if r.Occurred != nil {
		ev.Time = *r.Occurred
	}
	if len(r.Headers) > 0 {
		ev.Headers = headersOf(r.Headers)
	}
	return postroom.Logged{Seq: r.Seq, Event: ev}
}

// headersOf reads a jsonb object. Values that are no strings, which only a
// writer in SQL can produce, travel as their JSON.
func headersOf(object []byte) map[string]string {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(object, &values); err != nil {
		return nil // not reached: jsonb, and the table's CHECK demands an object
	}
	headers := make(map[string]string, len(values))
	for name, value := range values {
		var s string
		if err := json.Unmarshal(value, &s); err != nil {
			s = string(value)
		}
		headers[name] = s
	}
	return headers
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func sortBySeq(events []postroom.Logged) {
	bySeq := func(a, b postroom.Logged) int { return cmp.Compare(a.Seq, b.Seq) }
	if !slices.IsSortedFunc(events, bySeq) { // each part comes sorted, unless the plan appends in parallel
		slices.SortFunc(events, bySeq)
	}
}

// Record notes that the events of the given seqs are published, stores it with
// the epoch of this term, and renews the lease. It returns
// [postroom.ErrLeaseLost] where another term has begun: then nothing was stored.
// After any other error it is unknown whether it was.
func (t *Term) Record(ctx context.Context, published []int64) error {
	t.mu.Lock()
	fromHeld := t.takeDue(published)
	later := slices.Clone(t.later) // kept until they are held: Release may have to try again
	t.progress.done(published)
	t.progress.done(later)
	next := t.progress.state()
	t.mu.Unlock()

	if len(published) == 0 && len(later) == 0 && next.high == t.recorded.high && slices.Equal(next.pending, t.recorded.pending) {
		// Nothing was published and nothing is newly owed. The older snapshot that
		// stays recorded only makes the next leader look further back.
		return t.update(ctx, t.sql.renew, t.epoch, t.lease)
	}
	err := t.update(ctx, t.sql.record, t.epoch, next.high, next.floor, next.snap, next.pending.String(), t.lease, fromHeld, later)
	if err != nil {
		return err
	}
	t.recorded = next
	t.mu.Lock()
	defer t.mu.Unlock()
	t.later = t.later[len(later):] // what Read has added meanwhile
	for _, seq := range fromHeld {
		delete(t.due, seq)
	}
	return nil
}

// takeDue returns those of the published seqs that were read from held. What
// is held is no longer part of the log's progress.
func (t *Term) takeDue(published []int64) []int64 {
	fromHeld := []int64{}
	for _, seq := range published {
		if _, ok := t.due[seq]; ok {
			fromHeld = append(fromHeld, seq)
		}
	}
	return fromHeld
}

// update runs a statement that changes a row where this term still leads.
func (t *Term) update(ctx context.Context, sql string, args ...any) error {
	tag, err := t.writer.Exec(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("outbox: record: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("outbox: record: %w", postroom.ErrLeaseLost)
	}
	return nil
}

// Release records what is published and gives the lease back, so that another
// relay can take it at once, and closes the term's connections. The term is over
// whatever it returns; [postroom.ErrLeaseLost] as for [Term.Record].
func (t *Term) Release(ctx context.Context, published []int64) error {
	var err error
	if !t.writer.IsClosed() {
		if err = t.Record(ctx, published); err == nil {
			_, err = t.writer.Exec(ctx, t.sql.release, t.epoch)
		}
	}
	return errors.Join(err, t.close())
}

// end gives up a term that did not begin.
func (t *Term) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, err := t.writer.Exec(ctx, t.sql.release, t.epoch)
	return errors.Join(err, t.close())
}

func (t *Term) close() error {
	err := closeConn(t.writer)
	if t.reader != nil {
		err = errors.Join(err, closeConn(t.reader))
	}
	return err
}
