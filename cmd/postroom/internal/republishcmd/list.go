package republishcmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/republish"
)

func newList(w *order) *cobra.Command {
	var limit int
	var before int64
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List republishes, newest first",
		Long: `List republishes, newest first: who made each, for which events, and its progress. The
relay carries out one republish after the other, the oldest first.`,
		Example: `  postroom republish list
  postroom republish list --json | jq '.[] | select(.state == "running")'`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.with(cmd.Context(), func(_ *outbox.Log, store *republish.Store) error {
				all, err := store.List(cmd.Context(), limit, before)
				switch {
				case err != nil:
					return err
				case w.JSON:
					return output.JSON(cmd.OutOrStdout(), output.List(all))
				case len(all) == 0:
					return output.Line(cmd.OutOrStdout(), "no republishes")
				}
				return output.Table(cmd.OutOrStdout(), rowsOf(all))
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "how many republishes to show")
	cmd.Flags().Int64Var(&before, "before", 0, "only republishes with a lower id")
	command.NoFileCompletion(cmd, "limit", "before")
	argument.AtLeast(cmd, "limit", &limit, 1)
	argument.AtLeast(cmd, "before", &before, 1)
	w.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &w.JSON)
	return cmd
}

func newCancel(w *order) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel REPUBLISH",
		Short: "End a republish",
		Long: `End a republish. The relay notices within two seconds. Until then it may still send
events.`,
		Example:           `  postroom republish cancel 7 --reason 'too fast for billing'`,
		Args:              argument.OneID("a republish, as 'postroom republish list' shows it"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, _ := argument.ID(args[0]) // argument.OneID has checked it
			return w.with(cmd.Context(), func(_ *outbox.Log, store *republish.Store) error {
				r, err := store.Cancel(cmd.Context(), id, w.Who(), w.Reason)
				if errors.Is(err, republish.ErrNotFound) {
					return fmt.Errorf("republish %d does not run; 'postroom republish list' lists republishes", id)
				}
				if err != nil {
					return err
				}
				return w.print(cmd, r)
			})
		},
	}
	w.AddAuditFlags(cmd)
	w.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &w.JSON)
	return cmd
}
