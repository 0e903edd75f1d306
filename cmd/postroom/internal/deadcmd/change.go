package deadcmd

import (
	"context"
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
	"github.com/postroom/postroom/cmd/postroom/internal/confirm"
	"github.com/postroom/postroom/cmd/postroom/internal/deadview"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/deadletter"
)

func newDiscard(d *commands) *cobra.Command {
	var w filterFlags
	var limit int
	cmd := &cobra.Command{
		Use:   "discard [ID...] --reason REASON",
		Short: "Give up dead events, with a reason",
		Long: `Give up dead events. They move to the archive, and later events of their keys continue.
If a discarded event is delivered again, it stays discarded. 'postroom dead reopen'
brings a discarded event back.`,
		Example: `  postroom dead discard 4711 --reason 'test order'
  postroom dead discard --cause 1f0c9a7d5e3b2c48a6d0f1e2b3c4d5e6 --reason 'customer is gone' --yes`,
		Args:              argument.IDs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := w.required(args)
			if err == nil && d.Reason == "" {
				err = exit.Usagef("why? Give --reason: the archive and the audit keep it")
			}
			if err != nil {
				return err
			}
			return d.change(cmd, f, limit, "discard", (*deadletter.Store).Discard)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "discard at most this many events, those that died first (default all)")
	command.NoFileCompletion(cmd, "limit")
	argument.AtLeast(cmd, "limit", &limit, 1)
	w.addFlags(cmd)
	w.addAll(cmd, "all dead events")
	d.AddAuditFlags(cmd)
	d.AddYes(cmd)
	d.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &d.JSON)
	return cmd
}

func newReopen(d *commands) *cobra.Command {
	var w filterFlags
	var limit int
	cmd := &cobra.Command{
		Use:   "reopen [ID...]",
		Short: "Bring discarded events back",
		Long: `Bring discarded events back. They are dead again. They hold up no other event, because
later events of their keys may have taken effect. --since and --until select by the time
at which events were discarded.`,
		Example: `  postroom dead list --discarded
  postroom dead reopen 4711 --reason 'it was not a test order'`,
		Args:              argument.IDs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := w.required(args)
			if err != nil {
				return err
			}
			f.Discarded = true
			return d.change(cmd, f, limit, "reopen", (*deadletter.Store).Reopen)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "reopen at most this many events, those that were discarded first (default all)")
	command.NoFileCompletion(cmd, "limit")
	argument.AtLeast(cmd, "limit", &limit, 1)
	w.addFlags(cmd)
	cmd.Flags().Lookup("since").Usage = "events that were discarded at this time or later: a time (2026-01-31T03:00:00Z) or how long ago (90m)"
	cmd.Flags().Lookup("until").Usage = "events that were discarded before this time"
	w.addAll(cmd, "all discarded events")
	d.AddAuditFlags(cmd)
	d.AddYes(cmd)
	d.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &d.JSON)
	return cmd
}

// changeResult says how many events a command changed. Scripts read it.
type changeResult struct {
	Events int64 `json:"events"`
}

// changeFunc is Store.Discard or Store.Reopen.
type changeFunc func(s *deadletter.Store, ctx context.Context, f deadletter.Filter, o deadletter.ChangeOptions, by postroom.Audit) (int64, error)

// change chooses the events, asks the person, and discards or reopens the events. It changes no
// other event, even if other events match when the person answers.
func (d *commands) change(cmd *cobra.Command, f deadletter.Filter, limit int, verb string, do changeFunc) error {
	ctx := cmd.Context()
	return d.with(ctx, func(store *deadletter.Store) error {
		these, n, err := store.Choose(ctx, f, limit)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%s: there is no such event to %s", deadview.Filter(f), verb)
		}
		look := "'postroom dead list'"
		if f.Discarded {
			look = "'postroom dead list --discarded'"
		}
		if !d.Yes {
			if err := confirm.Ask(cmd, fmt.Sprintf("%s %s (%s)?", verb, output.Plural(int(n), "event"), deadview.Filter(f)), look); err != nil {
				return err
			}
		}
		bar := output.Bar(cmd.ErrOrStderr())
		done, err := do(store, ctx, these, deadletter.ChangeOptions{Progress: func(done int64) { bar.Show(int(done), int(n), verb) }}, d.audit())
		bar.Clear()
		//guard:a-discard-that-fails-says-what-it-did 2 true
		if err != nil && done == 0 {
			return err
		}
		if failed := d.printChange(cmd.OutOrStdout(), verb, done); err == nil {
			return failed
		}
		if errors.Is(err, context.Canceled) {
			return fmt.Errorf("interrupted: up to 1,000 events more than counted above may have changed. To %s the rest, repeat the command", verb)
		}
		return fmt.Errorf("%w: up to 1,000 events more than counted above may have changed", err)
	})
}

func (d *commands) printChange(out io.Writer, verb string, done int64) error {
	if d.JSON {
		return output.JSON(out, changeResult{done})
	}
	return output.Line(out, "%s: %s", verb, output.Plural(int(done), "event"))
}

func newEdit(d *commands) *cobra.Command {
	var data, contentType string
	var headers []string
	var revision int
	cmd := &cobra.Command{
		Use:   "edit ID --data FILE --reason REASON",
		Short: "Change the body of a dead event, in a new revision",
		Long: `Change the body, the content type or the headers of a dead event. 'postroom dead show'
still shows the original. The event stays dead: replay it afterwards.

If another operator may edit the event too, give --revision: the revision that 'postroom
dead show --json' printed, or 0 if the event was never edited. If the event has another
revision now, the edit is refused.

The edit is also refused if the handler began a call for the event and the outcome of that
call is unknown. Calls that are done are not made again.`,
		Example: `  postroom dead show 4711 --json | jq -r .data | base64 -d > body.json
  postroom dead edit 4711 --data body.json --reason 'amount had a comma'
  postroom dead replay 4711`,
		Args:              argument.OneID("an event, as 'postroom dead list' shows it"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, _ := argument.ID(args[0]) // argument.OneID has checked it
			change, err := editChange(cmd.InOrStdin(), data, contentType, headers, cmd.Flags().Changed("header"))
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("revision") {
				change.Revision = &revision
			}
			return d.with(cmd.Context(), func(store *deadletter.Store) error {
				edited, err := store.Edit(cmd.Context(), id, change, d.audit())
				if err != nil {
					return err
				}
				if d.JSON {
					return output.JSON(cmd.OutOrStdout(), edited)
				}
				if len(edited.StepsDone) > 0 {
					if err := output.Line(cmd.OutOrStdout(), "these steps are done and will not be called again: %s", output.Cell(strings.Join(edited.StepsDone, ", "), 200)); err != nil {
						return err
					}
				}
				return output.Line(cmd.OutOrStdout(), "event %d is at revision %d; 'postroom dead replay %d' runs it", id, edited.Revision, id)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&data, "data", "", "file that contains the new body, or - for standard input")
	flags.StringVar(&contentType, "content-type", "", "the new content type")
	flags.StringArrayVar(&headers, "header", nil, "name=value; can be repeated. The headers that you give replace all headers; --header '' removes all headers")
	flags.IntVar(&revision, "revision", 0, "refuse the edit if the event does not have this revision (default any)")
	command.NoFileCompletion(cmd, "content-type", "header", "revision")
	argument.AtLeast(cmd, "revision", &revision, 0)
	argument.Conditions(cmd, "data", "content-type")
	d.AddAuditFlags(cmd)
	d.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &d.JSON)
	return cmd
}

// editChange returns the edit that the command line describes.
func editChange(stdin io.Reader, data, contentType string, headers []string, replace bool) (c deadletter.Edit, err error) {
	c.ContentType = contentType
	if replace {
		c.Headers = map[string]string{}
	}
	for _, h := range headers {
		name, value, ok := strings.Cut(h, "=")
		_, again := c.Headers[name]
		switch {
		case h == "":
		case !ok || name == "":
			return c, exit.Usagef("--header: write name=value")
		//guard:a-header-is-given-once false
		case again:
			return c, exit.Usagef("--header %s is given twice", output.Quoted(name))
		default:
			c.Headers[name] = value
		}
	}
	switch data {
	case "":
		if contentType == "" && !replace {
			return c, exit.Usagef("what should change? Give --data, --content-type or --header")
		}
		return c, nil
	case "-":
		c.Data, err = io.ReadAll(stdin)
	default:
		c.Data, err = os.ReadFile(data) //nolint:gosec // the operator names the file
	}
	if err != nil {
		return c, fmt.Errorf("read the new body: %w", err)
	}
	if c.Data == nil {
		c.Data = []byte{}
	}
	return c, nil
}

func newResolve(d *commands) *cobra.Command {
	var step, result string
	var happened, not bool
	cmd := &cobra.Command{
		Use:   "resolve ID --step STEP --happened|--not-happened",
		Short: "Record the outcome of a call that is unknown",
		Long: `Record whether a call happened. Use this if an external handler began a call and its
outcome is unknown. Ask the vendor: 'postroom dead show' shows the key by which the
vendor knows the call. If the call happened, the next attempt continues after it, with
the result that you give. If not, the next attempt makes the call.`,
		Example: `  postroom dead resolve 4711 --step charge --happened --result '"ch_123"' --reason 'seen at the vendor'
  postroom dead resolve 4711 --step charge --not-happened --reason 'unknown to the vendor'`,
		Args:              argument.OneID("an event, as 'postroom dead list' shows it"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case step == "":
				return exit.Usagef("which call? Give --step, with a name that 'postroom dead show' lists")
			case happened == not:
				return exit.Usagef("give either --happened or --not-happened")
			case not && result != "":
				return exit.Usagef("--result is what the call returned: give it only with --happened")
			case happened && !json.Valid([]byte(result)):
				return exit.Usagef(`--happened needs --result: what the step would have returned, as JSON. A text has quotes: --result '"ch_123"'. If the handler does not use the result: --result null`)
			}
			id, _ := argument.ID(args[0]) // argument.OneID has checked it
			return d.with(cmd.Context(), func(store *deadletter.Store) error {
				if err := store.Resolve(cmd.Context(), id, step, happened, json.RawMessage(result), d.audit()); err != nil {
					return err
				}
				if d.JSON {
					return output.JSON(cmd.OutOrStdout(), changeResult{1})
				}
				return output.Line(cmd.OutOrStdout(), "recorded; 'postroom dead replay %d' runs the event", id)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&step, "step", "", "the call's name")
	flags.BoolVar(&happened, "happened", false, "the call happened")
	flags.BoolVar(&not, "not-happened", false, "the call did not happen")
	flags.StringVar(&result, "result", "", "what the step would have returned to the handler, as JSON; null if the handler does not use it")
	command.NoFileCompletion(cmd, "step", "result")
	argument.Conditions(cmd, "step")
	d.AddAuditFlags(cmd)
	d.DB.AddURLFlag(cmd)
	command.AddJSON(cmd, &d.JSON)
	return cmd
}
