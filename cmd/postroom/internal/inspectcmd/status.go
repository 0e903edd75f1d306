// Package inspectcmd has the commands that show the state of events, handlers and tables. They
// change nothing.
package inspectcmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/broker"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/eventview"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/inspection"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
)

// NewStatus returns the command status.
func NewStatus(getenv func(string) string) *cobra.Command {
	s := inspection.New(getenv)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of everything, and what is wrong",
		Long: `Show the state of everything: which events are not published yet, which relay leads,
which events are held, and which replays, republishes and processes run. Changes
nothing.

With a broker (--nats-url) the command also checks that the streams and consumers of the
handlers exist. If one of the following is wrong, the exit status is 3, and the last
lines say what is wrong and what to do about it:

  - no relay leads
  - an event has waited for more than ten seconds to be published
  - a stream that stores events takes none, or no stream takes them
  - the database was restored or moved, and no relay has led since
  - events are dead
  - events are due, and no process runs them
  - no process runs a handler, or reads the stream of an ordered handler
  - a handler has paused itself, because nearly all its events fail
  - a stream or a consumer is gone, or a stream was deleted and made again
  - a replay is idle, or instances of a saga are stuck
  - a handler asks for a type that is probably misspelt
  - the broker cannot be reached

Notes do not change the exit status. There are notes on a handler whose events no
producer writes yet, on events of a type that no handler of this database reads, on
handlers and relays that an operator has paused, on streams that can lose events, and on
webhook endpoints that fail.`,
		Example: `  postroom status --database-url postgres://localhost/shop --nats-url nats://localhost:4222
  postroom status --json | jq -r '.findings[] | .code'`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.WithBroker(cmd.Context(), func(i *inspect.Inspector, away error) error {
				status, err := i.Status(cmd.Context())
				if err != nil {
					return err
				}
				if denied := s.Broker.RepliesDenied(); denied != "" && status.Broker.Fault == "" {
					status.Broker.Fault = denied
					status.Findings = append(status.Findings, inspect.Finding{
						Code: inspect.FoundBroker, Text: "the broker could not be asked: " + denied, Remedy: broker.PermissionHint,
					})
				}
				if inspection.SetBrokerFault(&status.Broker, away); away != nil {
					status.Findings = append(status.Findings, inspect.Finding{
						Code: inspect.FoundBroker, Text: "the broker cannot be reached", Remedy: away.Error(),
					})
				}
				if err := printStatus(cmd, s.JSON, status); err != nil {
					return err
				}
				if n := len(status.Findings); n > 0 {
					return exit.Todof("status: %s", output.Plural(n, "finding"))
				}
				return nil
			})
		},
	}
	s.AddFlags(cmd, true)
	return cmd
}

func printStatus(cmd *cobra.Command, asJSON bool, s *inspect.Status) error {
	if asJSON {
		return output.JSON(cmd.OutOrStdout(), s)
	}
	err := output.Facts(cmd.OutOrStdout(), [][]string{
		{"RELAY", leader(s.Relay)},
		{"OUTGOING", outgoing(s.Relay)},
		{"DISCARDED", discarded(s)},
		{"BROKER", eventview.BrokerLine(s.Broker)},
	})
	if err != nil {
		return err
	}
	for _, rows := range [][][]string{heldRows(s.Held), replayRows(s.Replays), runningRepublishRows(s.Republishes), processRows(s.Processes)} {
		if err := output.Block(cmd.OutOrStdout(), rows); err != nil {
			return err
		}
	}
	if err := output.Line(cmd.OutOrStdout(), ""); err != nil {
		return err
	}
	for _, f := range s.Findings {
		//guard:a-finding-is-one-line 0.3,0.4 = @1
		if err := output.Line(cmd.OutOrStdout(), "! %s\n  %s", output.Flat(f.Text), output.Flat(f.Remedy)); err != nil {
			return err
		}
	}
	if len(s.Findings) == 0 {
		if err := output.Line(cmd.OutOrStdout(), "%s", verdict(s)); err != nil {
			return err
		}
	}
	for _, note := range s.Notes {
		if err := output.Line(cmd.OutOrStdout(), "note: %s", output.Flat(note)); err != nil {
			return err
		}
	}
	return nil
}

// verdict says how things are if there is no finding.
func verdict(s *inspect.Status) string {
	switch {
	//guard:what-is-paused-is-not-well false
	case len(s.Pauses) > 0:
		return "nothing is wrong, but an operator has paused what the notes name"
	case !s.Broker.Asked:
		return "all is well in the database; the broker was not asked"
	}
	return "all is well"
}

func leader(r inspect.RelayStatus) string {
	switch {
	case r.Pause != nil && !r.Leads:
		return "none leads; " + output.Cell(r.Pause.String(), 300)
	case r.Leads:
		return fmt.Sprintf("%s leads, epoch %d; if it does not renew its lease, the lease ends in %s", output.Cell(r.Owner, 60), r.Epoch, output.Seconds(r.RemainingSeconds))
	case r.Owner != "":
		return fmt.Sprintf("none leads; the lease of %s ended %s ago", output.Cell(r.Owner, 60), output.Seconds(-r.RemainingSeconds))
	case r.Epoch > 0:
		return "none leads; the last leader gave its lease back"
	}
	return "none has led yet"
}

func outgoing(r inspect.RelayStatus) string {
	if r.OldestUnpublishedAt.IsZero() {
		return "everything is published"
	}
	return fmt.Sprintf("about %s not published; the oldest has waited for %s", output.Plural(int(r.EstimatedUnpublished), "event"), output.Seconds(r.OldestUnpublishedAgeSeconds))
}

func discarded(s *inspect.Status) string {
	n := output.Plural(int(s.Discarded), "event")
	if s.MoreDiscarded {
		n += " or more"
	}
	return n
}

func heldRows(all []inspect.HeldSummary) [][]string {
	rows := [][]string{{"HELD", "STATE", "EVENTS", "OLDEST", "DUE FOR", "KEYS"}}
	for _, h := range all {
		for n, c := range h.States {
			due, keys := "-", "" // keys: the first row of each handler shows them
			if (c.State == held.Due || c.State == held.Abandoned) && c.OverdueSeconds > 0 {
				due = output.Seconds(c.OverdueSeconds)
			}
			if n == 0 {
				if keys = fmt.Sprint(h.Keys); h.More() {
					keys += "+"
				}
			}
			events := fmt.Sprint(c.Events)
			if c.More {
				events += "+"
			}
			rows = append(rows, []string{output.Cell(h.Handler, 60), string(c.State), events, output.Seconds(c.OldestAgeSeconds), due, keys})
		}
	}
	return rows
}

func replayRows(all []inspect.ReplayStatus) [][]string {
	rows := [][]string{{"REPLAY", "BY", "PHASE", "EVENTS", "RELEASED", "SUCCEEDED", "FAILED", "LAST STEP"}}
	for _, r := range all {
		step := "never"
		if !r.LastStepAt.IsZero() {
			step = output.Seconds(r.IdleSeconds) + " ago"
		}
		rows = append(rows, []string{
			fmt.Sprint(r.ID), output.Cell(r.Actor, 30), r.Phase, fmt.Sprint(r.Events), fmt.Sprint(r.Released), fmt.Sprint(r.Succeeded), fmt.Sprint(r.Failed), step,
		})
	}
	return rows
}

func runningRepublishRows(all []inspect.RepublishStatus) [][]string {
	rows := [][]string{{"REPUBLISH", "BY", "KIND", "DONE", "LEFT OUT", "HELD", "RATE", "MADE"}}
	for _, r := range all {
		rows = append(rows, []string{
			fmt.Sprint(r.ID), output.Cell(r.Actor, 30), r.Kind, fmt.Sprintf("%d of %d", r.Published+r.Skipped+r.Held, r.Events),
			fmt.Sprint(r.Skipped), fmt.Sprint(r.Held), fmt.Sprintf("%g/s", r.Rate), output.Ago(r.CreatedAt),
		})
	}
	return rows
}

func processRows(all []inspect.Process) [][]string {
	rows := [][]string{{"PROCESS", "IS", "LAST SEEN", "HANDLERS"}}
	for _, p := range all {
		is := "alive"
		if !p.Alive {
			is = "silent"
		}
		rows = append(rows, []string{output.Cell(p.Name, 60), is, output.Seconds(p.SilentSeconds) + " ago", output.Cell(strings.Join(p.Handlers, ","), 100)})
	}
	return rows
}
