package inspectcmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/inspection"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/internal/text"
)

// keyFlags has the values of the flags.
type keyFlags struct {
	filter       inspect.KeyFilter
	state, after string
}

// headStates are the states that the head of a key, its first held event, can have.
var headStates = []string{"abandoned", "dead", "due", "retrying", "running", "waiting"}

// NewKeys returns the command keys.
func NewKeys(getenv func(string) string) *cobra.Command {
	s := inspection.New(getenv)
	var wish keyFlags
	cmd := &cobra.Command{
		Use:   "keys [list]",
		Short: "Show which keys are held up, and by which event",
		Long: `Show which keys are held up: the first event of each key, why it is not done, and how
many events wait behind it (counted up to 1,000). Keys of outgoing events have the
handler 'outbox'. Changes nothing.`,
		Example: `  postroom keys --handler ledger.move --state dead
  postroom keys --key account-7
  postroom keys --limit 20 --after ledger.move/account-7`,
		Args: command.Listing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := wish.read(); err != nil {
				return err
			}
			return s.WithDatabase(cmd.Context(), inspect.Config{}, func(i *inspect.Inspector) error {
				keys, err := i.Keys(cmd.Context(), wish.filter)
				if err != nil {
					return err
				}
				return printKeys(cmd, s.JSON, keys)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&wish.filter.Handler, "handler", "", "keys of this handler")
	flags.StringVar(&wish.filter.Key, "key", "", "only this key")
	flags.StringVar(&wish.state, "state", "", "keys whose first event is in this state: "+strings.Join(headStates, ", "))
	flags.IntVar(&wish.filter.Limit, "limit", 100, "how many keys to show, 1 to 1000")
	flags.StringVar(&wish.after, "after", "", "only keys that come after this one, written as handler/key")
	s.AddFlags(cmd, false)
	command.NoFileCompletion(cmd, "handler", "key", "limit", "after")
	argument.PageLimit(cmd, &wish.filter.Limit)
	argument.Word(cmd, "state", headStates, &wish.state)
	argument.Conditions(cmd, "handler", "key", "state")
	return cmd
}

// read checks the values of the flags, and completes the filter.
func (w *keyFlags) read() error {
	w.filter.State = held.State(w.state)
	if w.after == "" {
		return nil
	}
	w.filter.After = new(inspect.KeyPosition)
	if err := w.filter.After.UnmarshalText([]byte(w.after)); err != nil {
		return exit.Usagef("--after: %w", err)
	}
	return nil
}

func printKeys(cmd *cobra.Command, asJSON bool, keys *inspect.Keys) error {
	if asJSON {
		return output.JSON(cmd.OutOrStdout(), keys)
	}
	if len(keys.Keys) == 0 && keys.Next == nil {
		return output.Line(cmd.OutOrStdout(), "no matching key is held up")
	}
	rows := [][]string{{"HANDLER", "KEY", "HEAD", "TYPE", "IS", "FOR", "BEHIND IT", "LAST FAILURE"}}
	for _, k := range keys.Keys {
		behind := fmt.Sprint(k.Behind)
		if k.More {
			behind += "+"
		}
		failure := "-"
		if k.Head.Class != "" {
			failure = output.Cell(k.Head.Class+": "+k.Head.Failure, 80)
		}
		rows = append(rows, []string{
			output.Cell(k.Handler, 60), output.Cell(k.Key, 40), output.Cell(k.Head.EventID, 60), output.Cell(k.Head.Type, 40), string(k.Head.State), output.Seconds(k.Head.AgeSeconds), behind, failure,
		})
	}
	if err := output.Table(cmd.OutOrStdout(), rows); err != nil {
		return err
	}
	if keys.Next != nil {
		place := keys.Next.String()
		//guard:a-place-that-cannot-be-printed-is-not-printed false
		if output.Cell(place, 400) != place {
			return output.Line(cmd.OutOrStdout(), "\nthere may be more keys, after a key that cannot be printed here: --json prints it under next")
		}
		return output.Line(cmd.OutOrStdout(), "\nthere may be more keys: --after %s", text.Word(place))
	}
	return nil
}
