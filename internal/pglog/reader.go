package pglog

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/seqset"
)

// reader reads the log for a term, on a connection of its own.
type reader struct {
	log    *Log
	conn   *pgx.Conn
	memory *memory
	pid    string // the server process behind conn
	high   int64  // the recorded high that the term began with
	looked bool   // for what is held above it

	searchAbove int64
	searchAfter time.Duration
	searchTime  time.Duration
	passed      time.Time // when the last pass ended
	search      *search   // for late rows; nil where none is under way
}

func newReader(log *Log, conn *pgx.Conn, known *memory, high int64) *reader {
	return &reader{
		log: log, conn: conn, memory: known, high: high,
		searchAbove: searchAbove, searchAfter: searchAfter, searchTime: searchTime,
	}
}

// Read returns the next committed events in the order in which they are to be
// published, at most limit newer ones, as many late ones and as many that were
// held and are due; none where there is nothing to do. Every event is returned
// once in a term. They lie in the memory of into, which may be nil, where that is
// large enough: what was in it is overwritten.
//
// Where much was committed since the last call, it looks for late events first, for a
// second at a time: it may return none and say that there is More.
func (r *reader) Read(ctx context.Context, limit int, into []eventlog.Logged) (eventlog.Page, error) {
	page, err := r.read(ctx, limit, into)
	if err != nil {
		return eventlog.Page{}, fmt.Errorf("outbox: read: %w", r.log.advise(err))
	}
	return page, nil
}

func (r *reader) read(ctx context.Context, limit int, into []eventlog.Logged) (page eventlog.Page, err error) {
	if err := r.lookAhead(ctx); err != nil {
		return eventlog.Page{}, err
	}
	late, more, err := r.catchUp(ctx)
	if err != nil || more {
		return eventlog.Page{More: more}, err
	}
	if page, err = r.readNext(ctx, limit, into); err != nil {
		return eventlog.Page{}, err
	}
	page.Late += int(late)
	r.passed = time.Now()
	return page, nil
}

// lookAhead notes what is held above the recorded high, before the first row is read
// there. It is not done while the lease is taken: that has to be renewed soon.
func (r *reader) lookAhead(ctx context.Context) error {
	if r.looked {
		return nil
	}
	rows, _ := r.conn.Query(ctx, r.log.sql.Ahead, unplanned, r.high) // CollectRows reports the error
	seqs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("look for held events: %w", err)
	}
	r.memory.lookedAhead(seqs)
	r.looked = true
	return nil
}

// readNext reads what is owed, or makes a pass.
func (r *reader) readNext(ctx context.Context, limit int, into []eventlog.Logged) (eventlog.Page, error) {
	if r.memory.owes() {
		return r.readBacklog(ctx, limit)
	}
	found, err := r.pass(ctx, r.memory.position(), limit, into)
	if err != nil {
		return eventlog.Page{}, err
	}
	if len(found.late) > limit || found.full(partLate) {
		return r.readBacklog(ctx, limit)
	}
	return r.memory.passed(found), nil
}

// readBacklog adds what became visible late to the backlog and reads the
// lowest of it. Nothing newer is read meanwhile.
func (r *reader) readBacklog(ctx context.Context, limit int) (eventlog.Page, error) {
	from := r.memory.position()
	row, err := oneRow[gatherRow](ctx, r.conn, r.log.sql.Gather, from.high, from.floor, from.snap)
	if err != nil {
		return eventlog.Page{}, fmt.Errorf("gather late rows: %w", err)
	}
	if err := r.samePID(row.PID); err != nil {
		return eventlog.Page{}, err
	}
	late, err := seqset.Parse(row.Late)
	if err != nil {
		return eventlog.Page{}, err
	}
	head := r.memory.gathered(late, row.Snap, limit)
	lows, highs := make([]int64, len(head)), make([]int64, len(head))
	for i, span := range head {
		lows[i], highs[i] = span.Lo, span.Hi
	}
	found, err := r.collect(ctx, nil, r.log.sql.Pending, lows, highs)
	if err != nil {
		return eventlog.Page{}, fmt.Errorf("pending rows: %w", err)
	}
	page := r.memory.readOwed(found, head)
	page.Late = int(late.Size())
	return page, nil
}

type gatherRow struct{ Snap, PID, Late string }

// pass runs pass.sql.
func (r *reader) pass(ctx context.Context, from state, limit int, into []eventlog.Logged) (*rows, error) {
	found, err := r.collect(ctx, into, r.log.sql.Pass, from.high, from.floor, from.snap, limit, r.memory.dueSeqs())
	if err != nil {
		return nil, err
	}
	return found, r.samePID(found.pid)
}

// collect runs pass.sql, pending.sql or rewound.sql and splits the rows by part. The
// page lies in the memory of into, as far as that goes.
func (r *reader) collect(ctx context.Context, into []eventlog.Logged, sql string, args ...any) (*rows, error) {
	result, _ := r.conn.Query(ctx, sql, args...) // result.Err reports the error
	defer result.Close()
	return decodeRows(result, r.conn.TypeMap(), into)
}

// samePID returns [ErrPooled] where the server process changed under the
// reader's connection.
func (r *reader) samePID(pid string) error {
	if r.pid == "" {
		r.pid = pid
	}
	if r.pid != pid {
		return postroom.Unrecoverable(ErrPooled)
	}
	return nil
}

// HeldKeys returns the keys that have events in held, in no order. Later events
// of them have to be held too. It may run beside Record or Release, not beside
// Read.
func (r *reader) HeldKeys(ctx context.Context) ([]string, error) {
	rows, _ := r.conn.Query(ctx, r.log.sql.Keys) // CollectRows reports the error
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("outbox: read held keys: %w", r.log.advise(err))
	}
	return keys, nil
}

// Rewound returns the next events of the rewind that runs, at most limit of them; of
// several rewinds one after the other. Events that are held, were discarded, or are not
// published yet are skipped. It looks at a bounded part of the log and may find none
// there: Moved says whether to look again. With a limit of 0 it only says how rewinds
// stand.
//
// Every event is returned once in a term, beside those of [eventlog.Term.Read]. It does not run
// beside Read or HeldKeys.
func (r *reader) Rewound(ctx context.Context, limit int) (eventlog.Rewound, error) {
	page, err := r.rewound(ctx, limit)
	if err != nil {
		return eventlog.Rewound{}, fmt.Errorf("outbox: read rewind: %w", r.log.advise(err))
	}
	return page, nil
}

func (r *reader) rewound(ctx context.Context, limit int) (eventlog.Rewound, error) {
	known, place, first := r.memory.rewindPlace()
	found, err := r.collect(ctx, nil, r.log.sql.Rewound, known, place, limit, first)
	if err == nil {
		err = r.samePID(found.pid)
	}
	var note rewoundNote
	if err == nil {
		err = json.Unmarshal([]byte(found.snap), &note)
	}
	if err != nil {
		return eventlog.Rewound{}, err
	}
	return r.memory.rewound(known, &note, found.page)
}
