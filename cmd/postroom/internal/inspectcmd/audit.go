package inspectcmd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/deadview"
	"github.com/postroom/postroom/cmd/postroom/internal/heldview"
	"github.com/postroom/postroom/cmd/postroom/internal/inspection"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
)

// NewAudit returns the command audit.
func NewAudit(getenv func(string) string) *cobra.Command {
	s := inspection.New(getenv)
	var filter inspect.AuditFilter
	var since, after string
	cmd := &cobra.Command{
		Use:   "audit [list]",
		Short: "Show what operators did",
		Long: `Show what operators did, newest first: who did what, to how many events, and why. BY is
what the program of the operator said (--actor). ROLE is the role with which that
program had logged in: the server notes it. --json also shows the
parameters of each action. Changes nothing.`,
		Example: `  postroom audit --since 24h
  postroom audit --actor ann --action discard
  postroom audit --event order-7
  postroom audit --replay 12 --json`,
		Args: command.Listing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if filter.Since, err = argument.Time("since", since); err != nil {
				return err
			}
			return s.WithDatabase(cmd.Context(), inspect.Config{}, func(i *inspect.Inspector) error {
				page, err := i.Audit(cmd.Context(), filter)
				if err != nil {
					return err
				}
				return printAudit(cmd, s.JSON, page)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.Actor, "actor", "", "actions of this operator")
	flags.StringVar(&filter.Action, "action", "", "actions of this kind, for instance discard")
	flags.StringVar(&filter.Handler, "handler", "", "actions on events of this handler")
	flags.StringVar(&filter.EventID, "event", "", "actions on the event with this id")
	flags.Int64Var(&filter.ReplayID, "replay", 0, "actions about this replay")
	flags.StringVar(&since, "since", "", "actions at this time or later: a time (2026-01-31T03:00:00Z) or how long ago (24h)")
	flags.IntVar(&filter.Limit, "limit", 100, "how many actions to show, 1 to 1000")
	flags.StringVar(&after, "after", "", "show the next page: the value that the last page printed at its end")
	s.AddFlags(cmd, false)
	command.NoFileCompletion(cmd, "actor", "action", "handler", "event", "replay", "since", "limit", "after")
	argument.PageLimit(cmd, &filter.Limit)
	argument.AtLeast(cmd, "replay", &filter.ReplayID, 1)
	argument.Check(cmd, "after", "want the value that the last page printed at its end", func() bool {
		var err error
		filter.Before, err = strconv.ParseInt(cmp.Or(after, "0"), 10, 64)
		return err == nil && (filter.Before > 0 || after == "")
	})
	argument.Conditions(cmd, "actor", "action", "handler", "event", "since")
	return cmd
}

func printAudit(cmd *cobra.Command, asJSON bool, page *inspect.AuditPage) error {
	if asJSON {
		return output.JSON(cmd.OutOrStdout(), page)
	}
	if len(page.Entries) == 0 && page.Next == 0 {
		return output.Line(cmd.OutOrStdout(), "no action matches")
	}
	rows := [][]string{{"ID", "AT", "BY", "ROLE", "DID", "TO", "HANDLER", "WHY"}}
	for _, a := range page.Entries {
		rows = append(rows, []string{
			fmt.Sprint(a.ID), output.Stamp(a.At), output.Cell(a.Actor, 40), output.Cell(a.Role, 40), output.Cell(a.Action, 30), actionTarget(a), output.OrDash(output.Cell(a.Handler, 60)), output.OrDash(output.Cell(a.Reason, 80)),
		})
	}
	next := ""
	if page.Next > 0 {
		next = strconv.FormatInt(page.Next, 10)
	}
	return output.Page(cmd.OutOrStdout(), rows, next)
}

// actionTarget names the events on which an operator acted.
func actionTarget(a inspect.AuditEntry) string {
	what := output.Plural(int(a.Events), "event")
	switch filter := filterOf(a); {
	case a.EventID != "":
		what = output.Cell(a.EventID, 60)
	case filter != "":
		what += ": " + filter
	}
	if a.ReplayID > 0 {
		what += fmt.Sprintf(" (replay %d)", a.ReplayID)
	}
	return what
}

// filterOf describes the filter of an action, or returns "" if the details of the action have none.
func filterOf(a inspect.AuditEntry) string {
	switch a.Action {
	case "retry", "reschedule", "cancel": // of package held; the details of other actions with these names have no filter
		if f := decoded[held.Filter](a); f != nil {
			return heldview.Filter(*f)
		}
	default:
		if f := decoded[deadletter.Filter](a); f != nil {
			return deadview.Filter(*f)
		}
	}
	return ""
}

// decoded returns the filter in the details of an action, or nil.
func decoded[F any](a inspect.AuditEntry) *F {
	var details struct{ Filter *F }
	if err := json.Unmarshal(a.Details, &details); err != nil {
		return nil
	}
	return details.Filter
}
