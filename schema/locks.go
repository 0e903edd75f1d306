package schema

import (
	"context"
	_ "embed" // blockers.sql, holders.sql
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A migration that waits for a lock has everybody behind it wait too, each producer
// among them: a request for a strong lock stands in the queue before theirs. So it asks
// for its locks first, gives up soon, lets the others go on, and tries again later.
const (
	// firstLock is how long the first lock is waited for, while nothing is held. It is
	// longer than the server's default for deadlock_timeout, after which the server ends
	// an autovacuum that is in the way.
	firstLock = 1500 * time.Millisecond

	// allLocks bounds the wait for the first lock and the others together: those who use
	// a table that is locked already wait for as long.
	allLocks = 1800 * time.Millisecond

	// laterLock is how long each of the others is waited for.
	laterLock = 100 * time.Millisecond

	// turn is how long those who migrate the same schema are waited for. Nothing is
	// held then that anybody else waits for.
	turn = 10 * time.Second

	// After an attempt the next one follows this much later, twice as much each time.
	firstPause = 200 * time.Millisecond
	lastPause  = 10 * time.Second
)

//go:embed blockers.sql
var blockersSQL string

//go:embed holders.sql
var holdersSQL string

// Blocker is a session, or a prepared transaction, that holds a lock on a table of the
// schema for so long that a migration may be waiting for it.
type Blocker struct {
	PID         int      // of the server's process; 0 for a prepared transaction
	Application string   // its application_name
	Role        string   // who it is logged in as
	State       string   // as in pg_stat_activity, for instance "idle in transaction"; empty where this role is not told
	Tables      []string // what it has locked; none: it migrates this schema itself

	Age      time.Duration // since its transaction began, by the database's clock
	QueryAge time.Duration // since its last statement began; zero where this role is not told
}

// String returns what a person has to know to find the blocker.
func (b Blocker) String() string {
	var s strings.Builder
	if b.PID == 0 {
		s.WriteString(b.State)
	} else {
		fmt.Fprintf(&s, "pid %d", b.PID)
		if b.Application != "" {
			fmt.Fprintf(&s, " (%s)", b.Application)
		}
	}
	if b.Role != "" {
		fmt.Fprintf(&s, " of role %s", b.Role)
	}
	if b.PID != 0 && b.State != "" {
		s.WriteString(", " + b.State)
	}
	if b.Age > 0 {
		fmt.Fprintf(&s, ", transaction open for %s", b.Age.Round(time.Second))
	}
	if b.QueryAge > 0 {
		fmt.Fprintf(&s, ", last statement began %s ago", b.QueryAge.Round(time.Second))
	}
	if len(b.Tables) > 0 {
		s.WriteString(", uses " + strings.Join(b.Tables, ", "))
	} else {
		s.WriteString(", migrates this schema too")
	}
	return s.String()
}

// Wait says that a migration could not have its locks, let everybody pass, and tries
// again later.
type Wait struct {
	Migration Migration
	Attempt   int           // that failed, from 1 on
	Pause     time.Duration // until the next one
	Blockers  []Blocker     // who may be in the way, the oldest first; none where that ended just now
}

// String returns the wait as a line for a person.
func (w Wait) String() string {
	s := fmt.Sprintf("migration %d %s waits for a lock", w.Migration.Version, w.Migration.Name)
	for i, b := range w.Blockers {
		if i == 0 {
			s += " behind "
		} else {
			s += "; "
		}
		s += b.String()
	}
	return s
}

// BlockedError is returned if the context ended while a migration waited for a lock.
// The migration is not applied; those before it are.
type BlockedError struct {
	Wait
	Err error // why it waits no longer
}

// Error names who is in the way, and says what to do.
func (e *BlockedError) Error() string {
	return fmt.Sprintf("%s; it was not applied: %v; let that end or end it, with SELECT pg_terminate_backend(pid), and migrate again", e.Wait, e.Err)
}

// Unwrap returns why it waits no longer.
func (e *BlockedError) Unwrap() error { return e.Err }

// strong matches what locks a table that others use: in which mode, and which table.
var strong = []struct {
	mode string
	form *regexp.Regexp
}{
	{"ACCESS EXCLUSIVE", regexp.MustCompile(`(?i)\b(?:ALTER TABLE|DROP TABLE|TRUNCATE(?: TABLE)?)(?: IF EXISTS)?(?: ONLY)?\s+postroom\.([a-z_]+)`)},
	{"ACCESS EXCLUSIVE", regexp.MustCompile(`(?i)\bDROP TRIGGER(?: IF EXISTS)?\s+[a-z_]+\s+ON\s+postroom\.([a-z_]+)`)},
	{"SHARE ROW EXCLUSIVE", regexp.MustCompile(`(?is)\bCREATE(?: OR REPLACE)?(?: CONSTRAINT)? TRIGGER\s[^;]*?\sON\s+postroom\.([a-z_]+)`)},
	{"SHARE ROW EXCLUSIVE", regexp.MustCompile(`(?i)\bREFERENCES\s+postroom\.([a-z_]+)`)},
	{"SHARE", regexp.MustCompile(`(?is)\bCREATE(?: UNIQUE)? INDEX\s[^;]*?\sON\s+postroom\.([a-z_]+)`)},
}

// lock is a lock on a table.
type lock struct{ table, mode string }

// locksOf returns the locks that a migration, as its file has it, takes of tables, each
// in its strongest mode. Some of the tables may be its own.
func locksOf(sql string) []lock {
	var locks []lock
	for _, s := range strong { // the strongest first
		for _, m := range s.form.FindAllStringSubmatch(sql, -1) {
			if !slices.ContainsFunc(locks, func(l lock) bool { return l.table == m[1] }) {
				locks = append(locks, lock{table: m[1], mode: s.mode})
			}
		}
	}
	// Producers and handlers wait last, and so for the shortest time.
	hot := []string{"inbox", "held", "relay", "outbox"}
	slices.SortStableFunc(locks, func(a, b lock) int { return slices.Index(hot, a.table) - slices.Index(hot, b.table) })
	return locks
}

// lockedError says which lock could not be had.
type lockedError struct {
	table   string
	holders []string // the transactions that had a lock of the table before it was asked for; not nil
	err     error
}

func (e *lockedError) Error() string { return e.err.Error() }
func (e *lockedError) Unwrap() error { return e.err }

// takeLocks takes the locks of tables that exist, and leaves a short lock_timeout for
// what follows.
func takeLocks(ctx context.Context, tx pgx.Tx, name string, locks []lock) error {
	began := time.Now()
	within := firstLock
	for _, l := range locks {
		if err := setLockTimeout(ctx, tx, within); err != nil {
			return err
		}
		var exists bool
		holders := []string{}
		if err := tx.QueryRow(ctx, holdersSQL, fmt.Sprintf("%q.%q", name, l.table)).Scan(&exists, &holders); err != nil {
			return fmt.Errorf("look for table: %w", err)
		}
		if !exists {
			continue
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("LOCK TABLE %q.%q IN %s MODE", name, l.table, l.mode)); err != nil {
			return &lockedError{table: l.table, holders: holders, err: err}
		}
		within = min(laterLock, max(allLocks-time.Since(began), 10*time.Millisecond))
	}
	return setLockTimeout(ctx, tx, laterLock)
}

// setLockTimeout sets it until the transaction ends.
func setLockTimeout(ctx context.Context, tx pgx.Tx, d time.Duration) error {
	if _, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', $1, true)", fmt.Sprintf("%dms", d.Milliseconds())); err != nil {
		return fmt.Errorf("set lock_timeout: %w", err)
	}
	return nil
}

// isBlocked reports whether err says that a lock could not be had: a transaction that
// failed so can be tried again.
func isBlocked(err error) bool {
	const lockNotAvailable, deadlock = "55P03", "40P01"
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == lockNotAvailable || pg.Code == deadlock)
}

// blockerRow is what blockers.sql returns.
type blockerRow struct {
	PID                      int
	Application, Role, State string
	Age, QueryAge            float64
	Tables                   []string
}

// blockers returns who may be in the way: of the given virtual transactions, who is there
// still; with nil for them, whoever did not begin just now.
func blockers(ctx context.Context, db DB, name string, holders []string) (all []Blocker, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// In a caller's transaction the server goes on to show the sessions of the last look.
		if _, err := tx.Exec(ctx, "SELECT pg_stat_clear_snapshot()"); err != nil {
			return err
		}
		all, err = readBlockers(ctx, tx, name, holders)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look who is in the way: %w", err)
	}
	return all, nil
}

func readBlockers(ctx context.Context, tx pgx.Tx, name string, holders []string) ([]Blocker, error) {
	rows, _ := tx.Query(ctx, In(name, blockersSQL), holders) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[blockerRow])
	if err != nil {
		return nil, err
	}
	all := make([]Blocker, len(found))
	for i, row := range found {
		all[i] = Blocker{
			PID: row.PID, Application: row.Application, Role: row.Role, State: row.State, Tables: row.Tables,
			Age:      time.Duration(row.Age * float64(time.Second)),
			QueryAge: time.Duration(row.QueryAge * float64(time.Second)),
		}
	}
	return all, nil
}

// pauseAfter returns how long to wait after so many attempts: others are let pass
// meanwhile, and several who migrate do not try in step.
func pauseAfter(attempts int) time.Duration {
	d := min(firstPause<<min(attempts-1, 10), lastPause)
	return d/2 + rand.N(d/2) //nolint:gosec // no secret
}
