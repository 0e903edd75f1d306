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

// While a migration waits for a strong lock of a table, all later requests for a lock of this table
// wait behind the migration, even those of producers. So a migration asks for all its locks first,
// and gives up soon if one is missing. Then other sessions go on. The migration tries again later.
const (
	// firstLock is how long to wait for the first lock, while the migration holds no lock. The time
	// is longer than the default of deadlock_timeout, because after that default the server ends an
	// autovacuum that is in the way.
	//guard:a-migration-waits-for-its-first-lock-for-a-short-time = 6000 * @2
	firstLock = 1500 * time.Millisecond

	// allLocks is how long to wait for all locks together. If the migration has locked a table
	// already, other sessions that use the table may wait for that long too.
	allLocks = 1800 * time.Millisecond

	// laterLock is how long to wait for each lock after the first one.
	laterLock = 100 * time.Millisecond

	// turn is how long to wait for another process that migrates the same schema. No other session
	// waits for this migration during that time, because it holds no lock of a table yet.
	turn = 10 * time.Second

	// The pause after the first attempt. It doubles after each attempt, up to lastPause.
	firstPause = 200 * time.Millisecond
	lastPause  = 10 * time.Second
)

//go:embed blockers.sql
var blockersSQL string

//go:embed holders.sql
var holdersSQL string

// Blocker is a session or a prepared transaction that has locked a table of the schema,
// so that a migration may be waiting for it.
type Blocker struct {
	PID         int      // the id of the server's process; 0 for a prepared transaction
	Application string   // the application_name of the session
	Role        string   // the role as which the session is logged in
	State       string   // as in pg_stat_activity, for instance "idle in transaction", or "prepared transaction" and its name; empty if this role may not see it
	Tables      []string // the tables that the blocker has locked; none if the blocker also migrates this schema

	Age      time.Duration // time since its transaction began, by the database's clock
	QueryAge time.Duration // time since its last statement began; zero if this role may not see it
}

// String describes the blocker so that a person can find it.
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

// Wait says that a migration did not get its locks and will try again later.
type Wait struct {
	Migration Migration
	Attempt   int           // the number of the attempt that failed, from 1
	Pause     time.Duration // how long until the next attempt
	Blockers  []Blocker     // what may be in the way, the oldest first; empty if the blocker has just ended
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

// BlockedError means that the context ended while a migration waited for a lock. This migration is
// not applied. Earlier migrations are applied.
type BlockedError struct {
	Wait
	Err error // why the migration stopped waiting
}

// Error names the blockers, and says what to do.
func (e *BlockedError) Error() string {
	return fmt.Sprintf("%s; it was not applied: %v; wait until that ends, or end it with SELECT pg_terminate_backend(pid), and migrate again", e.Wait, e.Err)
}

// Unwrap returns why the migration stopped waiting.
func (e *BlockedError) Unwrap() error { return e.Err }

// The slice strong has expressions for the statements that take a strong lock on a table, each with
// the mode of the lock. The expressions capture the table's name.
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

// locksOf returns the table locks that a migration's file needs: for each table the
// strongest mode. The result includes tables that the migration itself creates.
func locksOf(sql string) []lock {
	var locks []lock
	for _, s := range strong { // the strongest modes come first
		for _, m := range s.form.FindAllStringSubmatch(sql, -1) {
			if !slices.ContainsFunc(locks, func(l lock) bool { return l.table == m[1] }) {
				locks = append(locks, lock{table: m[1], mode: s.mode})
			}
		}
	}
	// The tables of producers and handlers come last, so that producers and handlers wait for
	// the shortest time.
	hot := []string{"inbox", "held", "relay", "outbox"}
	slices.SortStableFunc(locks, func(a, b lock) int { return slices.Index(hot, a.table) - slices.Index(hot, b.table) })
	return locks
}

// lockedError says which lock the migration did not get.
type lockedError struct {
	table   string
	holders []string // the transactions that had locked the table before the migration asked for its lock; this slice is not nil
	err     error
}

func (e *lockedError) Error() string { return e.err.Error() }
func (e *lockedError) Unwrap() error { return e.err }

// takeLocks takes the locks of the tables that exist. It leaves lock_timeout short for the
// statements that follow.
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

// setLockTimeout sets lock_timeout until the transaction ends.
func setLockTimeout(ctx context.Context, tx pgx.Tx, d time.Duration) error {
	if _, err := tx.Exec(ctx, "SELECT pg_catalog.set_config('lock_timeout', $1, true)", fmt.Sprintf("%dms", d.Milliseconds())); err != nil {
		return fmt.Errorf("set lock_timeout: %w", err)
	}
	return nil
}

// isBlocked reports whether a transaction failed because it did not get a lock. Such a transaction
// can be tried again.
func isBlocked(err error) bool {
	const lockNotAvailable, deadlock = "55P03", "40P01"
	var pg *pgconn.PgError
	//guard:a-migration-that-is-blocked-tries-again = @1 && @2.2 && @2.1.1 != @2.1.2
	return errors.As(err, &pg) && (pg.Code == lockNotAvailable || pg.Code == deadlock)
}

// blockerRow is a row of blockers.sql.
type blockerRow struct {
	PID                      int
	Application, Role, State string
	Age, QueryAge            float64
	Tables                   []string
}

// blockers returns the transactions that may be in the way. The slice holders has the virtual ids
// of transactions; the result has only the ones that are still open. If holders is nil, it has all
// transactions except those that began just now.
func blockers(ctx context.Context, db DB, name string, holders []string) (all []Blocker, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// In a transaction, the server repeats its first answer about the sessions. So if db is a
		// transaction, this statement makes the server look again.
		//guard:each-look-at-sessions-is-new 0.2 = "SELECT"
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

// pauseAfter returns how long to wait after this number of attempts, so that other sessions can go
// on. A part of the wait is random, so that several migrating processes do not try at the same
// time.
func pauseAfter(attempts int) time.Duration {
	d := min(firstPause<<min(attempts-1, 10), lastPause)
	return d/2 + rand.N(d/2) //nolint:gosec // no secret
}
