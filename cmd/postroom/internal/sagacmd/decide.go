package sagacmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/saga"
)

func retry(getenv func(string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry NAME KEY --revision N",
		Short: "Make an instance send its pending command again",
		Long: `Make an instance send its pending command again, with a new id and the same step key.
Use this if the participant discarded or lost the command. If the command is dead at the
participant, use 'postroom dead replay' instead.

If the participant carried out the first command, it may carry out the second one too,
unless it recognises the step key. The time limit of the step (Within) starts again.` + carriedOut,
		Example: `  postroom saga retry checkout order-7 --revision 4 --reason 'the command was discarded'`,
	}
	return decision(getenv, cmd, saga.Retry, nil)
}

func skip(getenv func(string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "skip NAME KEY --revision N",
		Short: "Make an instance continue as if its pending step were done or undone",
		Long: `Make an instance continue as if its pending step were done. If the instance undoes its
steps, it continues as if the pending step were undone. The data of the instance does
not change. If later steps need data of the reply, use 'saga done'.` + carriedOut,
		Example: `  postroom saga skip checkout order-7 --revision 4 --reason 'paid in cash'`,
	}
	return decision(getenv, cmd, saga.Skip, nil)
}

func markDone(getenv func(string) string) *cobra.Command {
	var eventType, data string
	cmd := &cobra.Command{
		Use:   "done NAME KEY --revision N",
		Short: "Make an instance continue with a reply that you give",
		Long: `Make an instance continue as if the reply that ends its pending step had come, with the
data that you give. 'saga show' lists the types of the replies.

If the saga cannot decode the data, the decision becomes a dead letter of the saga's
handler, and the instance does not change.` + carriedOut,
		Example: `  postroom saga done checkout order-7 --revision 4 --data '{"receipt":"4711"}' --reason 'seen at the bank'
  postroom saga done checkout order-7 --revision 4 --type payment.charged --data @reply.json
  jq .reply case.json | postroom saga done checkout order-7 --revision 4 --data -`,
	}
	cmd.Flags().StringVar(&eventType, "type", "", "type of the reply (default the first type that ends the step)")
	cmd.Flags().StringVar(&data, "data", "", "data of the reply: JSON, @FILE to read a file, or - to read standard input")
	command.NoFileCompletion(cmd, "type")
	argument.Conditions(cmd, "type", "data")
	return decision(getenv, cmd, saga.MarkDone, func(d *saga.Decision) (err error) {
		d.Type = eventType
		d.Data, err = document(cmd.InOrStdin(), data)
		return err
	})
}

func compensate(getenv func(string) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compensate NAME KEY --revision N",
		Short: "Make an instance undo its steps",
		Long: `Make an instance undo its steps in reverse order. It begins with the pending step, whose
outcome is unknown, and waits until each step is undone.` + carriedOut,
		Example: `  postroom saga compensate checkout order-7 --revision 4 --reason 'the customer cancelled'`,
	}
	return decision(getenv, cmd, saga.Compensate, nil)
}

const carriedOut = `

The decision is an event for the saga. The saga carries it out when the relay has
published it and a process runs the saga. --revision is the revision that 'saga show'
printed. If the instance has changed since then, the decision changes nothing. Every
decision except retry needs a --reason. The role needs the rights of
postroom.grant_operator.`

// document returns the JSON that a flag gives. The flag has the JSON itself, or @FILE for the
// content of a file, or - for standard input.
func document(stdin io.Reader, flag string) (data json.RawMessage, err error) {
	name, file := strings.CutPrefix(flag, "@")
	switch {
	case flag == "":
		return nil, nil
	case flag == "-":
		data, err = io.ReadAll(stdin)
	case file:
		data, err = os.ReadFile(name) //nolint:gosec // the operator names the file
	default:
		data = json.RawMessage(flag)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the data of the reply: %w", err)
	case !json.Valid(data):
		return nil, exit.Usagef("--data is not JSON: write JSON in single quotes, or give @FILE or -")
	}
	return data, nil
}

// result is the result of a decision. Scripts read it.
type result struct {
	EventID string      `json:"event_id"`
	Saga    string      `json:"saga"`
	Key     string      `json:"key"`
	Choice  saga.Choice `json:"choice"`
}

// decision adds flags and the function RunE to a command with which an operator decides about an
// instance. The function add sets the fields of the Decision for this choice only.
func decision(getenv func(string) string, cmd *cobra.Command, choice saga.Choice, add func(d *saga.Decision) error) *cobra.Command {
	var revision int64
	var instead string
	cmd.Flags().StringVar(&instead, "instead", "", "the event of an earlier decision for this revision that the saga could not carry out: it is refused, and this decision takes its place")
	cmd.Flags().Int64Var(&revision, "revision", 0, "the revision of the instance that you saw (required)")
	command.NoFileCompletion(cmd, "revision", "instead")
	argument.Check(cmd, "instead", "want the id of an event", func() bool { return instead != "" })
	argument.AtLeast(cmd, "revision", &revision, 1)
	t := prepare(getenv, cmd)
	t.AddAuditFlags(cmd)
	cmd.Args, cmd.ValidArgsFunction = oneInstance, cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d := saga.Decision{Saga: args[0], Key: args[1], Revision: revision, Choice: choice, Instead: instead}
		if add != nil {
			if err := add(&d); err != nil {
				return err
			}
		}
		return t.store(cmd.Context(), func(s *saga.Store) error {
			if revision == 0 {
				return t.withoutRevision(cmd, s, d)
			}
			if t.Reason == "" && choice != saga.Retry {
				return exit.Usagef("give a --reason: the audit keeps it")
			}
			id, err := s.Decide(cmd.Context(), d, postroom.Audit{Actor: t.Who(), Reason: t.Reason})
			if err != nil {
				return advise(err, d.Saga, d.Key)
			}
			if t.JSON {
				return output.JSON(cmd.OutOrStdout(), result{id, d.Saga, d.Key, choice})
			}
			return output.Line(cmd.OutOrStdout(), "decided, as event %s\nWhen the relay has published it and a process runs saga %s, the instance %s.\n%s shows the result.",
				id, output.Cell(d.Saga, 128), consequence[choice], reference(d.Saga, d.Key))
		})
	}
	return cmd
}

// The map consequence says what an instance does because of a decision.
var consequence = map[saga.Choice]string{
	saga.Retry:      "sends its pending command again",
	saga.Skip:       "continues with the next step",
	saga.MarkDone:   "continues with the data that you gave",
	saga.Compensate: "begins to undo its steps",
}

// withoutRevision returns the error for a command without --revision. The error says at which
// revision the instance is.
func (t *tool) withoutRevision(cmd *cobra.Command, s *saga.Store, d saga.Decision) error {
	story, err := s.Show(cmd.Context(), d.Saga, d.Key)
	switch {
	case err != nil:
		return advise(err, d.Saga, d.Key)
	case story.State.Ended():
		return fmt.Errorf("the instance is %s: there is nothing to decide", story.State)
	}
	return exit.Usagef("for which revision? The instance is %s now and waits for step %s, at revision %d: look at it with %s, then give --revision %d",
		story.State, story.Step, story.Revision, reference(d.Saga, d.Key), story.Revision)
}

// advise adds to an error what the operator can do next.
func advise(err error, name, key string) error {
	switch {
	case errors.Is(err, saga.ErrUnknown):
		return fmt.Errorf("%w; 'postroom saga list --saga %s' lists its instances", err, output.Quoted(name))
	case errors.Is(err, saga.ErrOver):
		return fmt.Errorf("%w; nothing was changed: look at the instance again with %s", err, reference(name, key))
	case errors.Is(err, saga.ErrDecided):
		return fmt.Errorf("%w; nothing was changed: 'postroom events show' says what became of that event. If the saga cannot carry it out, decide again with --instead and its id", err)
	}
	return err
}
