// Package sagacmd has the commands that show instances of sagas, and the commands with which an
// operator decides about instances.
package sagacmd

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/caller"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/saga"
)

const help = `Look at sagas, which run processes across services, and decide about instances that
cannot continue. An instance is one process: the process of one saga for one key.

If a step has a deadline, an instance is stuck five minutes after it. If it has none, an
instance is stuck if it has waited for longer than its definition allows, or for an hour
if the definition gives no time. It continues by itself when the reply comes. 'saga show' prints the id of the pending command, whose reply the
instance waits for. With that id, 'postroom events show' shows what happened to the
command. If the command is dead, replay it with 'postroom dead'. That is better than a
decision, because the participant, which is the service that carries out the command,
does not learn of a decision.

A decision is for one revision of an instance. If the instance has changed since then,
the decision changes nothing. The audit keeps the person and the reason.`

// New returns the command saga, the group of the commands of this package.
func New(getenv func(string) string) *cobra.Command {
	cmd := command.Group("saga", "Look at sagas, and decide about those that cannot continue",
		list(getenv), show(getenv), retry(getenv), skip(getenv), markDone(getenv), compensate(getenv))
	cmd.Long = help
	return cmd
}

// A tool has what the commands of this package need.
type tool struct{ caller.Caller }

// prepare adds the common flags to a command.
func prepare(getenv func(string) string, cmd *cobra.Command) *tool {
	t := &tool{caller.New(getenv)}
	t.AddCommonFlags(cmd)
	return t
}

// store calls the function do with the store of the database's sagas.
func (t *tool) store(ctx context.Context, do func(s *saga.Store) error) error {
	return t.DB.With(ctx, func(conn *pgx.Conn, schema string) error {
		s := saga.NewStore(conn, saga.StoreConfig{Schema: schema})
		if err := s.Check(ctx); err != nil {
			return err
		}
		return do(s)
	})
}

// The list states has the states of an instance, as text.
var states = []string{string(saga.Running), string(saga.Compensating), string(saga.Done), string(saga.Undone)}

func list(getenv func(string) string) *cobra.Command {
	var f saga.Filter
	var inStates []string
	var after string
	limit := 100
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List instances of sagas",
		Long: `List the instances that match all conditions that you give, newest first: the state of
each, the step for which it waits, and since when. With --stuck, instances that became
stuck first come first. Changes nothing.

With --step or --stuck a page searches a limited number of instances. So it may be short
or empty. It then prints how to continue.`,
		Example: `  postroom saga list --stuck
  postroom saga list --saga checkout --state running,compensating --step payment
  postroom saga list --key order-7
  postroom saga list --state undone --limit 1000 --json | jq -r '.instances[].key'`,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Saga, "saga", "", "instances of this saga")
	flags.StringVar(&f.Key, "key", "", "instances with this key")
	flags.StringSliceVar(&inStates, "state", nil, "instances in one of these states: "+strings.Join(states, ", "))
	flags.StringVar(&f.Step, "step", "", "instances that wait for this step")
	flags.BoolVar(&f.Stuck, "stuck", false, "instances that are stuck")
	flags.IntVar(&limit, "limit", limit, "how many instances to show, 1 to 1000")
	flags.StringVar(&after, "after", "", "show the next page: the value that the last page printed at its end")
	command.NoFileCompletion(cmd, "saga", "key", "step", "limit", "after")
	argument.PageLimit(cmd, &limit)
	argument.After(cmd, &after)
	argument.Words(cmd, "state", states, func() []string { return inStates })
	argument.Conditions(cmd, "saga", "key", "step", "state")
	t := prepare(getenv, cmd)
	cmd.Args = command.NoArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.States = nil
		for _, state := range inStates {
			f.States = append(f.States, saga.State(state))
		}
		return t.store(cmd.Context(), func(s *saga.Store) error {
			instances, next, err := s.List(cmd.Context(), f, postroom.Page{Limit: limit, After: after})
			if err != nil {
				return err
			}
			return printPage(cmd.OutOrStdout(), t.JSON, instances, next)
		})
	}
	return cmd
}

// sagaName matches the name of a saga.
var sagaName = regexp.MustCompile(`^[\w.-]{1,128}$`)

// oneInstance accepts the name of a saga and the key of an instance. Its error does not quote the
// arguments, because a person may have put a URL with a password in their place.
func oneInstance(_ *cobra.Command, args []string) error {
	if len(args) != 2 || !sagaName.MatchString(args[0]) || args[1] == "" {
		return exit.Usagef("give the name of the saga and the key of the instance; 'postroom saga list' shows both")
	}
	return nil
}

func show(getenv func(string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show NAME KEY",
		Short: "Show one instance: its steps, what it waits for, its history, its data",
		Long: `Show one instance: the state of each step, for which events the instance waits and until
when, the last event that was ignored and why, the history of the instance, and its
data, under the title 'state'. Changes nothing.

The data may be confidential.`,
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

// named returns the arguments that name an instance on a command line.
func named(name, key string) string { return output.Quoted(name) + " " + output.Quoted(key) }

// reference returns the command that shows an instance.
func reference(name, key string) string {
	return fmt.Sprintf("'postroom saga show %s'", named(name, key))
}
