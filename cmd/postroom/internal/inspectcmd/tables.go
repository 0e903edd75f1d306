package inspectcmd

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/inspection"
	"github.com/postroom/postroom/cmd/postroom/internal/tableview"
	"github.com/postroom/postroom/internal/inspect"
)

// NewTables returns the command tables.
func NewTables(getenv func(string) string) *cobra.Command {
	s := inspection.New(getenv)
	var cfg inspect.Config
	cmd := &cobra.Command{
		Use:   "tables [list]",
		Short: "Show the size of the tables, and what hinders vacuum",
		Long: `Show how large Postroom's tables are, how old their oldest rows are, and the oldest
transactions of all databases of the server, which keep vacuum from removing dead rows.
Numbers of rows are the server's estimates. Changes nothing, and does not read the
tables themselves.

If the role does not have pg_monitor, the output has no transactions of other roles.`,
		Example: `  postroom tables
  postroom tables --retention 168h
  postroom tables --json | jq '.tables[] | select(.estimated_dead_rows > 100000)'`,
		Args: command.Listing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.WithDatabase(cmd.Context(), cfg, func(i *inspect.Inspector) error {
				t, err := i.Tables(cmd.Context())
				if err != nil {
					return err
				}
				return tableview.Print(cmd.OutOrStdout(), s.JSON, t)
			})
		},
	}
	cmd.Flags().DurationVar(&cfg.Retention, "retention", 72*time.Hour, "the --retention of the relays")
	command.NoFileCompletion(cmd, "retention")
	argument.Positive(cmd, "retention", &cfg.Retention, "72h")
	s.AddFlags(cmd, false)
	return cmd
}
