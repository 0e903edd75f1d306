// Package session restores the session of a pooled connection after a user's code ran on it.
// Otherwise the next user of the connection would get what this code changed, such as the
// search_path, the role or a tenant's setting.
//
// The user's code runs between Begin and End. Both add statements to batches of their caller, so
// they need no round trip of their own. If the pool has no hook for new connections, End resets all
// settings to their values at the start of the connection. If the pool has a hook, the hook may
// have changed settings. RESET would undo these changes, and no query lists all settings. So End
// resets no settings of such a connection, and Ended compares the session with the session before
// the user's code. If the session differs, or if a statement changed a setting, the connection is
// closed. The pool then opens a new connection and calls its hook.
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

// Pool restores the sessions of one pgxpool.Pool. It is safe for concurrent use, but a connection
// must have only one user at a time.
type Pool struct {
	hooked          bool // a hook may change the settings of a new connection
	names, settings []string

	// The field restores is true after Ended found that RESET ALL removes settings in the field
	// names. From then on, End sets these again after RESET ALL.
	restores atomic.Bool
}

// Of returns the Pool for a pgxpool.Pool.
func Of(pool *pgxpool.Pool) *Pool {
	if pool == nil {
		return new(Pool)
	}
	cfg := pool.Config()
	p := &Pool{hooked: cfg.AfterConnect != nil || cfg.ConnConfig.AfterConnect != nil || cfg.ConnConfig.ValidateConnect != nil}
	for name, setting := range cfg.ConnConfig.RuntimeParams {
		// PgBouncer keeps these settings for each of its clients.
		switch strings.ToLower(name) {
		case "application_name", "client_encoding", "datestyle", "intervalstyle", "search_path", "standard_conforming_strings", "timezone":
			p.names, p.settings = append(p.names, name), append(p.settings, setting)
		}
	}
	return p
}

// state is the session of a connection before a user's code ran, and after it ran.
type state struct {
	before, now looks
	discards    bool // the user's code creates temporary tables; End drops them each time
}

// looks is the row of look.sql.
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

// The constant noted is the name under which a connection keeps its state.
const noted = "postroom.session"

func stateOf(conn *pgx.Conn) *state {
	s, ok := conn.PgConn().CustomData()[noted].(*state)
	if !ok {
		s = new(state)
		conn.PgConn().CustomData()[noted] = s
	}
	return s
}

// Begin adds to a batch a statement that reads the session, if the connection is new. If the pool
// has a hook for new connections, Begin adds the statement each time, because another hook, such as
// BeforeAcquire, may have changed the session since the last End. Call Begin before the user's
// first statement. Read or close the batch before you call End.
func (p *Pool) Begin(conn *pgx.Conn, batch *pgx.Batch) {
	if s := stateOf(conn); p.hooked || !s.before.known {
		s.before.known = false
		batch.Queue(lookSQL).QueryRow(s.before.read)
	}
}

// Note does what Begin does, in a separate round trip.
func (p *Pool) Note(ctx context.Context, conn *pgx.Conn) error {
	batch := &pgx.Batch{}
	if p.Begin(conn, batch); batch.Len() == 0 {
		return nil
	}
	return conn.SendBatch(ctx, batch).Close()
}

// End adds to a batch the statements that restore the session. They must come after the end of the
// user's transaction. Call Ended after you closed the batch.
func (p *Pool) End(conn *pgx.Conn, batch *pgx.Batch) { p.end(conn, batch, 0) }

// end does what End does, for statements of the user that left the given traces.
func (p *Pool) end(conn *pgx.Conn, batch *pgx.Batch, seen Traces) {
	s := stateOf(conn)
	s.now = looks{}
	if !p.hooked && seen&Settings != 0 { // RESET ALL resets neither the session user nor the current user
		batch.Queue("RESET SESSION AUTHORIZATION")
		batch.Queue("RESET ROLE")
	}
	if !p.hooked {
		//guard:settings-are-reset remove
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

// Ended checks the session after the batch of End was closed. err is the error that closing the
// batch returned. If err is not nil, or if the session differs from the one that Begin read, Ended
// closes the connection and returns why.
func (p *Pool) Ended(ctx context.Context, conn *pgx.Conn, err error) error {
	s := stateOf(conn)
	switch {
	case err != nil:
	case !s.before.known || !s.now.known:
		err = errUnknown
	//guard:another-user-closes-the-connection false
	case !s.before.equal(s.now):
		if len(p.names) > 0 && s.before.isUser(s.now) && p.restores.CompareAndSwap(false, true) {
			//guard:what-a-pooler-set-is-restored = errOther
			return p.Reset(ctx, conn) // this time End also restores the settings in the field names
		}
		err = errOther
	//guard:temporary-tables-are-dropped false
	case s.now.temporary && !s.before.temporary && !s.discards:
		s.discards = true
		_, err = conn.Exec(ctx, "DISCARD TEMP")
	}
	if err != nil {
		_ = conn.Close(ctx) // the pool opens another connection
	}
	return err
}

// Reset does what End and Ended do, in a separate round trip.
func (p *Pool) Reset(ctx context.Context, conn *pgx.Conn) error {
	if conn.IsClosed() {
		return nil
	}
	batch := &pgx.Batch{}
	p.End(conn, batch)
	return p.Ended(ctx, conn, conn.SendBatch(ctx, batch).Close())
}
