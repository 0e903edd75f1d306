package deadcmd

import (
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/deadview"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/deadletter"
)

func newShow(d *commands) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show everything about one held event: body, headers, failures, actions",
		Long: `Show everything about one held or discarded event: its body and headers, every recorded
attempt and its error, the calls of an external handler, earlier revisions if the event
was edited, and what operators did with it.

The command prints the body, which may be confidential.`,
		Example: `  postroom dead show 4711
  postroom dead show 4711 --json | jq -r .data | base64 -d`,
		Args:              argument.OneID("an event, as 'postroom dead list' shows it"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.with(cmd.Context(), func(store *deadletter.Store) error {
				id, _ := argument.ID(args[0]) // argument.OneID has checked it
				w, err := store.Get(cmd.Context(), id)
				if err != nil {
					return err
				}
				if d.JSON {
					return output.JSON(cmd.OutOrStdout(), w)
				}
				return deadview.Details(cmd.OutOrStdout(), w)
			})
		},
	}
	d.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &d.JSON)
	return cmd
}
