package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/inspect"
)

func newEvents(getenv func(string) string) *cobra.Command {
	cmd := group("events", "Look at single events", newEventsShow(getenv))
	cmd.Long = `Look at single events: what became of one, from its log to its last effect.`
	return cmd
}

func newEventsShow(getenv func(string) string) *cobra.Command {
	s := newInspection(getenv)
	var source string
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show where one event is, and what happened to it",
		Long: `Show where one event is, and what happened to it.

The answer has its row in the log and whether it is published, its place in the stream,
the handlers that decided it and when, where it is held and each failure, the steps of
external handlers, edits, replays, requests to publish it again, what operators did, the
event that caused it and the events that it caused. It does not have the event's data.
The command changes nothing.

With a broker (--nats-url) it searches the stream for half a second at most, from the
event's time in the log on. An id is unique within a source. Without --source the command
shows every event with the id, and looks in the ledger for each source that it finds.`,
		Example: `  postroom events show 01936f0e-3c4b-7d7a-9a61-0d3c1c2b8f10
  postroom events show order-7 --source /shop --nats-url nats://localhost:4222`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" || strings.Contains(args[0], "://") {
				return usagef("give the id of one event")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.withBroker(cmd.Context(), func(i *inspect.Inspector, away error) error {
				j, err := i.Event(cmd.Context(), source, args[0])
				if err != nil {
					return errors.Join(err, away) // why the broker was not asked
				}
				setBrokerFault(&j.Broker, away)
				if err := printEvent(cmd, s.asJSON, j); err != nil {
					return err
				}
				return away
			})
		},
	}
	cmd.Flags().StringVar(&source, "source", "", "the source of the event, for instance /shop")
	noFileCompletion(cmd, "source")
	s.addFlags(cmd, true)
	return cmd
}

// eventReport is what is known of an event, for scripts.
type eventReport struct {
	*inspect.EventTrace

	Timeline []inspect.TimelineEntry `json:"timeline"`
}

func printEvent(cmd *cobra.Command, asJSON bool, j *inspect.EventTrace) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), eventReport{j, j.Timeline()})
	}
	out := cmd.OutOrStdout()
	if err := printFacts(out, factRows(j)); err != nil {
		return err
	}
	if err := block(cmd, handlerRows(j)); err != nil {
		return err
	}
	if err := block(cmd, timelineRows(j.Timeline())); err != nil {
		return err
	}
	for n, note := range j.Notes {
		first := ""
		if n == 0 {
			first = "\n"
		}
		if err := printLine(out, "%snote: %s", first, note); err != nil {
			return err
		}
	}
	return nil
}

// factRows says what the event is, and where.
func factRows(j *inspect.EventTrace) [][]string {
	rows := [][]string{{"EVENT", cell(j.EventID, 255)}}
	for _, s := range j.Sources {
		rows = append(rows, []string{"SOURCE", cell(s, 255)})
	}
	for _, l := range j.LogEntries {
		rows = append(rows, []string{"TYPE", l.Type}, []string{"LOG", fmt.Sprintf("seq %d, %s%s", l.Seq, published(l.State), ofSource(j, l.Source))})
		if l.Subject != l.Type {
			rows = append(rows, []string{"SUBJECT", l.Subject})
		}
		if l.Key != "" {
			rows = append(rows, []string{"KEY", cell(l.Key, 255)})
		}
		if l.CorrelationID != "" {
			rows = append(rows, []string{"CORRELATION", cell(l.CorrelationID, 255)})
		}
	}
	if len(j.LogEntries) == 0 {
		rows = append(rows, []string{"LOG", "it is not in this log: it is of another service, or older than the log"})
	}
	for _, s := range j.Streams {
		rows = append(rows, []string{"STREAM", inStream(s)})
	}
	if !j.Broker.Asked || j.Broker.Fault != "" {
		rows = append(rows, []string{"BROKER", brokerLine(j.Broker)})
	}
	for _, c := range j.CausedBy {
		rows = append(rows, []string{"CAUSED BY", fmt.Sprintf("%s %s of %s", c.Type, cell(c.EventID, 255), cell(c.Source, 255))})
	}
	for _, c := range j.Caused {
		rows = append(rows, []string{"CAUSED", fmt.Sprintf("%s %s of %s", c.Type, cell(c.EventID, 255), cell(c.Source, 255))})
	}
	return rows
}

// ofSource names a source where there are several.
func ofSource(j *inspect.EventTrace, source string) string {
	if len(j.Sources) < 2 {
		return ""
	}
	return ", of " + cell(source, 255)
}

func published(p inspect.PublishState) string {
	switch p {
	case inspect.Published:
		return "published"
	case inspect.Unpublished:
		return "not published yet: no relay has come to it"
	case inspect.Pending:
		return "read by a relay, and not recorded as acknowledged"
	case inspect.PublishHeld:
		return "held on its way to the broker"
	case inspect.PublishDiscarded:
		return "discarded before it was published"
	}
	return string(p)
}

func inStream(s inspect.StreamSearch) string {
	switch {
	case s.Found:
		return fmt.Sprintf("%s, sequence %d", s.Stream, s.Seq)
	case s.Complete:
		return fmt.Sprintf("%s does not have it: all %s since %s were looked at", s.Stream, plural(s.Examined, "message"), stamp(s.From))
	}
	return fmt.Sprintf("not found in the window that was searched: %s, %s since %s", s.Stream, plural(s.Examined, "message"), stamp(s.From))
}

// handlerRows says what each handler did with the event.
func handlerRows(j *inspect.EventTrace) [][]string {
	rows := [][]string{{"HANDLER", "EVENT IS", "WHY"}}
	for _, h := range j.Held {
		why := fmt.Sprintf("waits behind an earlier event of key %s", cell(h.BlockedKey, 60))
		if n := len(h.Failures); n > 0 {
			why = fmt.Sprintf("%s, %s: %s", plural(int(h.Attempts), "attempt"), h.Class, cell(h.Failures[n-1].Text, 100))
		} else if h.State != inspect.Waiting {
			why = "-"
		}
		if !h.NextAt.IsZero() {
			why += "; next at " + stamp(h.NextAt)
		}
		rows = append(rows, []string{cell(h.Handler, 60), string(h.State), why})
	}
	for _, h := range j.Discarded {
		rows = append(rows, []string{cell(h.Handler, 60), string(h.State), fmt.Sprintf("audit %d, was dead: %s", h.AuditID, h.Class)})
	}
	for _, d := range j.Decisions {
		if d.State == "" {
			rows = append(rows, []string{cell(d.Handler, 60), "done", "-"})
		}
	}
	for _, h := range j.Undecided {
		rows = append(rows, []string{cell(h, 60), "not decided", "not delivered yet, or decided under a key of its own"})
	}
	return rows
}

func timelineRows(all []inspect.TimelineEntry) [][]string {
	rows := [][]string{{"TIME", "LATER BY", "WHERE", "WHAT"}}
	for n, m := range all {
		later := ""
		if n > 0 {
			later = "+" + gap(m.At.Sub(all[n-1].At).Seconds())
		}
		rows = append(rows, []string{m.At.Format("2006-01-02T15:04:05.000Z"), later, cell(m.Where, 60), cell(m.Text, 160)})
	}
	return slices.Clip(rows)
}

// gap is a span that may be short.
func gap(seconds float64) string {
	if seconds < 10 {
		return fmt.Sprintf("%.3fs", seconds)
	}
	return spanOf(seconds)
}
