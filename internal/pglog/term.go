package pglog

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/seqset"
)

var _ eventlog.Term = (*term)(nil)

// term is the [eventlog.Term] of a [Log]. It lasts as long as the relay has the lease. The reader
// has its own connection. The recorder and the pruner use the connection of the lease. If a part
// fails, the term is over.
//
// Read may run at the same time as Record or Release. Two calls of Read must not run at the
// same time. Two calls of Record or Release must not run at the same time either.
type term struct {
	*lease
	*reader
	*recorder
	*pruner
}

// newTerm returns the term that begins with the row that lead.sql or adopt.sql returned.
//
//guard:memory-dropped-with-its-connection do var remembered = make(chan map[any]*progress, 1); func init() { remembered <- make(map[any]*progress) }; @
func newTerm(ls *lease, conn *pgx.Conn, row leadRow) (*term, error) {
	pending, err := seqset.Parse(row.Pending)
	if err != nil {
		return nil, err
	}
	positions, err := parseStreams(row.Streams)
	if err != nil {
		return nil, err
	}
	open, err := seqset.Parse(row.Open)
	if err != nil {
		return nil, err
	}
	recorded := state{
		high: row.High, floor: row.Floor, snap: row.Snap, pending: pending, streams: streamsOf(positions),
		catchUp: catchUp{to: row.To, passed: row.Passed, open: open},
	}
	known := newMemory(recorded)
	//guard:memory-dropped-with-its-connection/2 do all := <-remembered; last := all[ls.log.pool]; all[ls.log.pool] = known.progress; remembered <- all; if last != nil { known.progress = last }; @
	return &term{
		lease:    ls,
		reader:   newReader(ls.log, conn, known, row.High),
		recorder: &recorder{lease: ls, memory: known, recorded: recorded, positions: positions},
		pruner:   &pruner{lease: ls},
	}, nil
}

// Prune deletes published events, as the method of pruner says. It deletes none while the recorded
// state lacks lost events, because these may be the ones.
func (t *term) Prune(ctx context.Context, keep time.Duration) (removed int64, more bool, err error) {
	//guard:lost-events-are-not-pruned false
	if t.hidden {
		return 0, false, nil
	}
	return t.pruner.Prune(ctx, keep)
}

// Release records the results of events, gives up the lease so that another relay can take
// it at once, and closes the term's connections. The term is over even if Release fails.
// Like [eventlog.Term.Record], it can return [eventlog.ErrLeaseLost].
//
// Release makes as many recordings as the results need. It leaves scheduled events that are not held
// yet to the next term, which reads them from the log again.
func (t *term) Release(ctx context.Context, p eventlog.Progress) error {
	var err error
	if !t.lease.conn.IsClosed() {
		for more := true; more && err == nil; p = (eventlog.Progress{}) {
			err = t.Record(ctx, p)
			//guard:release-records-everything false
			more = t.recorder.memory.hasResults()
		}
		if err == nil {
			err = t.release(ctx)
		}
	}
	return errors.Join(err, t.close())
}

func (t *term) close() error {
	return connections{writer: t.lease.conn, reader: t.reader.conn}.close()
}
