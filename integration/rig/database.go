package rig

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/devstack"
)

// Database is a database of a server, with the rig's own connections to it.
type Database struct {
	URL  string
	Pool *pgxpool.Pool
}

// CreateDatabase creates a database. The parameter app is the application name of the rig's
// connections. If app is empty, the driver's default is used.
func CreateDatabase(ctx context.Context, server *devstack.Postgres, name, app string, connections int32) (*Database, error) {
	url, err := server.CreateDatabase(ctx, name, "")
	if err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = connections
	if app != "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = app
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Database{URL: url, Pool: pool}, nil
}

// Exec runs a statement.
func (d *Database) Exec(ctx context.Context, sql string, args ...any) error {
	if _, err := d.Pool.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("%.60s: %w", sql, err)
	}
	return nil
}

// Number runs a query whose result is a number.
func (d *Database) Number(ctx context.Context, sql string, args ...any) (n int, err error) {
	if err = d.Pool.QueryRow(ctx, sql, args...).Scan(&n); err != nil {
		err = fmt.Errorf("%.60s: %w", sql, err)
	}
	return n, err
}

// Collect reads rows. The columns are the fields of T, in order.
func Collect[T any](ctx context.Context, d *Database, sql string, args ...any) ([]T, error) {
	rows, err := d.Pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("%.60s: %w", sql, err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}

// Patience is how long the rig waits for a server or the operating system. It is not a limit for
// Postroom: if the time runs out, the run is undecided.
const Patience = 3 * time.Minute

// Again repeats the function try while try fails, for instance because a server is starting again.
// If the given time ends first, Again returns [childproc.ErrLate] with the last failure.
func Again(ctx context.Context, within time.Duration, what string, try func(ctx context.Context) error) error {
	var last error
	err := childproc.Eventually(ctx, within, what, func(ctx context.Context) (bool, error) {
		attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		last = try(attempt)
		return last == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("%w, at last: %w", err, last)
	}
	return err
}
