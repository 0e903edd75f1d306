// Package database opens the database that the command line or the environment names.
package database

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/address"
	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/schema"
)

// connectPatience limits the time of an attempt to connect if the URL sets no limit.
const connectPatience = 10 * time.Second

// Target is the database and the schema that a command uses.
type Target struct {
	getenv    func(string) string
	url, name string
}

// New returns a Target for the database that the environment names. Flags can name another
// database.
func New(getenv func(string) string) Target { return Target{getenv: getenv} }

// At returns a Target for the same schema in the database of url. If url is empty, the environment
// names the database.
func (d *Target) At(url string) Target { return Target{getenv: d.getenv, url: url, name: d.name} }

// AddSchemaFlag adds --schema to a command and its subcommands.
func (d *Target) AddSchemaFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&d.name, "schema", "", "schema of the tables (default "+schema.DefaultName+"; env POSTROOM_SCHEMA)")
	command.NoFileCompletion(cmd, "schema")
	argument.Conditions(cmd, "schema")
}

// AddURLFlag adds --database-url. The command reads the environment only when it runs. If the URL
// of the environment were the default of the flag, the help would print the URL with its password.
func (d *Target) AddURLFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.url, "database-url", "", "PostgreSQL URL (env POSTROOM_DATABASE_URL, DATABASE_URL)")
	command.NoFileCompletion(cmd, "database-url")
	argument.Conditions(cmd, "database-url")
}

// Schema returns the schema's name.
func (d *Target) Schema() (string, error) {
	name, err := schema.Name(cmp.Or(d.name, d.getenv("POSTROOM_SCHEMA")))
	if err != nil {
		return "", &exit.UsageError{Err: err}
	}
	return name, nil
}

// With connects, calls the function do with the connection and the schema's name, and closes the
// connection.
func (d *Target) With(ctx context.Context, do func(conn *pgx.Conn, name string) error) error {
	name, err := d.Schema()
	if err != nil {
		return err
	}
	conn, err := d.Connect(ctx)
	if err != nil {
		return err
	}
	// Errors of Postroom's packages already contain advice. remedy.Explain adds advice to errors of
	// statements that a command runs itself.
	err = remedy.Explain(do(conn, name), remedy.Use{Grant: "operator", Schema: name, DB: conn})
	return errors.Join(err, Close(ctx, conn))
}

// Close closes a connection, even if ctx has ended.
func Close(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return conn.Close(ctx)
}

// config returns the URL's settings, and the flag or variable that contains the URL.
func (d *Target) config() (cfg *pgx.ConnConfig, origin string, err error) {
	url, origin := address.First(d.getenv, d.url, "--database-url", "POSTROOM_DATABASE_URL", "DATABASE_URL")
	if url == "" {
		return nil, "", exit.Usagef("which database? Give --database-url or set POSTROOM_DATABASE_URL, for instance postgres://user:password@host:5432/database")
	}
	cfg, err = pgx.ParseConfig(url)
	if err != nil || address.Misplaced(url) {
		// The error does not contain the parser's error, because the parser's error can contain a
		// part of the password.
		return nil, "", exit.Usagef("%s is not a connection URL: write postgres://user:password@host:5432/database; in user and password, write %%40 for '@', %%2F for '/', %%3F for '?', %%23 for '#', %%25 for '%%'", origin)
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectPatience
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "postroom"
	}
	//guard:commands-read-times-in-any-database remove
	cfg.RuntimeParams["datestyle"] = "ISO" // values come as text, because no plan is kept; and poolers know this parameter
	return cfg, origin, nil
}

// Connect connects to the database.
func (d *Target) Connect(ctx context.Context) (*pgx.Conn, error) {
	cfg, origin, err := d.config()
	if err != nil {
		return nil, err
	}
	if _, err := poolConfig(cfg, origin); err != nil {
		return nil, err
	}
	// This connection is in no pool, and the server would refuse the settings of a pool.
	maps.DeleteFunc(cfg.RuntimeParams, func(name, _ string) bool { return strings.HasPrefix(name, "pool_") })
	if cfg.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // works with every pooler
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, connectError(cfg, origin, err)
	}
	return conn, nil
}

// connectError adds advice to the error of a failed connection. The new error contains, of the
// URL, only the address, the user and the database.
func connectError(cfg *pgx.ConnConfig, origin string, err error) error {
	where := fmt.Sprintf("connect to database %q at %s:%d as %q (%s)", cfg.Database, cfg.Host, cfg.Port, cfg.User, origin)
	var server *pgconn.PgError
	switch {
	case !errors.As(err, &server):
		return fmt.Errorf("%s: is the server running, and is the address right? %w", where, rootCause(err))
	case server.Code == "28P01", server.Code == "28000":
		return fmt.Errorf("%s: the server refuses the user or the password; correct the URL: %s", where, server.Message)
	case server.Code == "3D000":
		return fmt.Errorf("%s: the database does not exist; create it with 'createdb' or correct the URL", where)
	default:
		return fmt.Errorf("%s: %s (%s)", where, server.Message, server.Code)
	}
}

// rootCause returns the innermost error, because the errors around it repeat the address.
func rootCause(err error) error {
	for {
		switch x := err.(type) { //nolint:errorlint // walks the tree as errors.As does
		case interface{ Unwrap() []error }:
			all := x.Unwrap()
			if len(all) == 0 {
				return err
			}
			err = all[0]
		case interface{ Unwrap() error }:
			inner := x.Unwrap()
			if inner == nil {
				return err
			}
			err = inner
		default:
			return err
		}
	}
}
