package schema

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/remedy"
)

//go:embed sql/*.sql
var files embed.FS

var (
	//go:embed version.sql
	versionSQL string

	//go:embed applied.sql
	appliedSQL string

	//go:embed granted.sql
	grantedSQL string

	//go:embed rights.sql
	rightsSQL string

	//go:embed record.sql
	recordSQL string
)

// servesFrom is the number of a migration. Every program that has this migration can work with the
// tables of the newest migration. servesFrom rises only in a new major version, together with a
// migration that changes or removes something.
const servesFrom = 1

var (
	// ErrOutdated says that the database lacks migrations that this code needs.
	ErrOutdated = errors.New("schema is older than this code")

	// ErrTooNew says that a newer version of Postroom migrated the database, and that this code
	// cannot work with the new tables.
	ErrTooNew = errors.New("schema is too new for this code")
)

// DB is a *pgxpool.Pool, a *pgx.Conn, a *pgxpool.Conn or a pgx.Tx.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Migration is one step of the schema.
type Migration struct {
	Version   int
	Name      string    // a part of the file's name, for instance "log"
	SQL       string    // the statements, with the configured name of the schema
	AppliedAt time.Time // zero if the migration is not applied

	source string // the text of the file
}

// Migrations returns all steps in order, for the schema with the given name. An empty name
// means [DefaultName].
func Migrations(name string) ([]Migration, error) { return migrationsIn(files, name) }

// migrationsIn returns the steps in the directory sql of a file system.
func migrationsIn(files fs.FS, name string) ([]Migration, error) {
	name, err := Name(name)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	paths, err := fs.Glob(files, "sql/*.sql")
	if err != nil {
		return nil, fmt.Errorf("schema: list migrations: %w", err)
	}
	steps := make([]Migration, 0, len(paths))
	for i, p := range paths {
		text, err := fs.ReadFile(files, p)
		if err != nil {
			return nil, fmt.Errorf("schema: read migration: %w", err)
		}
		number, title, _ := strings.Cut(strings.TrimSuffix(path.Base(p), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("schema: migration %s is not number %d", path.Base(p), i+1)
		}
		steps = append(steps, Migration{Version: version, Name: title, SQL: In(name, string(text)), source: string(text)})
	}
	return steps, nil
}

// Migrator brings a schema to the newest version. The zero value is ready to use.
type Migrator struct {
	// Schema is the name of the schema. Empty means [DefaultName].
	Schema string

	// Migrate calls Waiting each time a migration did not get a lock and will be tried again. The
	// call is in the goroutine that called Migrate. Waiting may be nil.
	Waiting func(Wait)

	files fs.FS // the migrations; nil means the migrations of this package. Only tests set it
}

// Migrate brings the schema with the given name to the newest version, as [Migrator.Migrate]
// does. An empty name means [DefaultName].
func Migrate(ctx context.Context, db DB, name string) ([]Migration, error) {
	return Migrator{Schema: name}.Migrate(ctx, db)
}

// Migrate brings the schema to the newest version. It returns the steps that it applied, and none
// if the schema has the newest version already.
//
// Each step is one transaction, together with the row that records the step and the grants of each
// role, which it repeats: a table or a function that the step creates anew has none. A role has a
// grant if it has all rights of the grant before the step. Any number of
// processes may call Migrate at once. They take turns with an advisory lock of the transaction. An
// advisory lock of the session would not work behind a connection pooler.
//
// A step takes its locks first. It waits for the locks for less than two seconds, because producers
// and handlers wait behind the step. If the step does not get its locks, for instance during a dump
// of the database, Migrate pauses, so that other sessions go on. Then Migrate tries again. If ctx
// ends after the first try, before the step gets its locks, Migrate returns a [*BlockedError]. If
// db is a pgx.Tx, the transaction keeps the locks of earlier steps during the pauses.
func (m Migrator) Migrate(ctx context.Context, db DB) ([]Migration, error) {
	source := m.files
	if source == nil {
		source = files
	}
	steps, err := migrationsIn(source, m.Schema)
	if err != nil {
		return nil, err
	}
	name, err := Name(m.Schema)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	var applied []Migration
	for {
		step, err := m.migrateNext(ctx, db, name, steps)
		if err != nil {
			return applied, fmt.Errorf("schema: %w", explainOwner(err, db, name))
		}
		if step == nil {
			return applied, nil
		}
		applied = append(applied, *step)
	}
}

// migrateNext applies the first missing step as soon as it gets the locks, and returns the step. It
// returns nil if no step is missing.
func (m Migrator) migrateNext(ctx context.Context, db DB, name string, steps []Migration) (*Migration, error) {
	var wait *Wait
	var front string // the table whose lock the last attempt did not get; the next attempt locks it first
	for attempt := 1; ; attempt++ {
		step, applied, err := migrateOne(ctx, db, name, steps, front)
		if err == nil {
			if applied {
				return step, nil
			}
			return nil, nil
		}
		if wait != nil && ctx.Err() != nil {
			return nil, &BlockedError{Wait: *wait, Err: ctx.Err()}
		}
		if step == nil || !isBlocked(err) {
			return nil, err
		}
		var holders []string
		if locked := (*lockedError)(nil); errors.As(err, &locked) {
			front, holders = locked.table, locked.holders
		}
		wait = &Wait{Migration: *step, Attempt: attempt, Pause: pauseAfter(attempt)}
		if wait.Blockers, err = blockers(ctx, db, name, holders); err != nil && ctx.Err() == nil {
			return nil, err
		}
		if m.Waiting != nil {
			m.Waiting(*wait)
		}
		select {
		case <-ctx.Done():
			return nil, &BlockedError{Wait: *wait, Err: ctx.Err()}
		case <-time.After(wait.Pause):
		}
	}
}

// migrateOne applies the first missing step. It returns that step even if the step could
// not be applied, and nil if no step is missing.
func migrateOne(ctx context.Context, db DB, name string, steps []Migration, front string) (step *Migration, applied bool, err error) {
	if len(steps) > 0 {
		step = &steps[0] // the step to return if this call cannot read the version because another process migrates for too long
	}
	err = beginCommitted(ctx, db, func(tx pgx.Tx) error {
		var timeout, searchPath string
		const settings = "SELECT pg_catalog.current_setting('lock_timeout'), pg_catalog.current_setting('search_path')"
		if err := tx.QueryRow(ctx, settings).Scan(&timeout, &searchPath); err != nil {
			return fmt.Errorf("read settings: %w", err)
		}
		if err := fits(ctx, tx, db, name); err != nil {
			return err
		}
		if err := setLockTimeout(ctx, tx, turn); err != nil {
			return err
		}
		//guard:migrations-read-strings-as-the-standard-does remove
		if _, err := tx.Exec(ctx, "SET LOCAL standard_conforming_strings = on"); err != nil {
			return fmt.Errorf("set standard_conforming_strings: %w", err)
		}
		if _, err := tx.Exec(ctx, In(name, versionSQL)); err != nil {
			return fmt.Errorf("create version table: %w", err)
		}
		version, _, err := current(ctx, tx, name)
		if err != nil {
			return err
		}
		if step = nil; version < len(steps) {
			step = &steps[version]
			if err := step.apply(ctx, tx, name, front); err != nil {
				return err
			}
		}
		const restore = "SELECT pg_catalog.set_config('lock_timeout', $1, true), pg_catalog.set_config('search_path', $2, true)"
		//guard:migrations-leave-the-callers-lock-timeout 3 = "1h"
		//guard:migrations-leave-the-callers-search-path 4 = "pg_catalog"
		_, err = tx.Exec(ctx, restore, timeout, searchPath) // because the transaction of a caller goes on after the migration
		return err
	})
	return step, err == nil && step != nil, err
}

// apply takes the locks, if necessary on the front table first, applies the step, and repeats the
// grants of each role.
func (m *Migration) apply(ctx context.Context, tx pgx.Tx, name, front string) error {
	locks := locksOf(m.source)
	if i := slices.IndexFunc(locks, func(l lock) bool { return l.table == front }); i > 0 {
		first := locks[i]
		locks = slices.Insert(slices.Delete(locks, i, i+1), 0, first)
	}
	if err := takeLocks(ctx, tx, name, locks); err != nil {
		return fmt.Errorf("lock tables for migration %d %s: %w", m.Version, m.Name, err)
	}
	rows, _ := tx.Query(ctx, In(name, grantedSQL)) // CollectRows reports the error
	grants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil {
		grants, err = complete(ctx, tx, name, grants)
	}
	if err != nil {
		return fmt.Errorf("read the grants before migration %d %s: %w", m.Version, m.Name, err)
	}
	if _, err := tx.Exec(ctx, m.SQL); err != nil {
		return fmt.Errorf("apply migration %d %s: %w", m.Version, m.Name, err)
	}
	// What the migration created anew has no rights yet.
	//guard:roles-keep-their-rights-after-a-migration remove
	if _, err := tx.Exec(ctx, strings.Join(grants, "; ")); err != nil {
		return fmt.Errorf("repeat the grants after migration %d %s: %w", m.Version, m.Name, err)
	}
	if _, err := tx.Exec(ctx, In(name, recordSQL), m.Version, m.Name, servesFrom); err != nil {
		return fmt.Errorf("record migration %d: %w", m.Version, err)
	}
	return nil
}

// complete returns those of the grants that would give nothing new now. The role of another one got
// some of its rights by hand, or by default privileges, and must not get the rest.
func complete(ctx context.Context, tx pgx.Tx, name string, grants []string) (all []string, err error) {
	for _, grant := range grants {
		var before, after int
		err := pgx.BeginFunc(ctx, tx, func(trial pgx.Tx) error { // a savepoint
			if err := trial.QueryRow(ctx, In(name, rightsSQL)).Scan(&before); err != nil {
				return err
			}
			if _, err := trial.Exec(ctx, grant); err != nil {
				return err
			}
			if err := trial.QueryRow(ctx, In(name, rightsSQL)).Scan(&after); err != nil {
				return err
			}
			return errTried
		})
		var pg *pgconn.PgError
		switch {
		//guard:a-migration-gives-no-rights-to-others 2 true
		case errors.Is(err, errTried) && after == before:
			all = append(all, grant)
		case errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "42883"): // a later migration makes what the grant is about
		case !errors.Is(err, errTried):
			return nil, err
		}
	}
	return all, nil
}

// errTried ends a trial, so that it is rolled back.
var errTried = errors.New("tried")

// beginCommitted runs f in a read committed transaction, even if the database has another default.
// At a stricter level, the transaction would use the snapshot that it took before it waited for the
// lock, and would apply a step that another process has just applied. If db is a pgx.Tx, the level
// of that transaction stays as it is.
func beginCommitted(ctx context.Context, db DB, f func(tx pgx.Tx) error) error {
	if b, ok := db.(interface {
		BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
	}); ok {
		//guard:migrations-are-read-committed 3.1 remove
		return pgx.BeginTxFunc(ctx, b, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, f)
	}
	return pgx.BeginFunc(ctx, db, f)
}

// Status returns all steps of the schema with the given name, each with the time at which it
// was applied.
func Status(ctx context.Context, db DB, name string) ([]Migration, error) {
	steps, err := Migrations(name)
	if err != nil {
		return nil, err
	}
	name, err = Name(name)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := fits(ctx, tx, db, name); err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, In(name, appliedSQL)) // CollectRows reports the error
		done, err := pgx.CollectRows(rows, pgx.RowToStructByPos[appliedRow])
		for _, row := range done {
			if row.Version <= len(steps) {
				steps[row.Version-1].AppliedAt = time.UnixMicro(row.AppliedAt)
			}
		}
		return err // even if isUndefined(err), because a transaction with a failed statement cannot commit
	})
	if err != nil && !isUndefined(err) {
		return nil, fmt.Errorf("schema: read version: %w", explainReader(err, db, name))
	}
	return steps, nil
}

// Require returns nil if this program can work with the schema of the given name. An empty name
// means [DefaultName]. If the schema is too old or too new, the error matches [ErrOutdated] or
// [ErrTooNew]. If no program can work in the database, or this role cannot, it matches
// [ErrEncoding] or [ErrRowSecurity]. Each error says what to do. The Check methods of the other
// packages call Require.
func Require(ctx context.Context, db DB, name string) error {
	steps, err := Migrations(name)
	if err != nil {
		return err
	}
	name, err = Name(name)
	if err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	var version, needs int
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err = fits(ctx, tx, db, name); err != nil {
			return err
		}
		version, needs, err = current(ctx, tx, name)
		return err
	})
	switch {
	//guard:tables-that-are-too-old-are-refused 2 remove
	case isUndefined(err), err == nil && version < len(steps):
		has, command := fmt.Sprintf("version %d", version), "postroom migrate up"
		if version == 0 {
			has += " (no tables)"
		}
		if name != DefaultName {
			command += " --schema " + name
		}
		return postroom.Unrecoverable(fmt.Errorf("schema: %w: %s of %s has %s and version %d is needed; run '%s' or call schema.Migrate",
			ErrOutdated, name, remedy.DatabaseOf(db), has, len(steps), command))
	case errors.Is(err, ErrEncoding), errors.Is(err, ErrRowSecurity):
		return fmt.Errorf("schema: %w", err)
	case err != nil:
		return fmt.Errorf("schema: read version: %w", err)
	//guard:tables-that-are-too-new-are-refused false
	case needs > len(steps):
		return postroom.Unrecoverable(fmt.Errorf("schema: %w: %s of %s has version %d, which needs code of version %d, and this is %d; deploy a newer Postroom",
			ErrTooNew, name, remedy.DatabaseOf(db), version, needs, len(steps)))
	}
	return nil
}

// Print returns all migrations as one script for psql or for your own migration tool. The
// script also inserts the rows that record the migrations.
func Print(name string) (string, error) {
	steps, err := Migrations(name)
	if err != nil {
		return "", err
	}
	if name, err = Name(name); err != nil {
		return "", fmt.Errorf("schema: %w", err)
	}
	var b strings.Builder
	b.WriteString("BEGIN ISOLATION LEVEL READ COMMITTED;\n\n" + In(name, versionSQL))
	for _, s := range steps {
		fmt.Fprintf(&b, "\n-- Migration %d: %s\n\n%s", s.Version, s.Name, s.SQL)
		fmt.Fprintf(&b, "\nINSERT INTO %q.migration (version, name, serves_from) VALUES (%d, '%s', %d);\n",
			name, s.Version, s.Name, servesFrom)
	}
	b.WriteString("\nCOMMIT;\n")
	return b.String(), nil
}

type appliedRow struct {
	Version    int
	ServesFrom int
	AppliedAt  int64 // microseconds
}

// current returns the number of the newest applied migration (version), and the one that a program
// must have to work with the tables (needs). Both are 0 if no migration is applied.
func current(ctx context.Context, tx pgx.Tx, name string) (version, needs int, err error) {
	rows, _ := tx.Query(ctx, In(name, appliedSQL)) // CollectRows reports the error
	done, err := pgx.CollectRows(rows, pgx.RowToStructByPos[appliedRow])
	if err != nil || len(done) == 0 {
		return 0, 0, err
	}
	last := done[len(done)-1]
	return last.Version, last.ServesFrom, nil
}

// isUndefined reports whether err says that the schema or its version table does not exist. Then no
// migration was applied yet.
func isUndefined(err error) bool {
	var pg *pgconn.PgError
	//guard:missing-tables-are-refused 2.1 false
	return errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000")
}
