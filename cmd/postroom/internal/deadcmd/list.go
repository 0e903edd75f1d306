package deadcmd

import (
	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/deadview"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/deadletter"
)

func newGroups(d *commands) *cobra.Command {
	var w filterFlags
	cmd := &cobra.Command{
		Use:   "groups",
		Short: "Show the causes of dead events, and how many events have each",
		Long: `Group dead events by their cause: handler, class of the failure, place in the program,
and what the texts of the failures have in common. The largest group comes first. A plus
sign means that the group may have more events than were counted.`,
		Example: `  postroom dead groups
  postroom dead groups --handler billing.charge --since 2h
  postroom dead groups --json | jq -r '.groups[0].cause'`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := w.filter(nil)
			if err != nil {
				return err
			}
			return d.with(cmd.Context(), func(store *deadletter.Store) error {
				groups, err := store.Groups(cmd.Context(), f)
				if err != nil {
					return err
				}
				return deadview.Groups(cmd.OutOrStdout(), groups, d.JSON)
			})
		},
	}
	w.addFlags(cmd)
	d.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &d.JSON)
	return cmd
}

func newList(d *commands) *cobra.Command {
	var w filterFlags
	var page postroom.Page
	var count bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List and search dead events, latest death first",
		Long: `List the dead events that match all conditions that you give, latest death first. Each
page ends with the --after value of the next page. An event that dies meanwhile does not
move other events to another page. A page searches 50,000 dead events at most, or 10,000
with --text. If it stopped at that limit, it prints how to continue.`,
		Example: `  postroom dead list
  postroom dead list --handler billing.charge --class timeout --since 2h
  postroom dead list --text 'card 4242' --limit 1000 --json
  postroom dead list --discarded
  postroom dead list --type order.placed --count`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := w.filter(nil)
			if err != nil {
				return err
			}
			return d.with(cmd.Context(), func(store *deadletter.Store) error {
				if count {
					return printCount(cmd, store, f, d.JSON)
				}
				letters, next, err := store.List(cmd.Context(), f, page)
				if err != nil {
					return err
				}
				return deadview.Letters(cmd.OutOrStdout(), letters, next, d.JSON)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&page.Limit, "limit", 50, "how many events to show, 1 to 1000")
	flags.StringVar(&page.After, "after", "", "show the next page: the value that the last page printed at its end")
	flags.BoolVar(&count, "count", false, "print only how many events match")
	flags.BoolVar(&w.f.Discarded, "discarded", false, "discarded events instead of dead ones; --since and --until then select by the time of the discard")
	command.NoFileCompletion(cmd, "limit", "after")
	argument.PageLimit(cmd, &page.Limit)
	argument.After(cmd, &page.After)
	w.addFlags(cmd)
	d.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &d.JSON)
	return cmd
}

func printCount(cmd *cobra.Command, store *deadletter.Store, f deadletter.Filter, asJSON bool) error {
	n, more, err := store.Count(cmd.Context(), f)
	if err != nil {
		return err
	}
	if asJSON {
		return output.JSON(cmd.OutOrStdout(), struct {
			Count int64 `json:"count"`
			More  bool  `json:"more"`
		}{n, more})
	}
	if more {
		return output.Line(cmd.OutOrStdout(), "%d or more", n)
	}
	return output.Line(cmd.OutOrStdout(), "%d", n)
}
