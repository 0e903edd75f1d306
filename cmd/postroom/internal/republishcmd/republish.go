// Package republishcmd has the commands that publish events of the log again. The command republish
// publishes events that a person selects. The command reconcile finds the events that a stream has
// lost, and can publish them again.
package republishcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/caller"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/confirm"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/operator"
)

const help = `Publish events of the log again, unchanged, beside live events. Use this if a stream
lost events, or if the stream has a new reader. Select the events by the time at which
they were written, by type and by key.

The command stores the republish in the database. The leading relay carries it out: it
publishes the events in the order of the log, and not faster than --rate. The command
shows the progress. If you interrupt the command, the republish continues. If you repeat
the command while the republish runs, it shows the progress of that republish and starts
no other. If the relay crashes, some events are sent twice with the same message id, and
the stream drops the second copies.

Each event gets one more copy in the stream, with a new message id and the header
postroom-republish. A handler recognises the event by its source and id, and does not
apply it twice as long as the inbox keeps the event's row. If the event is so old that
the row may be gone, the event is held as dead. Readers that are not handlers of
Postroom see the event twice.

Events that retention removed from the log cannot be published again: the preview shows
the time at which the log begins. Events that are held or were discarded are left out:
see 'postroom dead'.

Exit status 3: the republish was cancelled, the broker refused events, no relay leads,
or you interrupted the command.`

// An order has the values of the flags that describe a republish.
type order struct {
	caller.Caller

	since, until string
	request      operator.RepublishRequest
	all          bool
	dryRun       bool
	detach       bool

	together *[]operator.Republish // print only adds to it, unless it is nil
}

// New returns the command republish.
func New(getenv func(string) string) *cobra.Command {
	w := &order{Caller: caller.New(getenv)}
	cmd := &cobra.Command{
		Use:   "republish",
		Short: "Publish events of the log again",
		Long:  help,
		Example: `  postroom republish --since 2h --dry-run
  postroom republish --since 2026-01-31T03:00:00Z --until 2026-01-31T04:00:00Z --reason 'stream was purged'
  postroom republish --since 24h --type order.placed --type order.paid --rate 200 --yes
  postroom republish --key order-7 --detach --json
  postroom republish list
  postroom republish cancel 7`,
		Args: command.Subcommands,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := w.readFlags(); err != nil {
				return err
			}
			return w.with(cmd.Context(), func(_ *pglog.Log, store *operator.Store) error { return w.run(cmd, store) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&w.since, "since", "", "events that were written at this time or later: a time (2026-01-31T03:00:00Z) or how long ago (90m)")
	flags.StringVar(&w.until, "until", "", "events that were written before this time (default now)")
	flags.StringArrayVar(&w.request.Types, "type", nil, "events of this type; can be repeated")
	flags.StringArrayVar(&w.request.Keys, "key", nil, "events with this key; can be repeated")
	flags.BoolVar(&w.all, "all", false, "all events of the log")
	flags.Float64Var(&w.request.Rate, "rate", operator.DefaultRate, "publish at most this many events a second")
	flags.BoolVar(&w.dryRun, "dry-run", false, "show which events the command would publish; change nothing")
	flags.BoolVar(&w.detach, "detach", false, "do not wait until the republish ends")
	command.NoFileCompletion(cmd, "since", "until", "type", "key", "rate")
	argument.Rate(cmd, "rate", &w.request.Rate)
	argument.Conditions(cmd, "since", "until", "type", "key")
	w.AddAuditFlags(cmd)
	w.AddYes(cmd)
	w.AddCommonFlags(cmd)
	cmd.AddCommand(newList(w), newCancel(w))
	return cmd
}

// with connects, and calls the function do with the log and the store of republishes.
func (w *order) with(ctx context.Context, do func(log *pglog.Log, store *operator.Store) error) error {
	name, err := w.DB.Schema()
	if err != nil {
		return err
	}
	pool, err := w.DB.LookPool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	log := pglog.New(pool).WithSchema(name).ForOperator()
	if err := log.Check(ctx); err != nil {
		return err
	}
	return do(log, operator.New(pool, operator.Config{Schema: name}))
}

// audit says who gives the order, and why.
func (w *order) audit() postroom.Audit { return postroom.Audit{Actor: w.Who(), Reason: w.Reason} }

// readFlags checks the values of the flags, and completes the request.
func (w *order) readFlags() (err error) {
	if w.request.Since, w.request.Until, err = argument.Span("since", w.since, "until", w.until); err != nil {
		return err
	}
	some := w.since != "" || w.until != "" || len(w.request.Types)+len(w.request.Keys) > 0
	switch {
	case !some && !w.all:
		return exit.Usagef("which events? Give --since, --type or --key, or --all for all events of the log")
	case some && w.all:
		return exit.Usagef("--all selects all events: leave out the other conditions")
	}
	w.request.All = w.all
	w.request.Name = fmt.Sprintf("since %s until %s", w.since, w.until) // as typed, because "2h" means another time in a later call
	return nil
}

func (w *order) run(cmd *cobra.Command, store *operator.Store) error {
	p, err := store.PreviewRepublish(cmd.Context(), w.request)
	switch {
	case err != nil:
		return err
	case w.dryRun:
		return w.printPreview(cmd, p)
	case p.Events == 0 && p.Running == nil:
		return w.nothing(p.Log)
	}
	if !w.Yes && p.Running == nil {
		output.Report(cmd.ErrOrStderr(), "%s", strings.Join(w.previewLines(p), "\n")+"\n")
		if err := confirm.Ask(cmd, fmt.Sprintf("publish %s again?", output.Plural(int(p.Events), "event")), ""); err != nil {
			return err
		}
	}
	r, err := store.Republish(cmd.Context(), w.request, w.audit())
	switch {
	case errors.Is(err, operator.ErrNoEvents):
		return w.nothing(p.Log)
	case errors.Is(err, operator.ErrRepublishRunning):
		return fmt.Errorf("%w. Nothing was ordered. 'postroom republish list' shows how far it is. Order the others with the times of --since and --until in full, or when it has ended", err)
	case err != nil:
		return err
	}
	return w.follow(cmd, store, r)
}

// nothing returns the error for a request that selects no events.
func (w *order) nothing(reach operator.LogExtent) error {
	text := "no event matches"
	if reach.Gone {
		text += ": " + goneLine(reach)
	}
	return errors.New(text)
}

// follow shows the progress of a republish. With --detach it only prints the republish.
func (w *order) follow(cmd *cobra.Command, store *operator.Store, r operator.Republish) error {
	if r.AlreadyRunning && !w.JSON {
		if err := output.Line(cmd.OutOrStdout(), "republish %d has all of these events, was started %s and still runs: no other is started", r.ID, output.Ago(r.CreatedAt)); err != nil {
			return err
		}
	}
	if w.detach {
		return w.print(cmd, r)
	}
	return w.watch(cmd, store, r)
}

const (
	// watchEvery is how often the command reads the state of the republish. leaderPatience is how
	// long it waits while no relay leads.
	watchEvery     = 200 * time.Millisecond
	leaderPatience = 10 * time.Second
)

// watch shows the progress of a republish until it ends.
func (w *order) watch(cmd *cobra.Command, store *operator.Store, r operator.Republish) error {
	ctx, reach, known := cmd.Context(), r.Log, r.AlreadyRunning
	bar := output.Bar(cmd.ErrOrStderr())
	for led := time.Now(); r.State == operator.RepublishRunning; {
		bar.Show(int(r.Events-r.Left()), int(r.Events), fmt.Sprintf("republish %d: %d published, %d left out, %d held", r.ID, r.Published, r.Skipped, r.Held))
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
			bar.Clear()
			return exit.Todof("interrupted; republish %d continues without this command. 'postroom republish list' shows it, 'postroom republish cancel %d' ends it", r.ID, r.ID)
		}
		found := r
		leads, err := store.HasLeader(ctx)
		if err == nil {
			found, err = store.FindRepublish(ctx, r.ID)
		}
		switch {
		case ctx.Err() != nil:
			continue // the next turn of the loop reports the interruption
		case err != nil:
			bar.Clear()
			return fmt.Errorf("%w; republish %d continues without this command", err, r.ID)
		case leads:
			led = time.Now()
		case time.Since(led) > leaderPatience && found.State == operator.RepublishRunning:
			bar.Clear()
			return exit.Todof("no relay leads: republish %d waits for one. Start 'postroom relay', and repeat this command to see the progress", r.ID)
		}
		r = found
	}
	bar.Clear()
	r.Log, r.AlreadyRunning = reach, known
	if err := w.print(cmd, r); err != nil {
		return err
	}
	switch {
	case r.State == operator.RepublishCancelled:
		return exit.Todof("republish %d was cancelled: %s not published again", r.ID, output.Plural(int(r.Left()), "event"))
	case r.Held > 0:
		return exit.Todof("the broker refused %s: when they are dead, 'postroom dead groups --handler outbox' shows why", output.Plural(int(r.Held), "event"))
	}
	return nil
}
