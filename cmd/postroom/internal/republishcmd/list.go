package republishcmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/operator"
)

func newList(w *order) *cobra.Command {
	var page postroom.Page
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List republishes, newest first",
		Long: `List republishes, newest first: who made each, for which events, and its progress. The
relay carries out one republish after the other, the oldest first.`,
		Example: `  postroom republish list
  postroom republish list --json | jq '.republishes[] | select(.state == "running")'`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return w.with(cmd.Context(), func(_ *pglog.Log, store *operator.Store) error {
				all, next, err := store.Republishes(cmd.Context(), page)
				switch {
				case err != nil:
					return err
				case w.JSON:
					return output.JSON(cmd.OutOrStdout(), struct {
						Republishes []operator.Republish `json:"republishes"`
						Next        string               `json:"next,omitempty"`
					}{output.List(all), next})
				case len(all) == 0:
					return output.Line(cmd.OutOrStdout(), "no republishes")
				}
				return output.Page(cmd.OutOrStdout(), rowsOf(all), next)
			})
		},
	}
	cmd.Flags().IntVar(&page.Limit, "limit", 20, "how many republishes to show, 1 to 1000")
	cmd.Flags().StringVar(&page.After, "after", "", "show the next page: the value that the last page printed at its end")
	command.NoFileCompletion(cmd, "limit", "after")
	argument.PageLimit(cmd, &page.Limit)
	argument.AfterID(cmd, &page.After)
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
			return w.with(cmd.Context(), func(_ *pglog.Log, store *operator.Store) error {
				r, err := store.CancelRepublish(cmd.Context(), id, w.audit())
				if errors.Is(err, operator.ErrNoRepublish) {
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
