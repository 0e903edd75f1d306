// Package session takes away what code of a user's left behind in the session of a pooled
// connection: what the next borrower of the connection would find there, such as another
// search_path, another role or another tenant's setting.
//
// Between Begin and End, which are parts of batches and cost no round trip, a connection is
// the user's. If a pool makes its connections without a hook, End sets back all settings,
// which are those of the connection's beginning then. A hook may have set some of its own,
// which no query lists completely, and RESET would take those away: connections of such a pool
// are compared before and after, and closed if they differ, or if a statement was seen that
// sets something. The pool opens another, and its hook makes of that what it wants.
package session

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	//go:embed sql/look.sql
	lookSQL string
	//go:embed sql/restore.sql
	restoreSQL string
)

// Pool is what is known of the sessions of a pool. It is safe for concurrent use; a
// connection is one borrower's at a time.
type Pool struct {
	hooked          bool // something may set settings when a connection is made
	names, settings []string

	// restores is set if RESET ALL was seen to take away some of names.
	restores atomic.Bool
}

// Of returns what is known of the sessions of a pool.
func Of(pool *pgxpool.Pool) *Pool {
	if pool == nil {
		return new(Pool)
	}
	cfg := pool.Config()
	p := &Pool{hooked: cfg.AfterConnect != nil || cfg.ConnConfig.AfterConnect != nil || cfg.ConnConfig.ValidateConnect != nil}
	for name, setting := range cfg.ConnConfig.RuntimeParams {
		// Those that PgBouncer keeps for each of its clients.
		switch strings.ToLower(name) {
		case "application_name", "client_encoding", "datestyle", "intervalstyle", "search_path", "standard_conforming_strings", "timezone":
			p.names, p.settings = append(p.names, name), append(p.settings, setting)
		}
	}
	return p
}

// state is what a connection's session was like before, and is like now.
type state struct {
	before, now looks
	discards    bool // user code made temporary tables: they are dropped each time
}

// looks is what look.sql returns.
type looks struct {
	known, temporary bool
	session, current string
	settings         []string
}

func (l *looks) read(row pgx.Row) error {
	var locks string
	if err := row.Scan(&l.temporary, &l.session, &l.current, &l.settings, &locks); err != nil {
		return fmt.Errorf("look at the session: %w", err)
	}
	l.known = true
	return nil
}

func (l *looks) equal(other looks) bool {
	return l.isUser(other) && slices.Equal(l.settings, other.settings)
}

func (l *looks) isUser(other looks) bool {
	return l.session == other.session && l.current == other.current
}

// noted is where a connection keeps its state.
const noted = "postroom.session"

func stateOf(conn *pgx.Conn) *state {
	s, ok := conn.PgConn().CustomData()[noted].(*state)
	if !ok {
		s = new(state)
		conn.PgConn().CustomData()[noted] = s
	}
	return s
}

// Begin adds to a batch, before anything of the user's, a look at the session, where it is
// needed: at the first time that the connection is seen, and each time if the pool has a
// hook, as other hooks may have made it another since. The batch must be read or closed
// before End is called.
func (p *Pool) Begin(conn *pgx.Conn, batch *pgx.Batch) {
	if s := stateOf(conn); p.hooked || !s.before.known {
		s.before.known = false
		batch.Queue(lookSQL).QueryRow(s.before.read)
	}
}

// Note is Begin in a round trip of its own, if one is needed.
func (p *Pool) Note(ctx context.Context, conn *pgx.Conn) error {
	batch := &pgx.Batch{}
	if p.Begin(conn, batch); batch.Len() == 0 {
		return nil
	}
	return conn.SendBatch(ctx, batch).Close()
}

// End adds to a batch, behind the end of the user's transaction, what sets the session
// back. Ended has to be called when the batch was closed.
func (p *Pool) End(conn *pgx.Conn, batch *pgx.Batch) { p.end(conn, batch, 0) }

// end is End after statements that were seen to leave something.
func (p *Pool) end(conn *pgx.Conn, batch *pgx.Batch, seen Traces) {
	s := stateOf(conn)
	s.now = looks{}
	if !p.hooked && seen&Settings != 0 { // which RESET ALL leaves alone
		batch.Queue("RESET SESSION AUTHORIZATION")
		batch.Queue("RESET ROLE")
	}
	if !p.hooked {
		batch.Queue("RESET ALL")
		if p.restores.Load() {
			batch.Queue(restoreSQL, p.names, p.settings)
		}
	}
	if s.discards {
		batch.Queue("DISCARD TEMP")
	}
	batch.Queue(lookSQL).QueryRow(s.now.read)
}

var (
	errUnknown = errors.New("the session was not looked at before")
	errOther   = errors.New("the session has another user or other settings than before")
)

// Ended is called when the batch of End was closed, with the error of that. It closes the
// connection if its session is not what it was before, and returns why.
func (p *Pool) Ended(ctx context.Context, conn *pgx.Conn, err error) error {
	s := stateOf(conn)
	switch {
	case err != nil:
	case !s.before.known || !s.now.known:
		err = errUnknown
	case !s.before.equal(s.now):
		if len(p.names) > 0 && s.before.isUser(s.now) && p.restores.CompareAndSwap(false, true) {
			return p.Reset(ctx, conn) // now with those
		}
		err = errOther
	case s.now.temporary && !s.before.temporary && !s.discards:
		s.discards = true
		_, err = conn.Exec(ctx, "DISCARD TEMP")
	}
	if err != nil {
		_ = conn.Close(ctx) // it is given up
	}
	return err
}

// Reset does all that End and Ended do, in a round trip of its own.
func (p *Pool) Reset(ctx context.Context, conn *pgx.Conn) error {
	if conn.IsClosed() {
		return nil
	}
	batch := &pgx.Batch{}
	p.End(conn, batch)
	return p.Ended(ctx, conn, conn.SendBatch(ctx, batch).Close())
}
