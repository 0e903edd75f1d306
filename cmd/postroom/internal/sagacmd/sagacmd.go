// Package sagacmd has the commands for sagas: what their instances wait for, and what an operator
// decides about them.
package sagacmd

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/operator"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/saga"
)

const help = `Look at sagas, which run processes across services, and decide about instances that cannot
go on. An instance is one process: of a saga, for a key.

An instance is stuck if it has waited for longer than its definition allows, an hour unless
that says otherwise. It goes on by itself when the reply comes. 'saga show' has the id of the
command that it waits for: 'postroom events show' says what became of that, and 'postroom
dead' replays it where it is dead. That is better than a decision, which the participant
does not hear of.

A decision is for one revision of an instance. If the instance has gone on since, nothing
changes. The audit keeps who decided it and why.`

// New returns the group of these commands.
func New(getenv func(string) string) *cobra.Command {
	cmd := command.Group("saga", "Look at sagas, and decide about those that cannot go on",
		list(getenv), show(getenv), retry(getenv), skip(getenv), markDone(getenv), compensate(getenv))
	cmd.Long = help
	return cmd
}

// tool is what a command works with.
type tool struct{ operator.Operator }

// prepare adds the common flags to a command.
func prepare(getenv func(string) string, cmd *cobra.Command) *tool {
	t := &tool{operator.New(getenv)}
	t.AddCommonFlags(cmd)
	return t
}

// store calls do with the sagas of the database.
func (t *tool) store(ctx context.Context, do func(s *saga.Store) error) error {
	return t.DB.With(ctx, func(conn *pgx.Conn, schema string) error {
		s := saga.NewStore(conn, saga.StoreConfig{Schema: schema})
		if err := s.Check(ctx); err != nil {
			return err
		}
		return do(s)
	})
}

// states are the states of an instance, as words.
var states = []string{string(saga.Running), string(saga.Compensating), string(saga.Done), string(saga.Undone)}

func list(getenv func(string) string) *cobra.Command {
	var f saga.Filter
	var inStates []string
	var after string
	limit := 100
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List instances of sagas",
		Long: `List instances that have every property that you give, the newest first: in which state each
is, for which step it waits, and since when. With --stuck those come first that have waited
for the longest. Changes nothing.

With --step or --stuck a page looks at a limited number of instances: it may be short, or
empty, and say how to go on.`,
		Example: `  postroom saga list --stuck
  postroom saga list --saga checkout --state running,compensating --step payment
  postroom saga list --key order-7
  postroom saga list --state undone --limit 1000 --json | jq -r '.instances[].key'`,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Saga, "saga", "", "of this saga")
	flags.StringVar(&f.Key, "key", "", "with this key")
	flags.StringSliceVar(&inStates, "state", nil, "in one of these states: "+strings.Join(states, ", "))
	flags.StringVar(&f.Step, "step", "", "that wait for this step")
	flags.BoolVar(&f.Stuck, "stuck", false, "that have waited for longer than their definition allows")
	flags.IntVar(&limit, "limit", limit, "how many, 1 to 1000")
	flags.StringVar(&after, "after", "", "go on after a page: the value that it printed at its end")
	command.NoFileCompletion(cmd, "saga", "key", "step", "limit", "after")
	command.CompleteWords(cmd, "state", states)
	argument.Conditions(cmd, "saga", "key", "step", "state")
	t := prepare(getenv, cmd)
	cmd.Args = command.NoArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.States = nil
		if err := argument.Limit(limit); err != nil {
			return err
		}
		for _, state := range inStates {
			if !slices.Contains(states, state) {
				return exit.Usagef("--state is one of %s", strings.Join(states, ", "))
			}
			f.States = append(f.States, saga.State(state))
		}
		return t.store(cmd.Context(), func(s *saga.Store) error {
			page, err := s.List(cmd.Context(), f, saga.Page{Limit: limit, After: after})
			if err != nil {
				return err
			}
			return printPage(cmd.OutOrStdout(), t.JSON, page)
		})
	}
	return cmd
}

// sagaName matches the name of a saga.
var sagaName = regexp.MustCompile(`^[\w.-]{1,128}$`)

// oneInstance takes the name of a saga and the key of an instance. Its error shows neither: one may
// be a misplaced URL with a password.
func oneInstance(_ *cobra.Command, args []string) error {
	if len(args) != 2 || !sagaName.MatchString(args[0]) || args[1] == "" {
		return exit.Usagef("give the name of the saga and the key of the instance; 'postroom saga list' has both")
	}
	return nil
}

func show(getenv func(string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME KEY",
		Short: "Show one instance: its steps, what it waits for, its history, its state",
		Long: `Show one instance: how far each step is, for which events it waits and until when, the last
event that did not count and why, what happened so far, and its state. Changes nothing.

It shows the state, which may be confidential.`,
		Example: `  postroom saga show checkout order-7
  postroom saga show checkout order-7 --json | jq .history`,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	t := prepare(getenv, cmd)
	cmd.Args = oneInstance
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return t.store(cmd.Context(), func(s *saga.Store) error {
			story, err := s.Show(cmd.Context(), args[0], args[1])
			if err != nil {
				return advise(err, args[0], args[1])
			}
			return printStory(cmd.OutOrStdout(), t.JSON, story)
		})
	}
	return cmd
}

// named is an instance as a command line has it.
func named(name, key string) string { return output.Quoted(name) + " " + output.Quoted(key) }

// reference is the command that shows an instance.
func reference(name, key string) string {
	return fmt.Sprintf("'postroom saga show %s'", named(name, key))
}
