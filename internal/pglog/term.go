package pglog

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/eventlog"
	"github.com/postroom/postroom/internal/seqset"
)

var _ eventlog.Term = (*term)(nil)

// term is a term of a [Log], as [eventlog.Term] describes: it leads by its lease, reads on
// a connection of its own, and records. Reader, recorder and memory share one fate.
//
// Read, and Record with Release, may run beside each other; neither may run
// twice at once.
type term struct {
	*lease
	*reader
	*recorder
	*pruner
}

// newTerm returns the term that begins from the row that taking the lease returned.
func newTerm(ls *lease, conn *pgx.Conn, row leadRow) (*term, error) {
	pending, err := seqset.Parse(row.Pending)
	if err != nil {
		return nil, err
	}
	places, err := placesOf(row.Streams)
	if err != nil {
		return nil, err
	}
	recorded := state{high: row.High, floor: row.Floor, snap: row.Snap, pending: pending}
	known := newMemory(recorded)
	return &term{
		lease:    ls,
		reader:   newReader(ls.log, conn, known, row.High),
		recorder: &recorder{lease: ls, memory: known, recorded: recorded, places: places},
		pruner:   &pruner{lease: ls},
	}, nil
}

// Release records what became of events and gives the lease back, so that another
// relay can take it at once, and closes the term's connections. The term is over
// whatever it returns; [eventlog.ErrLeaseLost] as for [eventlog.Term.Record].
func (t *term) Release(ctx context.Context, p eventlog.Progress) error {
	var err error
	if !t.lease.conn.IsClosed() {
		if err = t.Record(ctx, p); err == nil {
			err = t.release(ctx)
		}
	}
	return errors.Join(err, t.close())
}

func (t *term) close() error {
	return connections{writer: t.lease.conn, reader: t.reader.conn}.close()
}
