package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/eventview"
	"github.com/postroom/postroom/inspect"
)

func newStatus(getenv func(string) string) *cobra.Command {
	s := newInspection(getenv)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how far everything is, and what is wrong",
		Long: `Show how far everything is, and what is wrong: what is not published yet, who
leads, what is held, which replays, republishes and processes run. Changes nothing.

With a broker (--nats-url) it also checks that the streams and consumers of the handlers
exist. What is wrong comes last, with what to do about it. Then the exit status is 3:

  - no relay leads
  - an event has waited for more than a minute to be published
  - events are dead, or they are due and no process takes them
  - no process runs a handler
  - a stream or a consumer is gone
  - a replay is idle, or instances of a saga are stuck
  - a handler asks for a type that is probably misspelt
  - the broker cannot be reached

Notes do not change the exit status: a handler whose events no producer writes yet,
events of a type that no handler of this database takes, and webhook endpoints that fail.`,
		Example: `  postroom status --database-url postgres://localhost/shop --nats-url nats://localhost:4222
  postroom status --json | jq -r '.findings[] | .code'`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withBroker(cmd.Context(), func(i *inspect.Inspector, away error) error {
				status, err := i.Status(cmd.Context())
				if err != nil {
					return err
				}
				if denied := s.broker.repliesDenied(); denied != "" && status.Broker.Fault == "" {
					status.Broker.Fault = denied
					status.Findings = append(status.Findings, inspect.Finding{
						Code: inspect.FoundBroker, Text: "the broker could not be asked: " + denied, Remedy: permissionHint,
					})
				}
				if setBrokerFault(&status.Broker, away); away != nil {
					status.Findings = append(status.Findings, inspect.Finding{
						Code: inspect.FoundBroker, Text: "the broker cannot be reached", Remedy: away.Error(),
					})
				}
				if err := printStatus(cmd, s.asJSON, status); err != nil {
					return err
				}
				if n := len(status.Findings); n > 0 {
					return todof("status: %s", plural(n, "finding"))
				}
				return nil
			})
		},
	}
	s.addFlags(cmd, true)
	return cmd
}

func printStatus(cmd *cobra.Command, asJSON bool, s *inspect.Status) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), s)
	}
	err := printFacts(cmd.OutOrStdout(), [][]string{
		{"RELAY", leader(s.Relay)},
		{"OUTGOING", outgoing(s.Relay)},
		{"DISCARDED", discarded(s.Discarded)},
		{"BROKER", eventview.BrokerLine(s.Broker)},
	})
	if err != nil {
		return err
	}
	for _, rows := range [][][]string{heldRows(s.Held), replayRows(s.Replays), runningRepublishRows(s.Republishes), processRows(s.Processes)} {
		if err := block(cmd, rows); err != nil {
			return err
		}
	}
	if err := printLine(cmd.OutOrStdout(), ""); err != nil {
		return err
	}
	for _, f := range s.Findings {
		if err := printLine(cmd.OutOrStdout(), "! %s\n  %s", f.Text, f.Remedy); err != nil {
			return err
		}
	}
	if len(s.Findings) == 0 {
		if err := printLine(cmd.OutOrStdout(), "all is well"); err != nil {
			return err
		}
	}
	for _, note := range s.Notes {
		if err := printLine(cmd.OutOrStdout(), "note: %s", note); err != nil {
			return err
		}
	}
	return nil
}

func leader(r inspect.RelayStatus) string {
	switch {
	case r.Pause != nil && !r.Leads:
		return "none leads; " + cell(r.Pause.String(), 300)
	case r.Leads:
		return fmt.Sprintf("%s leads, epoch %d, its lease lasts %s unless it is renewed", cell(r.Owner, 60), r.Epoch, spanOf(r.RemainingSeconds))
	case r.Owner != "":
		return fmt.Sprintf("none leads; the lease of %s ran out %s ago", cell(r.Owner, 60), spanOf(-r.RemainingSeconds))
	case r.Epoch > 0:
		return "none leads; the last one left in order"
	}
	return "none has led yet"
}

func outgoing(r inspect.RelayStatus) string {
	if r.OldestUnpublishedAt.IsZero() {
		return "everything is published"
	}
	return fmt.Sprintf("about %s not published, the oldest for %s", plural(int(r.EstimatedUnpublished), "event"), spanOf(r.OldestUnpublishedAgeSeconds))
}

func discarded(n int64) string {
	if n >= 100_000 {
		return "100000 events or more"
	}
	return plural(int(n), "event")
}

func heldRows(all []inspect.HeldSummary) [][]string {
	rows := [][]string{{"HELD", "STATE", "EVENTS", "OLDEST", "DUE FOR", "KEYS"}}
	for _, h := range all {
		for n, c := range h.States {
			due, keys := "-", "" // of the handler, once
			if (c.State == inspect.Due || c.State == inspect.Abandoned) && c.OverdueSeconds > 0 {
				due = spanOf(c.OverdueSeconds)
			}
			if n == 0 {
				keys = count(h.Keys)
			}
			events := count(c.Events)
			if h.More {
				events += "+"
			}
			rows = append(rows, []string{cell(h.Handler, 60), string(c.State), events, spanOf(c.OldestAgeSeconds), due, keys})
		}
	}
	return rows
}

func replayRows(all []inspect.ReplayStatus) [][]string {
	rows := [][]string{{"REPLAY", "BY", "PHASE", "EVENTS", "RELEASED", "SUCCEEDED", "FAILED", "LAST STEP"}}
	for _, r := range all {
		step := "never"
		if !r.LastStepAt.IsZero() {
			step = spanOf(r.IdleSeconds) + " ago"
		}
		rows = append(rows, []string{
			count(r.ID), cell(r.Actor, 30), r.Phase, count(r.Events), count(r.Released), count(r.Succeeded), count(r.Failed), step,
		})
	}
	return rows
}

func runningRepublishRows(all []inspect.RepublishStatus) [][]string {
	rows := [][]string{{"REPUBLISH", "BY", "KIND", "DONE", "LEFT OUT", "HELD", "RATE", "MADE"}}
	for _, r := range all {
		rows = append(rows, []string{
			count(r.ID), cell(r.Actor, 30), r.Kind, fmt.Sprintf("%d of %d", r.Published+r.Skipped+r.Held, r.Events),
			count(r.Skipped), count(r.Held), fmt.Sprintf("%g/s", r.Rate), ago(r.CreatedAt),
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
		rows = append(rows, []string{cell(p.Name, 60), is, spanOf(p.SilentSeconds) + " ago", cell(strings.Join(p.Handlers, ","), 100)})
	}
	return rows
}
