// Package migratecmd has the commands that create the tables and migrate them to the version of
// this program.
package migratecmd

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/database"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/schema"
)

// New returns the command migrate, the group of the commands of this package.
func New(getenv func(string) string) *cobra.Command {
	db := database.New(getenv)
	cmd := command.Group("migrate", "Create the tables, and migrate them to this version",
		newUp(&db), newStatus(&db), newPrint(&db))
	cmd.Long = `Create the tables of Postroom, and migrate them to the version of this program.

Within a major version, migrations only add to the tables, so older programs still work
afterwards: migrate first, then deploy the new programs. Any number of processes may
run 'migrate up' at once. Each migration is applied once.`
	db.AddSchemaFlag(cmd)
	return cmd
}

func newUp(db *database.Target) *cobra.Command {
	var asJSON bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Apply the pending migrations",
		Long: `Apply the pending migrations, each in its own transaction.

The role needs CREATE on the database, or must own the schema. It need not be a
superuser.

A migration waits for its locks for less than two seconds at a time, because producers
wait behind it. If a dump or an open transaction holds such a lock, the command says so
on standard error, lets the waiting producers continue, and tries again. After --timeout
it gives up: the migration is not applied, and you can run the command again.`,
		Example: `  postroom migrate up --database-url postgres://localhost/shop
  POSTROOM_DATABASE_URL=postgres://localhost/shop postroom migrate up
  postroom migrate up --schema shop_events
  postroom migrate up --timeout 10m`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return db.With(cmd.Context(), func(conn *pgx.Conn, name string) error {
				applied, err := migrate(cmd, conn, name, timeout)
				err = errors.Join(err, printApplied(cmd, asJSON, applied))
				if err == nil {
					err = schema.Require(cmd.Context(), conn, name) // returns an error if the schema is newer than this program
				}
				if err == nil && !asJSON && len(applied) == 0 {
					err = output.Line(cmd.OutOrStdout(), "nothing to do: schema %s of %s is up to date", name, remedy.DatabaseOf(conn))
				}
				return err
			})
		},
	}
	db.AddURLFlag(cmd)
	command.AddJSON(cmd, &asJSON)
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait for locks and for other migrations; 0 means no limit")
	argument.AtLeast(cmd, "timeout", &timeout, 0)
	return cmd
}

// migrate applies pending migrations. It names the sessions that block a migration.
func migrate(cmd *cobra.Command, conn *pgx.Conn, name string, timeout time.Duration) ([]schema.Migration, error) {
	ctx := cmd.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	m := schema.Migrator{Schema: name, Waiting: func(w schema.Wait) {
		_ = output.Line(cmd.ErrOrStderr(), "%s; the next try is in %s", w, w.Pause.Round(100*time.Millisecond)) // an error means that no process reads standard error
	}}
	return m.Migrate(ctx, conn)
}

func printApplied(cmd *cobra.Command, asJSON bool, applied []schema.Migration) error {
	if asJSON {
		return printJSON(cmd, applied)
	}
	for _, m := range applied {
		if err := output.Line(cmd.OutOrStdout(), "applied %d %s", m.Version, m.Name); err != nil {
			return err
		}
	}
	return nil
}

func newStatus(db *database.Target) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations are applied",
		Long: `Show which migrations are applied, and when. Changes nothing.

Exit status 0: all migrations are applied. 3: some are pending. 1: the schema is too new
for this program.`,
		Example: `  postroom migrate status
  postroom migrate status --json | jq '.migrations[] | select(.applied_at == null)'`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return db.With(cmd.Context(), func(conn *pgx.Conn, name string) error {
				steps, err := schema.Status(cmd.Context(), conn, name)
				if err != nil {
					return err
				}
				if err := printSteps(cmd, asJSON, steps); err != nil {
					return err
				}
				if n := pending(steps); n > 0 {
					return exit.Todof("schema %s of %s: %s pending: run 'postroom migrate up'", name, remedy.DatabaseOf(conn), output.Plural(n, "migration"))
				}
				return schema.Require(cmd.Context(), conn, name)
			})
		},
	}
	db.AddURLFlag(cmd)
	command.AddJSON(cmd, &asJSON)
	return cmd
}

func pending(steps []schema.Migration) int {
	n := 0
	for _, m := range steps {
		if m.AppliedAt.IsZero() {
			n++
		}
	}
	return n
}

func printSteps(cmd *cobra.Command, asJSON bool, steps []schema.Migration) error {
	if asJSON {
		return printJSON(cmd, steps)
	}
	rows := [][]string{{"VERSION", "NAME", "APPLIED AT"}}
	for _, s := range stepsOf(steps) {
		at := "pending"
		if s.AppliedAt != nil {
			at = output.Stamp(*s.AppliedAt)
		}
		rows = append(rows, []string{strconv.Itoa(s.Version), s.Name, at})
	}
	return output.Table(cmd.OutOrStdout(), rows)
}

// A step is a migration in the JSON output, which scripts read.
type step struct {
	Version   int        `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"` // null if it is pending, or if this command applied it
}

func printJSON(cmd *cobra.Command, migrations []schema.Migration) error {
	return output.JSON(cmd.OutOrStdout(), struct {
		Migrations []step `json:"migrations"`
	}{stepsOf(migrations)})
}

func stepsOf(migrations []schema.Migration) []step {
	steps := make([]step, len(migrations)) // an empty list in JSON, not null
	for i, m := range migrations {
		steps[i] = step{Version: m.Version, Name: m.Name}
		if !m.AppliedAt.IsZero() {
			at := m.AppliedAt.UTC()
			steps[i].AppliedAt = &at
		}
	}
	return steps
}

func newPrint(db *database.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "print",
		Short: "Print all migrations as SQL",
		Long: `Print all migrations as one SQL script, for psql or for another migration tool. The
script is one transaction, for a database that does not have the tables yet. It records
the migrations, so 'migrate up' finds nothing to do afterwards. The command needs no
database.`,
		Example: `  postroom migrate print | psql --set ON_ERROR_STOP=1 shop
  postroom migrate print --schema shop_events > 0042_postroom.sql`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := db.Schema()
			if err != nil {
				return err
			}
			script, err := schema.Print(name)
			if err != nil {
				return err
			}
			return output.Text(cmd.OutOrStdout(), script)
		},
	}
}
