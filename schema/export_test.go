package schema

import (
	"context"
	"io/fs"
	"maps"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
)

// With returns the migrations of this package, with more files behind them.
func With(more fstest.MapFS) fs.FS {
	all := fstest.MapFS{}
	paths, err := fs.Glob(files, "sql/*.sql")
	for _, p := range paths {
		if err == nil {
			var text []byte
			text, err = files.ReadFile(p)
			all[p] = &fstest.MapFile{Data: text}
		}
	}
	if err != nil {
		panic(err) // it is embedded
	}
	maps.Copy(all, more)
	return all
}

// From returns the migrator with the migrations of another file system.
func (m Migrator) From(source fs.FS) Migrator {
	m.files = source
	return m
}

// MigrationsIn returns the migrations of another file system.
func MigrationsIn(source fs.FS) ([]Migration, error) { return migrationsIn(source, "") }

// LocksOf returns the tables that a migration locks before it does anything else, each with its
// lock mode.
func LocksOf(m Migration) map[string]string {
	locks := map[string]string{}
	for _, l := range locksOf(m.source) {
		locks[l.table] = l.mode
	}
	return locks
}

// Holders returns the transactions that have a lock of a table.
func Holders(ctx context.Context, tx pgx.Tx, table string) (holders []string, err error) {
	var exists bool
	err = tx.QueryRow(ctx, holdersSQL, table).Scan(&exists, &holders)
	return holders, err
}

// Blockers returns the sessions that may block a migration.
func Blockers(ctx context.Context, tx pgx.Tx, holders []string) ([]Blocker, error) {
	return blockers(ctx, tx, DefaultName, holders)
}

// ReadBlockers returns the blockers. It uses the sessions that the transaction saw first.
func ReadBlockers(ctx context.Context, tx pgx.Tx, holders []string) ([]Blocker, error) {
	return readBlockers(ctx, tx, DefaultName, holders)
}
