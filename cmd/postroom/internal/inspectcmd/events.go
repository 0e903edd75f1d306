package inspectcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/eventview"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/inspection"
	"github.com/postroom/postroom/internal/eventsearch"
	"github.com/postroom/postroom/internal/inspect"
)

// NewEvents returns the group of commands on events.
func NewEvents(getenv func(string) string) *cobra.Command {
	cmd := command.Group("events", "Find events, and see what happened to them", newEventsList(getenv), newEventsShow(getenv), newEventsTree(getenv))
	cmd.Long = `Find events by their key, type, source, correlation id or trace. See what happened to
one event, from the log to its last effect, or to all events of a business process.`
	return cmd
}

// eventFlags has the flags that select events.
type eventFlags struct {
	filter       inspect.EventFilter
	since, until string
}

func (w *eventFlags) add(cmd *cobra.Command) {
	flags, f := cmd.Flags(), &w.filter
	flags.StringVar(&f.Key, "key", "", "events with this key")
	flags.StringVar(&f.Type, "type", "", "events of this type")
	flags.StringVar(&f.Source, "source", "", "events of this source, for instance /shop")
	flags.StringVar(&f.CorrelationID, "correlation", "", "events with this correlation id: those of one business process")
	flags.StringVar(&f.CausationID, "cause", "", "events that were caused by the event with this id")
	flags.StringVar(&f.TraceID, "trace", "", "events that were written in this trace: a trace id or a traceparent")
	flags.StringVar(&f.Any, "any", "", "events that have this value as id, key, correlation id, cause or trace id")
	flags.StringVar(&w.since, "since", "", "events that were written at this time or later: a time (2026-01-31T03:00:00Z) or how long ago (90m)")
	flags.StringVar(&w.until, "until", "", "events that were written before this time")
	flags.IntVar(&f.Limit, "limit", 100, "how many events to show, 1 to 1000")
	flags.StringVar(&f.After, "after", "", "show the next page: the value that the last page printed at its end")
	conditions := []string{"key", "type", "source", "correlation", "cause", "trace", "any", "since", "until"}
	argument.PageLimit(cmd, &f.Limit)
	argument.After(cmd, &f.After)
	argument.Check(cmd, "trace", "want a trace id, 32 hexadecimal digits, or a traceparent", func() bool {
		_, ok := eventsearch.TraceIDOf(f.TraceID)
		return ok
	})
	argument.Conditions(cmd, conditions...)
	command.NoFileCompletion(cmd, append(conditions, "limit", "after")...)
}

// read checks the values of the flags, and completes the filter.
func (w *eventFlags) read() (err error) {
	w.filter.Since, w.filter.Until, err = argument.Span("since", w.since, "until", w.until)
	return err
}

func newEventsList(getenv func(string) string) *cobra.Command {
	s := inspection.New(getenv)
	var w eventFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List events by key, type, source, correlation id, trace or time",
		Long: `List the events that match all conditions that you give, newest first. The list has
events of the log. It also has events that are held or were discarded and that are not
in the log: events of other services, and events that retention removed.

The log has no index for most of these conditions. So for a page the command reads at
most 200,000 rows of the log, the newest first, and for about five seconds at most. If
it stopped at a limit, it prints how to continue. With --since and --until it reads only
the rows of that time. Changes nothing.`,
		Example: `  postroom events list --key order-7
  postroom events list --correlation 01936f0e-3c4b-7d7a-9a61-0d3c1c2b8f10
  postroom events list --any order-7 --since 2h
  postroom events list --trace 4bf92f3577b34da6a3ce929d0e0e4736 --since 2h
  postroom events list --type order.placed --since 2026-01-31T03:00 --until 2026-01-31T04:00 --json`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := w.read(); err != nil {
				return err
			}
			return s.WithDatabase(cmd.Context(), inspect.Config{}, func(i *inspect.Inspector) error {
				page, err := i.Events(cmd.Context(), w.filter)
				if err != nil {
					return err
				}
				return eventview.List(cmd.OutOrStdout(), s.JSON, page, "")
			})
		},
	}
	w.add(cmd)
	s.AddFlags(cmd, false)
	return cmd
}

func newEventsShow(getenv func(string) string) *cobra.Command {
	s := inspection.New(getenv)
	var source string
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show where one event is, and what happened to it",
		Long: `Show where one event is, and what happened to it.

The answer has: the event's row in the log and whether it is published, its place in the
stream, the handlers that decided it and when, where it is held and each failure, steps
of external handlers, edits, replays, republishes, actions of operators, the event that
caused it, and the events that it caused. It does not have the event's data. Changes
nothing.

ID is the id of an event. If no event has this id, the command looks for events that
have it as key, correlation id, trace id or cause. If it finds one event, it shows that
event. If it finds several, it lists them, as 'postroom events list --any' does.

With a broker (--nats-url) it also searches the stream, for half a second at most,
beginning at the time at which the event was written to the log. An id is unique within
a source. Without --source the command shows all events with this id, and searches the
inbox for each source that it finds.`,
		Example: `  postroom events show 01936f0e-3c4b-7d7a-9a61-0d3c1c2b8f10
  postroom events show order-7 --source /shop --nats-url nats://localhost:4222
  postroom events show 4bf92f3577b34da6a3ce929d0e0e4736`,
		Args:              oneEvent,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.WithBroker(cmd.Context(), func(i *inspect.Inspector, away error) error {
				j, page, err := findEvent(cmd.Context(), i, source, args[0])
				switch {
				case err != nil:
					return errors.Join(err, away) // away says why the broker was not asked
				case page != nil:
					return eventview.List(cmd.OutOrStdout(), s.JSON, page, args[0])
				}
				inspection.SetBrokerFault(&j.Broker, away)
				if err := eventview.Event(cmd.OutOrStdout(), s.JSON, j); err != nil {
					return err
				}
				return away
			})
		},
	}
	cmd.Flags().StringVar(&source, "source", "", "the source of the event, for instance /shop")
	command.NoFileCompletion(cmd, "source")
	argument.Conditions(cmd, "source")
	s.AddFlags(cmd, true)
	return cmd
}

func oneEvent(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" || strings.Contains(args[0], "://") {
		return exit.Usagef("give the id of one event")
	}
	return nil
}

// findEvent returns the trace of the event with an id. If no event has the id, findEvent looks for
// events that have the same text as key, correlation id, trace id or cause. If it finds one event,
// it returns the trace of that event. If it finds several, it returns a page of them.
func findEvent(ctx context.Context, i *inspect.Inspector, source, id string) (*inspect.EventTrace, *inspect.EventPage, error) {
	j, err := i.Event(ctx, source, id)
	if !errors.Is(err, inspect.ErrNotFound) {
		return j, nil, err
	}
	page, other := i.Events(ctx, inspect.EventFilter{Any: id, Source: source})
	switch {
	case other != nil:
		return nil, nil, errors.Join(err, other)
	case page.Next == "" && len(page.Events) == 0:
		return nil, nil, fmt.Errorf("%w; and no event has it as key, correlation id, trace id or cause", err)
	case page.Next == "" && len(page.Events) == 1:
		j, err = i.Event(ctx, page.Events[0].Source, page.Events[0].EventID)
		return j, nil, err
	}
	return nil, page, nil
}

func newEventsTree(getenv func(string) string) *cobra.Command {
	s := inspection.New(getenv)
	var q inspect.TreeQuery
	var urls []string
	cmd := &cobra.Command{
		Use:   "tree ID",
		Short: "Show what caused an event and what it caused, across services",
		Long: `Show the business process of an event: each event below its cause, with its time and its
state. ID is the id of an event, or a correlation id.

The command finds causes and effects by causation id. It adds events with the same
correlation id: for these it searches 200,000 rows of each log at most, beginning at the
first event of the process. If it stopped at a limit, it says so. Changes nothing.

To see a process of several services in one picture, give --database-url once for each
service. Without --database-url, the command uses the database that the environment
names.`,
		Example: `  postroom events tree order-7
  postroom events tree order-7 --database-url postgres://ann@db/shop --database-url postgres://ann@db/billing
  postroom events tree 01936f0e-3c4b-7d7a-9a61-0d3c1c2b8f10 --depth 3 --limit 50 --json`,
		Args:              oneEvent,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			q.ID = args[0]
			return s.WithDatabases(cmd.Context(), urls, func(all []*inspect.Inspector, away error) error {
				tree, err := inspect.Tree(cmd.Context(), q, all...)
				if err != nil {
					return errors.Join(err, away)
				}
				return errors.Join(eventview.Tree(cmd.OutOrStdout(), s.JSON, tree), away)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Source, "source", "", "the source of the event, for instance /shop")
	flags.IntVar(&q.Depth, "depth", 20, "how many levels of causes and of effects to show, 1 to 100")
	flags.IntVar(&q.Limit, "limit", 200, "how many events to show, 1 to 1000")
	flags.StringArrayVar(&urls, "database-url", nil, "PostgreSQL URL; can be repeated (env POSTROOM_DATABASE_URL, DATABASE_URL)")
	s.DB.AddSchemaFlag(cmd)
	command.AddJSON(cmd, &s.JSON)
	command.NoFileCompletion(cmd, "source", "depth", "limit", "database-url")
	argument.Between(cmd, "depth", &q.Depth, 1, 100)
	argument.PageLimit(cmd, &q.Limit)
	argument.Conditions(cmd, "source", "database-url")
	return cmd
}
