package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/republish"
)

const rewindHelp = `Publish events of the log again, as they were, beside the live ones: for a stream that
lost some, or for a new reader of it. Which ones is said by when they were written, by
type and by key.

The wish is stored, and the relay that leads carries it out, in the order of the log and
not faster than --rate. This command watches. Where it is interrupted the rewind goes on;
given again, it watches the same rewind, and makes no other while that runs. What a crash
of the relay repeats has the same message id, which the stream drops.

Each event gets one copy more in the stream, with an id of its own and the header
postroom-rewind. Handlers know it by its source and id and do not apply it twice, as long
as their ledgers keep it; one that is too old for them is held. Other readers see it again.

What retention removed from the log cannot be published again: the preview says where the
log begins. Events that are held, or were discarded, are left out: see 'postroom dead'.

Exit status 3: it was cancelled, events were refused, or no relay leads.`

// rewindWish is what the command line asks of a rewind.
type rewindWish struct {
	dead // the database, and who asks

	since, until string
	o            republish.Order
	all          bool
	dryRun       bool
	detach       bool
}

func newRewind(getenv func(string) string) *cobra.Command {
	w := &rewindWish{dead: dead{db: database{getenv: getenv}}}
	cmd := &cobra.Command{
		Use:   "rewind",
		Short: "Publish events of the log again",
		Long:  rewindHelp,
		Example: `  postroom rewind --since 2h --dry-run
  postroom rewind --since 2026-01-31T03:00:00Z --until 2026-01-31T04:00:00Z --reason 'stream was purged'
  postroom rewind --since 24h --type order.placed --type order.paid --rate 200 --yes
  postroom rewind --key order-7 --detach --json
  postroom rewind list
  postroom rewind cancel 7`,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := w.order(); err != nil {
				return err
			}
			return w.with(cmd.Context(), func(_ *outbox.Log, rewinds *republish.Rewinds) error { return w.run(cmd, rewinds) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&w.since, "since", "", "written since then: a time (2026-01-31T03:00:00Z) or how long ago (90m)")
	flags.StringVar(&w.until, "until", "", "written before then, likewise (default now)")
	flags.StringArrayVar(&w.o.Types, "type", nil, "of this event type; can be repeated")
	flags.StringArrayVar(&w.o.Keys, "key", nil, "with this key; can be repeated")
	flags.BoolVar(&w.all, "all", false, "the whole log")
	flags.Float64Var(&w.o.Rate, "rate", republish.DefaultRate, "publish so many in a second at the most")
	flags.BoolVar(&w.dryRun, "dry-run", false, "say what it would publish; change nothing")
	flags.BoolVar(&w.detach, "detach", false, "do not watch")
	noFileCompletion(cmd, "since", "until", "type", "key", "rate")
	w.addAuditFlags(cmd)
	w.addYes(cmd)
	w.db.addURLFlag(cmd)
	w.db.addSchemaFlag(cmd)
	addJSON(cmd, &w.asJSON)
	cmd.AddCommand(newRewindList(w), newRewindCancel(w))
	return cmd
}

// with connects and calls do with the log and its rewinds.
func (w *rewindWish) with(ctx context.Context, do func(log *outbox.Log, rewinds *republish.Rewinds) error) error {
	name, err := w.db.schema()
	if err != nil {
		return err
	}
	pool, err := w.db.lookPool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	log := outbox.NewLog(pool).WithSchema(name).ForOperator()
	if err := log.Check(ctx); err != nil {
		return err
	}
	return do(log, republish.New(pool).WithSchema(name))
}

// order reads the flags.
func (w *rewindWish) order() (err error) {
	if w.o.Since, err = parseTime("since", w.since); err != nil {
		return err
	}
	if w.o.Until, err = parseTime("until", w.until); err != nil {
		return err
	}
	some := w.since != "" || w.until != "" || len(w.o.Types)+len(w.o.Keys) > 0
	switch {
	case !some && !w.all:
		return usagef("which events? Give --since, --type or --key; or --all for the whole log")
	case some && w.all:
		return usagef("--all means all: leave the other conditions out")
	case !w.o.Since.IsZero() && !w.o.Until.IsZero() && !w.o.Since.Before(w.o.Until):
		return usagef("--since is not before --until")
	case !(w.o.Rate > 0 && w.o.Rate <= 1e6):
		return usagef("--rate is above 0, and 1000000 at the most")
	case slices.Contains(slices.Concat(w.o.Types, w.o.Keys), ""):
		return usagef("--type and --key are not empty")
	}
	by := w.audit()
	w.o.Actor, w.o.Reason = by.Actor, by.Reason
	w.o.Name = fmt.Sprintf("since %s until %s", w.since, w.until) // "2h" is another time when it is said again
	return nil
}

func (w *rewindWish) run(cmd *cobra.Command, rewinds *republish.Rewinds) error {
	p, err := rewinds.Preview(cmd.Context(), w.o)
	switch {
	case err != nil:
		return err
	case w.dryRun:
		return w.printPreview(cmd, p)
	case p.Running != nil:
		p.Running.Log = &p.Log
		return w.follow(cmd, rewinds, *p.Running)
	case p.Events == 0:
		return w.nothing(p.Log)
	}
	if !w.yes {
		report(cmd.ErrOrStderr(), "%s", strings.Join(w.previewLines(p), "\n")+"\n")
		if err := askOr(cmd, fmt.Sprintf("publish %s again?", plural(int(p.Events), "event")), "--dry-run"); err != nil {
			return err
		}
	}
	r, err := rewinds.Rewind(cmd.Context(), w.o)
	if errors.Is(err, republish.ErrNoEvents) {
		return w.nothing(p.Log)
	}
	if err != nil {
		return err
	}
	return w.follow(cmd, rewinds, r)
}

// nothing says that there is nothing to publish.
func (w *rewindWish) nothing(reach republish.Reach) error {
	text := "no such events"
	if reach.Gone {
		text += ": " + goneLine(reach)
	}
	return errors.New(text)
}

// follow watches a rewind, or says that it is made.
func (w *rewindWish) follow(cmd *cobra.Command, rewinds *republish.Rewinds, r republish.Rewind) error {
	if r.RanAlready && !w.asJSON {
		if err := printLine(cmd.OutOrStdout(), "rewind %d is the same and runs since %s: no other is made", r.ID, ago(r.CreatedAt)); err != nil {
			return err
		}
	}
	if w.detach {
		return w.print(cmd, r)
	}
	return w.watch(cmd, rewinds, r)
}

const (
	// How often a rewind that is watched is looked at, and how long a relay may take
	// to lead.
	watchEvery     = 200 * time.Millisecond
	leaderPatience = 10 * time.Second
)

// watch shows how far a rewind is, until it ends.
func (w *rewindWish) watch(cmd *cobra.Command, rewinds *republish.Rewinds, r republish.Rewind) error {
	ctx, reach, known := cmd.Context(), r.Log, r.RanAlready
	bar := newBar(cmd.ErrOrStderr())
	for led := time.Now(); r.State == republish.Running; {
		bar.Show(int(r.Events-r.Left()), int(max(r.Events, 1)), fmt.Sprintf("rewind %d: %d published, %d left out, %d held", r.ID, r.Published, r.Skipped, r.Held))
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
			bar.Clear()
			return todof("interrupted; rewind %d goes on without this command. 'postroom rewind list' shows it, 'postroom rewind cancel %d' ends it", r.ID, r.ID)
		}
		found := r
		leads, err := rewinds.Led(ctx)
		if err == nil {
			found, err = rewinds.Find(ctx, r.ID)
		}
		switch {
		case ctx.Err() != nil:
			continue // it is told of above
		case err != nil:
			bar.Clear()
			return fmt.Errorf("%w; rewind %d goes on without this command", err, r.ID)
		case leads:
			led = time.Now()
		case time.Since(led) > leaderPatience && found.State == republish.Running:
			bar.Clear()
			return todof("no relay leads: rewind %d waits until one does. Start 'postroom relay', and give this command again to watch", r.ID)
		}
		r = found
	}
	bar.Clear()
	r.Log, r.RanAlready = reach, known
	if err := w.print(cmd, r); err != nil {
		return err
	}
	switch {
	case r.State == republish.Cancelled:
		return todof("rewind %d was cancelled: %s not published again", r.ID, plural(int(r.Left()), "event"))
	case r.Held > 0:
		return todof("the broker refused %s: 'postroom dead groups --handler outbox' says why, when they are dead", plural(int(r.Held), "event"))
	}
	return nil
}

// print prints a rewind, and what is gone.
func (w *rewindWish) print(cmd *cobra.Command, r republish.Rewind) error {
	if w.asJSON {
		return printJSON(cmd.OutOrStdout(), r)
	}
	if err := printTable(cmd.OutOrStdout(), rewindRows([]republish.Rewind{r})); err != nil {
		return err
	}
	if left := r.Left(); r.State == republish.Done && left > 0 {
		if err := printLine(cmd.OutOrStdout(), "%s of it were gone from the log when their turn came", plural(int(left), "event")); err != nil {
			return err
		}
	}
	if r.Log != nil && r.Log.Gone {
		return printLine(cmd.OutOrStdout(), "%s", goneLine(*r.Log))
	}
	return nil
}

func goneLine(reach republish.Reach) string {
	if reach.FirstSeq == 0 {
		return "the log is empty: what was written before is gone"
	}
	return fmt.Sprintf("the log begins at %s, seq %d: what was written before it is gone", stamp(reach.BeginsAt), reach.FirstSeq)
}

func (w *rewindWish) printPreview(cmd *cobra.Command, p republish.Preview) error {
	if w.asJSON {
		return printJSON(cmd.OutOrStdout(), p)
	}
	return printLine(cmd.OutOrStdout(), "%s", strings.Join(w.previewLines(p), "\n"))
}

func (w *rewindWish) previewLines(p republish.Preview) []string {
	lines := []string{"no such events"}
	if p.Events > 0 {
		lines[0] = fmt.Sprintf("%s, written from %s to %s, seq %d to %d; at %g a second in about %s",
			plural(int(p.Events), "event"), stamp(p.Earliest), stamp(p.Latest), p.First, p.Last, w.o.Rate,
			span(time.Duration(float64(p.Events)/w.o.Rate*float64(time.Second))+time.Second))
	}
	if p.Log.Gone {
		lines = append(lines, goneLine(p.Log))
	}
	if p.Running != nil {
		lines = append(lines, fmt.Sprintf("rewind %d is the same and runs: no other would be made", p.Running.ID))
	}
	return lines
}

func rewindRows(all []republish.Rewind) [][]string {
	rows := [][]string{{"REWIND", "STATE", "EVENTS", "PUBLISHED", "LEFT OUT", "HELD", "OPEN", "RATE", "MADE", "BY", "WHAT", "REASON"}}
	for _, r := range all {
		rows = append(rows, []string{
			count(r.ID), string(r.State), count(r.Events), count(r.Published), count(r.Skipped), count(r.Held), count(r.Left()),
			fmt.Sprintf("%g/s", r.Rate), ago(r.CreatedAt), cell(r.Actor, 30), cell(rewindWords(r), 80), orDash(cell(r.Reason, 60)),
		})
	}
	return rows
}

// rewindWords says which events a rewind has.
func rewindWords(r republish.Rewind) string {
	var parts []string
	if r.Kind != "rewind" {
		parts = append(parts, r.Kind)
	}
	if !r.Since.IsZero() {
		parts = append(parts, "since "+stamp(r.Since))
	}
	if !r.Until.IsZero() {
		parts = append(parts, "until "+stamp(r.Until))
	}
	if len(r.Types) > 0 {
		parts = append(parts, "type "+strings.Join(r.Types, " or "))
	}
	if len(r.Keys) > 0 {
		parts = append(parts, "key "+strings.Join(r.Keys, " or "))
	}
	if len(parts) == 0 {
		return "the whole log"
	}
	return strings.Join(parts, ", ")
}

func newRewindList(w *rewindWish) *cobra.Command {
	var limit int
	var before int64
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List rewinds, the last first",
		Long: `List rewinds, the last first: who made them, of what, and how far they are. Of those
that run the relay takes one after the other, the first made first.`,
		Example: `  postroom rewind list
  postroom rewind list --json | jq '.[] | select(.state == "running")'`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || before < 0 {
				return usagef("--limit is 1 or more, --before is the id of a rewind")
			}
			return w.with(cmd.Context(), func(_ *outbox.Log, rewinds *republish.Rewinds) error {
				all, err := rewinds.List(cmd.Context(), limit, before)
				switch {
				case err != nil:
					return err
				case w.asJSON:
					return printJSON(cmd.OutOrStdout(), list(all))
				case len(all) == 0:
					return printLine(cmd.OutOrStdout(), "no rewinds")
				}
				return printTable(cmd.OutOrStdout(), rewindRows(all))
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "how many to show")
	cmd.Flags().Int64Var(&before, "before", 0, "those before this one")
	noFileCompletion(cmd, "limit", "before")
	w.db.addURLFlag(cmd)
	addJSON(cmd, &w.asJSON)
	return cmd
}

func newRewindCancel(w *rewindWish) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel REWIND",
		Short: "End a rewind",
		Long: `End a rewind. The relay notices within a second or two; what is on its way by then is
published, and nothing else.`,
		Example:           `  postroom rewind cancel 7 --reason 'too fast for billing'`,
		Args:              oneID("a rewind, as 'postroom rewind list' shows it"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, _ := eventID(args[0]) // Args has seen it
			return w.with(cmd.Context(), func(_ *outbox.Log, rewinds *republish.Rewinds) error {
				by := w.audit()
				r, err := rewinds.Cancel(cmd.Context(), id, by.Actor, by.Reason)
				if errors.Is(err, republish.ErrNoRewind) {
					return fmt.Errorf("rewind %d does not run: 'postroom rewind list'", id)
				}
				if err != nil {
					return err
				}
				return w.print(cmd, r)
			})
		},
	}
	w.addAuditFlags(cmd)
	w.db.addURLFlag(cmd)
	addJSON(cmd, &w.asJSON)
	return cmd
}
