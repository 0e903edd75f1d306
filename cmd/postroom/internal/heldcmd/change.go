package heldcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/caller"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/confirm"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/heldview"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/held"
)

// changeableStates are the values of --state that the commands retry, reschedule and cancel accept.
var changeableStates = []string{"due", "retrying", "running", "scheduled", "waiting"}

// action has the flags that the commands retry, reschedule and cancel share.
type action struct {
	caller.Caller

	flags  filterFlags
	limit  int
	all    bool
	dryRun bool
}

// actionFunc changes the events in the given set.
type actionFunc func(ctx context.Context, store *held.Store, set held.Set, by postroom.Audit, progress func(n int64)) (held.Result, error)

func (c *action) addFlags(cmd *cobra.Command) {
	c.flags.add(cmd, changeableStates)
	flags := cmd.Flags()
	flags.IntVar(&c.limit, "limit", 0, "change at most this many events, those that are due first (default all)")
	flags.BoolVar(&c.all, "all", false, "all events that are held and not dead")
	flags.BoolVar(&c.dryRun, "dry-run", false, "print how many events match, and their states; change nothing")
	command.NoFileCompletion(cmd, "limit")
	argument.AtLeast(cmd, "limit", &c.limit, 1)
	c.AddAuditFlags(cmd)
	c.AddYes(cmd)
	c.AddCommonFlags(cmd)
}

// filter returns the filter that the command line describes. The ids are its arguments.
func (c *action) filter(ids []string) (f held.Filter, err error) {
	f, err = c.flags.filter()
	if err != nil {
		return f, err
	}
	none := f.IsZero() && len(ids) == 0
	for _, arg := range ids {
		id, err := argument.ID(arg)
		if err != nil {
			return f, err
		}
		f.IDs = append(f.IDs, id)
	}
	switch {
	case none && !c.all:
		return f, exit.Usagef("which events? Give their ids, or select them, for instance with --handler or --key, or give --all")
	case !none && c.all:
		return f, exit.Usagef("--all selects all events: leave out the other conditions")
	}
	return f, nil
}

// run chooses events, asks the person, and changes the events as the verb says.
func (c *action) run(cmd *cobra.Command, ids []string, verb string, do actionFunc) error {
	f, err := c.filter(ids)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	return c.DB.With(ctx, func(conn *pgx.Conn, name string) error {
		store := held.NewStore(conn, name)
		if err := store.Check(ctx); err != nil {
			return err
		}
		set, err := store.Select(ctx, f, c.limit)
		if errors.Is(err, held.ErrNoMatch) {
			return errors.New("no held event matches; 'postroom held list' shows held events")
		}
		if err != nil {
			return err
		}
		if c.dryRun {
			return heldview.Set(cmd.OutOrStdout(), c.JSON, set)
		}
		n := len(set.IDs)
		if !c.Yes {
			if err := confirm.Ask(cmd, fmt.Sprintf("%s %s (%s)?", verb, output.Plural(n, "event"), heldview.States(set.States)), "'postroom held list'"); err != nil {
				return err
			}
		}
		bar := output.Bar(cmd.ErrOrStderr())
		r, err := do(ctx, store, set, postroom.Audit{Actor: c.Who(), Reason: c.Reason}, func(done int64) { bar.Show(int(done), n, verb) })
		bar.Clear()
		if err != nil {
			return c.broken(cmd.OutOrStdout(), verb, r, err)
		}
		if err := heldview.Result(cmd.OutOrStdout(), c.JSON, verb, r); err != nil || r.Events > 0 {
			return err
		}
		return exit.Todof("nothing was changed: %s", heldview.Advice(r.Unchanged))
	})
}

// broken prints how many events the action changed before it failed with err. It returns the error
// of the command.
func (c *action) broken(out io.Writer, verb string, done held.Result, err error) error {
	//guard:an-act-that-fails-says-what-it-did true
	if done.Events == 0 {
		return err
	}
	printed := heldview.Result(out, c.JSON, verb, done)
	if errors.Is(err, context.Canceled) {
		return errors.Join(fmt.Errorf("interrupted: up to 1,000 events more than counted above may have changed. To %s the rest, repeat the command", verb), printed)
	}
	return errors.Join(fmt.Errorf("%w: up to 1,000 events more than counted above may have changed", err), printed)
}

func newRetry(getenv func(string) string) *cobra.Command {
	c := &action{Caller: caller.New(getenv)}
	cmd := &cobra.Command{
		Use:   "retry [ID...]",
		Short: "Try events now instead of later",
		Long: `Take events that wait for their next attempt or that are scheduled, and try them now. A
handler runs its event at once, which counts as an attempt. An outgoing event is
published.

An event that is due, that runs, or that waits behind an earlier event of its key is not
changed.

Exit status 3: nothing was changed.`,
		Example: `  postroom held retry 4711
  postroom held retry --handler billing.charge --class timeout --reason 'the vendor is back'
  postroom held retry --handler billing.charge --dry-run`,
		Args:              argument.IDs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, args, "retry", func(ctx context.Context, store *held.Store, set held.Set, by postroom.Audit, progress func(int64)) (held.Result, error) {
				return store.Retry(ctx, set, by, progress)
			})
		},
	}
	c.addFlags(cmd)
	return cmd
}

func newReschedule(getenv func(string) string) *cobra.Command {
	c := &action{Caller: caller.New(getenv)}
	var at string
	var in time.Duration
	cmd := &cobra.Command{
		Use:   "reschedule [ID...] --at TIME|--in DURATION",
		Short: "Try or publish events at another time",
		Long: `Give events another time: a handler's event is tried then, an outgoing event is
published then. Later events of the same key that wait for such an event wait at least
until that time.

An event that runs, or that waits behind an earlier event of its key, is not changed. An
outgoing event that is due is not changed either, because it may be on its way to the
broker.

Exit status 3: nothing was changed.`,
		Example: `  postroom held reschedule 4711 --in 2h
  postroom held reschedule --handler outbox --type order.reminder --at 2026-02-01T08:00:00Z
  postroom held reschedule --handler billing.charge --in 24h --reason 'the vendor is down today'`,
		Args:              argument.IDs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if flags := cmd.Flags(); flags.Changed("at") == flags.Changed("in") || at == "" && in == 0 {
				return exit.Usagef("when? Give either --at, for instance 2026-02-01T08:00:00Z, or --in, for instance 2h")
			}
			when, ok := argument.Stamp(at)
			if at != "" && !ok {
				return exit.Usagef("--at: write a time, for instance 2026-02-01T08:00:00Z")
			}
			return c.run(cmd, args, "reschedule", func(ctx context.Context, store *held.Store, set held.Set, by postroom.Audit, progress func(int64)) (held.Result, error) {
				if at == "" {
					return store.RescheduleIn(ctx, set, in, by, progress)
				}
				return store.Reschedule(ctx, set, when, by, progress)
			})
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "the new time, in UTC unless it names another time zone")
	cmd.Flags().DurationVar(&in, "in", 0, "the new time, as a duration from now")
	command.NoFileCompletion(cmd, "at", "in")
	argument.Positive(cmd, "in", &in, "2h")
	argument.Conditions(cmd, "at")
	c.addFlags(cmd)
	return cmd
}

func newCancel(getenv func(string) string) *cobra.Command {
	c := &action{Caller: caller.New(getenv)}
	cmd := &cobra.Command{
		Use:   "cancel [ID...] --reason REASON",
		Short: "Give up held events that are not dead",
		Long: `Give up held events that are not dead. They move to the archive, like discarded events,
and later events of their keys continue. A cancelled event does not run, even if it is
delivered again. A cancelled outgoing event is not published. 'postroom dead list
--discarded' lists cancelled events, and 'postroom dead reopen' brings one back, as a
dead event.

An event that runs is not changed. An outgoing event that waits behind an earlier event
of its key is not changed. An outgoing event that is due is not changed either, because
it may be on its way to the broker.

Exit status 3: nothing was changed.`,
		Example: `  postroom held cancel 4711 --reason 'ordered twice'
  postroom held cancel --handler outbox --type order.reminder --key order-7 --reason 'order was paid'
  postroom held cancel --handler mail.send --due-until 2026-02-01 --reason 'too late now' --dry-run`,
		Args:              argument.IDs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.Reason == "" && !c.dryRun {
				return exit.Usagef("why? Give --reason: the archive and the audit keep it")
			}
			return c.run(cmd, args, "cancel", func(ctx context.Context, store *held.Store, set held.Set, by postroom.Audit, progress func(int64)) (held.Result, error) {
				return store.Cancel(ctx, set, by, progress)
			})
		},
	}
	c.addFlags(cmd)
	return cmd
}
