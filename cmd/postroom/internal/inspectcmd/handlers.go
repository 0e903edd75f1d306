package inspectcmd

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/eventview"
	"github.com/postroom/postroom/cmd/postroom/internal/inspection"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/cmd/postroom/internal/pausecmd"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
)

// NewHandlers returns the command handlers.
func NewHandlers(getenv func(string) string) *cobra.Command {
	s := inspection.New(getenv)
	cmd := &cobra.Command{
		Use:   "handlers [list]",
		Short: "Show how far each handler has read its stream",
		Long: `Show how far each handler has read its stream, which processes run it, and how many
events are held for it. Changes nothing.

Only the broker (--nats-url) knows how many events are pending, and how old the oldest
of them is. To find the oldest, the command creates a consumer on the stream and removes
it at once. That consumer acknowledges nothing.`,
		Example: `  postroom handlers --database-url postgres://localhost/billing --nats-url nats://localhost:4222
  postroom handlers --json | jq '.handlers[] | select(.broker.lag_seconds > 60)'`,
		Args: command.Listing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.WithBroker(cmd.Context(), func(i *inspect.Inspector, away error) error {
				h, err := i.Handlers(cmd.Context())
				if err != nil {
					return err
				}
				inspection.SetBrokerFault(&h.Broker, away)
				if err := printHandlers(cmd, s.JSON, h); err != nil {
					return err
				}
				return away
			})
		},
	}
	s.AddFlags(cmd, true)
	cmd.AddCommand(pausecmd.NewHandlerPause(getenv), pausecmd.NewHandlerResume(getenv))
	return cmd
}

func printHandlers(cmd *cobra.Command, asJSON bool, h *inspect.Handlers) error {
	if asJSON {
		return output.JSON(cmd.OutOrStdout(), h)
	}
	if len(h.Handlers) == 0 {
		return output.Line(cmd.OutOrStdout(), "this database knows no handler: none has run yet")
	}
	rows := [][]string{{"HANDLER", "KIND", "STREAM", "ACK FLOOR", "LAST", "PENDING", "UNANSWERED", "LAG", "HELD", "DEAD", "PROCESSES", "READER"}}
	for _, one := range h.Handlers {
		rows = append(rows, handlerRow(one))
	}
	if err := output.Table(cmd.OutOrStdout(), rows); err != nil {
		return err
	}
	if !h.Broker.Asked || h.Broker.Fault != "" {
		if err := output.Line(cmd.OutOrStdout(), "\nbroker: %s", eventview.BrokerLine(h.Broker)); err != nil {
			return err
		}
	}
	for _, one := range h.Handlers {
		for _, pause := range one.Pauses() {
			if err := output.Line(cmd.OutOrStdout(), "! %s %s", output.Flat(one.Name), output.Cell(pause, 300)); err != nil {
				return err
			}
		}
		if one.Broker == nil || one.Broker.Fault == "" {
			continue
		}
		if err := output.Line(cmd.OutOrStdout(), "! %s: %s", output.Flat(one.Name), output.Flat(one.Broker.Fault)); err != nil {
			return err
		}
	}
	return nil
}

func handlerRow(h inspect.Handler) []string {
	kind, floor := "unordered", fmt.Sprint(h.AckFloor)
	if h.Ordered {
		kind = "ordered"
	}
	if h.Stream == "" {
		kind, floor = "no stream", "-"
	}
	last, pending, unanswered, lag := "-", "-", "-", "-"
	if b := h.Broker; b != nil && (b.LastSeq > 0 || b.Fault == "") {
		last = fmt.Sprint(int64(b.LastSeq)) //nolint:gosec // a sequence
		if b.Fault == "" {
			pending, lag = fmt.Sprint(int64(b.Pending)), output.Seconds(b.LagSeconds) //nolint:gosec // a number of messages
		}
		if b.Consumer != "" {
			unanswered = fmt.Sprint(int64(b.AckPending)) //nolint:gosec // a number of messages
		}
	}
	all, dead := fmt.Sprint(h.Held.Events()), fmt.Sprint(h.Held.Events(held.Dead))
	if h.Held.More() {
		all += "+"
	}
	if h.Held.More(held.Dead) {
		dead += "+"
	}
	processes := "none"
	if n := len(h.Processes); n > 0 {
		processes = strconv.Itoa(n)
	}
	return []string{output.Cell(h.Name, 60), kind, output.OrDash(output.Cell(h.Stream, 40)), floor, last, pending, unanswered, lag, all, dead, processes, readerOf(h)}
}

// readerOf returns the name of the process that reads the stream of an ordered handler.
func readerOf(h inspect.Handler) string {
	switch {
	case h.Reader == nil:
		return "-"
	case !h.Reader.Reads:
		return "none"
	}
	return output.Cell(h.Reader.Name, 60)
}
