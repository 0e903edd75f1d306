// Package heldcmd has the commands that list, retry, reschedule and cancel held events.
package heldcmd

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/heldview"
	"github.com/postroom/postroom/cmd/postroom/internal/inspection"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
)

const help = `Look at events that are not done: scheduled, waiting for the next attempt, waiting
behind an earlier event of their key, running, or dead. Events on their way to the
broker have the handler 'outbox'.

'retry', 'reschedule' and 'cancel' change events that are not dead. Each of them first
chooses the events, then asks you, then changes only the chosen events. An event that
runs, or that is being published, is not changed, and the command says so. Postroom
records each action with the person and the reason: 'postroom audit' lists the actions.

For dead events, use 'postroom dead'.`

// New returns the command held, the group of the commands of this package.
func New(getenv func(string) string) *cobra.Command {
	cmd := command.Group("held", "Look at events that are not done, and act on them",
		newList(getenv), newRetry(getenv), newReschedule(getenv), newCancel(getenv))
	cmd.Long = help
	return cmd
}

// The list states has the states of a held event.
var states = []string{"abandoned", "dead", "due", "retrying", "running", "scheduled", "waiting"}

// filterFlags has the flags that select held events.
type filterFlags struct {
	handler, typ, key, class string
	states                   []string
	dueSince, dueUntil       string
}

// add adds the flags. The parameter states has the states that --state accepts.
func (w *filterFlags) add(cmd *cobra.Command, states []string) {
	flags := cmd.Flags()
	flags.StringVar(&w.handler, "handler", "", "events of this handler; outbox for events on their way to the broker")
	flags.StringSliceVar(&w.states, "state", nil, "events in one of these states: "+strings.Join(states, ", "))
	flags.StringVar(&w.typ, "type", "", "events of this type")
	flags.StringVar(&w.key, "key", "", "events with this key")
	flags.StringVar(&w.class, "class", "", "events whose last failure has this class")
	flags.StringVar(&w.dueSince, "due-since", "", "events that are due at this time or later: a time (2026-01-31T03:00:00Z) or how long ago (90m)")
	flags.StringVar(&w.dueUntil, "due-until", "", "events that are due before this time")
	command.NoFileCompletion(cmd, "handler", "type", "key", "class", "due-since", "due-until")
	argument.Words(cmd, "state", states, func() []string { return w.states })
	argument.Conditions(cmd, "handler", "type", "key", "class", "due-since", "due-until", "state")
}

// filter returns the filter that the flags describe.
func (w *filterFlags) filter() (f held.Filter, err error) {
	f = held.Filter{Handler: w.handler, Type: w.typ, Key: w.key, Class: w.class}
	for _, state := range w.states {
		f.States = append(f.States, held.State(state))
	}
	f.DueSince, f.DueUntil, err = argument.Span("due-since", w.dueSince, "due-until", w.dueUntil)
	return f, err
}

func newList(getenv func(string) string) *cobra.Command {
	s := inspection.New(getenv)
	var w filterFlags
	var after string
	limit := 100
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List held events: scheduled, to be retried, waiting, running or dead",
		Long: `List the held events that match all conditions that you give, sorted by handler. For
each handler, events with a due time come first, then events that wait behind an earlier
event of their key, then dead events. With --key, events are sorted by the time at which
they were held, if the key has at most 5,000 held events. Changes nothing.

The state 'due' means that the due time has come. The state 'abandoned' means that a
process claimed the event, and that the claim expired before the event was done.`,
		Example: `  postroom held list --handler billing.charge --state retrying,due
  postroom held list --handler outbox --state scheduled --type order.reminder
  postroom held list --key order-7
  postroom held list --due-until 2026-02-01 --json`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := w.filter()
			if err != nil {
				return err
			}
			return s.WithDatabase(cmd.Context(), inspect.Config{}, func(i *inspect.Inspector) error {
				page, err := i.HeldEvents(cmd.Context(), f, after, limit)
				if err != nil {
					return err
				}
				return heldview.List(cmd.OutOrStdout(), s.JSON, page)
			})
		},
	}
	w.add(cmd, states)
	cmd.Flags().IntVar(&limit, "limit", 100, "how many events to show, 1 to 1000")
	cmd.Flags().StringVar(&after, "after", "", "show the next page: the value that the last page printed at its end")
	s.AddFlags(cmd, false)
	command.NoFileCompletion(cmd, "limit", "after")
	argument.PageLimit(cmd, &limit)
	argument.After(cmd, &after)
	return cmd
}
