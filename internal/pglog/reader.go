package pglog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/seqset"
	"github.com/postroom/postroom/relay/broker"
)

// listRows is how many rows a statement returns of the lists that the reader reads completely.
const listRows = 10_000

// reader reads the log for a term, on its own connection.
type reader struct {
	log         *Log
	conn        *pgx.Conn
	memory      *memory
	pid         string // the id of the server process of conn
	high        int64  // the recorded high when the term began
	loadedAhead bool   // loadHeldAhead has loaded the seqs above the field high

	searchAbove int64
	searchAfter time.Duration
	searchTime  time.Duration
	passedOver  []int64   // due events that confirmDue has removed: the next pass skips them
	lastPass    time.Time // when the last pass ended
	search      *search   // the running search for late rows, or nil

	slowPass  time.Duration
	dueFrom   string    // from when on events are due that the next passes look at, or empty for all of them
	wholeAt   time.Time // when the last pass that looked at all due events ended; wholeTook is how long it took
	wholeTook time.Duration
}

const (
	// A pass that looks at all due events may take long because the server cannot remove those that were
	// published. If it takes at least slowPass, only 1/wholeShare of the time goes to such passes. The
	// others look only at events that became due up to a minute before it, or later. An event that
	// becomes visible with an earlier time waits for the next pass over all: it was scheduled in a
	// transaction that was open for more than a minute, or the relay was stopped when it became due.
	slowPass   = 50 * time.Millisecond
	wholeShare = 20
)

func newReader(log *Log, conn *pgx.Conn, known *memory, high int64) *reader {
	return &reader{
		log: log, conn: conn, memory: known, high: high,
		searchAbove: searchAbove, searchAfter: searchAfter, searchTime: searchTime, slowPass: slowPass,
	}
}

// Read returns the next committed events in the order in which they must be published: late events,
// newer events, and held events that are due. It returns at most limit events of each kind, or no
// event if there is none. In a term, it returns an event again only after Record got the event in
// Held, Returned or Lost. Read may overwrite buffer and use its memory. buffer may be nil.
//
// If many events were committed since the last call, Read first searches for late events,
// for at most a second in each call. Such a call may return no events and set More.
func (r *reader) Read(ctx context.Context, limit int, buffer []broker.Event) (eventlog.Page, error) {
	page, err := r.read(ctx, limit, buffer)
	if err != nil {
		return eventlog.Page{}, fmt.Errorf("outbox: read: %w", r.log.advise(err))
	}
	return page, nil
}

func (r *reader) read(ctx context.Context, limit int, buffer []broker.Event) (page eventlog.Page, err error) {
	if err := r.loadHeldAhead(ctx); err != nil {
		return eventlog.Page{}, err
	}
	//guard:scheduled-events-are-read-ahead-to-a-limit false
	if r.memory.isFull() {
		return eventlog.Page{}, nil
	}
	late, more, err := r.catchUp(ctx)
	if err != nil || more {
		return eventlog.Page{More: more}, err
	}
	if page, err = r.readNext(ctx, limit, buffer); err != nil {
		return eventlog.Page{}, err
	}
	page.Late += int(late)
	r.lastPass = time.Now()
	return page, nil
}

// loadHeldAhead loads the seqs that held_ahead.sql returns, in the first Read of a term. Lead does
// not call loadHeldAhead, because Lead must return soon: the new lease has to be renewed.
func (r *reader) loadHeldAhead(ctx context.Context) error {
	if r.loadedAhead {
		return nil
	}
	for above := r.high; ; {
		rows, _ := r.conn.Query(ctx, r.log.sql.HeldAhead, noPlan, above, listRows) // CollectRows reports the error
		seqs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return fmt.Errorf("look for held events: %w", err)
		}
		r.memory.addHeldAhead(seqs)
		//guard:all-that-is-held-ahead-is-known true
		if len(seqs) < listRows {
			r.loadedAhead = true
			return nil
		}
		above = seqs[len(seqs)-1]
	}
}

// readNext reads from the backlog, or makes a pass if the backlog is empty. If a pass finds more late
// rows than fit into a page, as after a bulk load that committed late, the reader searches for all of
// them. They become the backlog, or a part of it.
func (r *reader) readNext(ctx context.Context, limit int, buffer []broker.Event) (page eventlog.Page, err error) {
	from := r.memory.position()
	if !r.memory.hasBacklog() {
		found, err := r.pass(ctx, from, limit, buffer)
		if err != nil {
			return eventlog.Page{}, err
		}
		//guard:late-events-that-the-bytes-cut-off-are-owed 2 true
		if len(found.late) <= limit && !found.full(partLate) {
			return r.memory.addPass(found), nil
		}
	}
	var late int64
	if catchesUp, _ := r.memory.catchingUp(); !catchesUp { // otherwise it looks for later late rows after it has caught up
		if _, err := r.beginSearch(ctx, from, nil); err != nil {
			return eventlog.Page{}, err
		}
		var more bool
		if late, more, err = r.continueSearch(ctx); err != nil || more {
			return eventlog.Page{More: more}, err
		}
	}
	page, err = r.readBacklog(ctx, limit)
	page.Late = int(late)
	return page, err
}

// readBacklog reads the lowest events of the backlog. While there is a backlog, no newer event is
// read.
func (r *reader) readBacklog(ctx context.Context, limit int) (eventlog.Page, error) {
	h := r.memory.nextOwed(limit)
	found, err := r.readRanges(ctx, h.seqs)
	if err != nil {
		return eventlog.Page{}, err
	}
	return r.memory.readBacklogPage(found, h), nil
}

// PutBack notes that the relay has no room for some events of the log that Read has returned. They
// stay unpublished, and Read does not return them again in this term: see ReadAgain. PutBack may run
// at the same time as any other method.
func (r *reader) PutBack(seqs []int64) { r.memory.putBack(seqs) }

// ReadAgain returns events that were put back: of those with the given seqs, which are ascending, all
// up to the seq through. It leaves out those that are held meanwhile. It must not run at the same time
// as Read or HeldKeys.
func (r *reader) ReadAgain(ctx context.Context, seqs []int64) (page eventlog.Page, through int64, err error) {
	set := seqset.Of(slices.Clone(seqs))
	found, err := r.readRanges(ctx, set)
	if err != nil {
		return page, 0, fmt.Errorf("outbox: read again: %w", r.log.advise(err))
	}
	page, through = r.memory.readAgain(found, set)
	return page, through, nil
}

// readRanges reads the rows in some ranges of seqs.
func (r *reader) readRanges(ctx context.Context, set seqset.Set) (*rows, error) {
	lows, highs := make([]int64, len(set)), make([]int64, len(set))
	for i, span := range set {
		lows[i], highs[i] = span.Lo, span.Hi
	}
	found, err := r.collect(ctx, nil, r.log.sql.Pending, lows, highs)
	if err != nil {
		return nil, fmt.Errorf("pending rows: %w", err)
	}
	return found, nil
}

// pass runs pass.sql. If confirmDue removes all due events that were found, and there may be more
// due events, the next pass skips the removed events. Otherwise it skips no event.
func (r *reader) pass(ctx context.Context, from state, limit int, buffer []broker.Event) (*rows, error) {
	began, since := time.Now(), r.dueSince()
	found, err := r.collect(ctx, buffer, r.log.sql.Pass, from.high, from.floor, from.snap, limit, append(r.memory.dueSeqs(), r.passedOver...), since)
	if err != nil {
		return nil, err
	}
	if took := time.Since(began); since == always {
		r.dueFrom, r.wholeAt, r.wholeTook = "", time.Now(), took
		if took >= r.slowPass {
			r.dueFrom = found.dueFrom
		}
	}
	found.moreDue = len(found.due)+len(found.busy) >= limit || found.full(partDue)
	if found.moreDue && len(found.due) == 0 {
		//guard:due-events-behind-locked-ones remove
		r.passedOver = append(r.passedOver, found.busy...)
	} else {
		r.passedOver = nil
	}
	return found, r.samePID(found.pid)
}

// always is a time before all others, for a parameter of pass.sql.
const always = "-infinity"

// dueSince returns from when on events are due that the next pass looks at.
func (r *reader) dueSince() string {
	//guard:published-events-cost-a-pass-little true
	if r.dueFrom == "" || time.Since(r.wholeAt) >= wholeShare*r.wholeTook {
		return always
	}
	return r.dueFrom
}

// collect runs pass.sql, pending.sql or republish_page.sql and splits the rows by part. If the
// buffer is large enough, the page uses its memory.
func (r *reader) collect(ctx context.Context, buffer []broker.Event, sql string, args ...any) (*rows, error) {
	result, _ := r.conn.Query(ctx, sql, args...) // result.Err reports the error
	found, err := decodeRows(result, r.conn.TypeMap(), buffer)
	result.Close()
	if err != nil {
		return nil, err
	}
	return found, r.confirmDue(ctx, found)
}

// A transaction may have cancelled or rescheduled an event that is due, or may be changing it now.
// confirmDue removes such an event from found (see unlocked.sql). It asks about each seq in two ways.
func (r *reader) confirmDue(ctx context.Context, found *rows) error {
	if len(found.due) == 0 {
		return nil
	}
	seqs := make([]int64, len(found.due))
	for i := range found.due {
		seqs[i] = found.due[i].Seq
	}
	counts := make(map[int64]int, len(seqs))
	count := func(result pgx.Rows) error {
		var seq int64
		_, err := pgx.ForEachRow(result, []any{&seq}, func() error {
			counts[seq]++
			return nil
		})
		return err
	}
	var batch pgx.Batch
	batch.Queue(r.log.sql.Unlocked, seqs).Query(count)
	batch.Queue(r.log.sql.StillDue, seqs).Query(count)
	if err := r.conn.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("look which due events were cancelled: %w", err)
	}
	found.keepDue(func(seq int64) bool { return counts[seq] == 2 })
	return nil
}

// samePID returns [ErrPooled] if an answer on the reader's connection came from another server
// process than the first answer.
func (r *reader) samePID(pid string) error {
	if r.pid == "" {
		r.pid = pid
	}
	if r.pid != pid {
		return postroom.Unrecoverable(ErrPooled)
	}
	return nil
}

// HeldKeys returns the keys of held events, in any order. Later events of these keys must be held
// too. It may run at the same time as Record or Release, but not at the same time as Read.
func (r *reader) HeldKeys(ctx context.Context) ([]string, error) {
	var keys []string
	for last := ""; ; last = keys[len(keys)-1] {
		rows, _ := r.conn.Query(ctx, r.log.sql.HeldKeys, last, listRows) // AppendRows reports the error
		before, err := len(keys), error(nil)
		if keys, err = pgx.AppendRows(keys, rows, pgx.RowTo[string]); err != nil {
			return nil, fmt.Errorf("outbox: read held keys: %w", r.log.advise(err))
		}
		//guard:all-held-keys-are-known true
		if len(keys)-before < listRows {
			return keys, nil
		}
	}
}

// ReadRepublish returns at most limit of the next events of the running republish. If several
// republishes run, it reads one republish after the other. It skips events that are held, were
// discarded, or are not published yet. It reads a limited part of the log and may find no events
// there. The page's field Advanced says whether to read again at once. With a limit of 0,
// ReadRepublish returns only the state of the republishes.
//
// In a term it returns each event of a republish at most once. It may return an event that
// [eventlog.Term.Read] has returned. It must not run at the same time as Read or HeldKeys.
func (r *reader) ReadRepublish(ctx context.Context, limit int) (eventlog.RepublishPage, error) {
	page, err := r.readRepublish(ctx, limit)
	if err != nil {
		return eventlog.RepublishPage{}, fmt.Errorf("outbox: read republish: %w", r.log.advise(err))
	}
	return page, nil
}

func (r *reader) readRepublish(ctx context.Context, limit int) (eventlog.RepublishPage, error) {
	known, behind, first := r.memory.republishPosition()
	found, err := r.collect(ctx, nil, r.log.sql.RepublishPage, known, behind, limit, first)
	if err == nil {
		err = r.samePID(found.pid)
	}
	var note republishNote
	if err == nil {
		err = json.Unmarshal([]byte(found.snap), &note)
	}
	if err != nil {
		return eventlog.RepublishPage{}, err
	}
	return r.memory.addRepublishPage(known, &note, found.page)
}
