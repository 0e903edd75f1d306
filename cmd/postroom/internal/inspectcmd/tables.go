package inspectcmd

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/inspection"
	"github.com/postroom/postroom/cmd/postroom/internal/tableview"
	"github.com/postroom/postroom/inspect"
)

// NewTables returns the command tables.
func NewTables(getenv func(string) string) *cobra.Command {
	s := inspection.New(getenv)
	var cfg inspect.Config
	cmd := &cobra.Command{
		Use:   "tables",
		Short: "Show what grows, and what keeps vacuum away",
		Long: `Show how large Postroom's tables are, how far back they reach, and the oldest
transactions of the whole cluster, which keep vacuum from giving space back. Rows
are the server's estimates. Changes nothing, and reads no table.

Without the role pg_monitor the transactions of other roles are not shown.`,
		Example: `  postroom tables
  postroom tables --retention 168h
  postroom tables --json | jq '.tables[] | select(.estimated_dead_rows > 100000)'`,
		Args: command.NoArguments,
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
	s.AddFlags(cmd, false)
	return cmd
}
