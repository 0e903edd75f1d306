package streamcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/broker"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/database"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/doctor"
)

const checkHelp = `Compare streams with the database: did the broker lose messages that it had
acknowledged?

First the command compares the position of each handler with its stream:

  intact      the stream has the message that the handler decided last
  recreated   the stream was deleted and made again
  lost_tail   the stream ends before that message, or has another message in its place
  aged_out    the stream dropped messages that the handler may not have read
  undecided   messages were acknowledged that the handler has not decided; the output names them
  missing     the stream does not exist

Then the command looks in each stream for the 200 newest events that the relay recorded
as published to it. 'postroom reconcile' looks for all of them. The command checks the
streams in use and the streams that you name. It changes nothing.

Exit status 0: nothing was lost, as far as the command can tell. If it could not compare
a handler or a stream, the output says why. 3: something was lost, or is not decided.
1: nothing could be compared.`

func newCheck(getenv func(string) string) *cobra.Command {
	db, broker := database.New(getenv), broker.New(getenv)
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [NAME...]",
		Short: "Compare streams with the database: did the broker lose anything?",
		Long:  checkHelp,
		Example: `  postroom stream check
  postroom stream check SHOP --json | jq '.streams[].missing'`,
		Args: func(_ *cobra.Command, args []string) error {
			return argument.StreamNames(args)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := db.Schema()
			if err != nil {
				return err
			}
			pool, err := db.LookPool(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			nc, err := broker.Connect()
			if err != nil {
				return err
			}
			defer nc.Close()
			if err := broker.CheckJetStream(cmd.Context(), nc); err != nil {
				return err
			}
			losses, err := doctor.New(pool, nc, doctor.Config{Schema: name, Streams: args}).Losses(cmd.Context())
			if err != nil {
				return broker.Explain(err)
			}
			return printLosses(cmd, asJSON, broker.Denied(), losses)
		},
	}
	db.AddURLFlag(cmd)
	db.AddSchemaFlag(cmd)
	broker.AddFlags(cmd)
	command.AddJSON(cmd, &asJSON)
	return cmd
}

// printLosses prints what the command found. It returns an error if the broker lost something, or if
// nothing could be compared. The parameter denied says which permission the broker denied.
func printLosses(cmd *cobra.Command, asJSON bool, denied string, losses doctor.Losses) error {
	out := cmd.OutOrStdout()
	var err error
	if asJSON {
		losses.Handlers = append([]doctor.HandlerPosition{}, losses.Handlers...) // empty lists in JSON, not null
		losses.Streams = append([]doctor.TailCheck{}, losses.Streams...)
		err = output.JSON(out, losses)
	} else {
		err = printLossTables(out, losses)
	}
	switch {
	case err != nil:
		return err
	case losses.Any():
		return exit.Todof("the broker lost messages, or acknowledged messages are not decided: see above")
	case len(losses.Handlers)+len(losses.Streams) > 0 && !losses.Compared():
		return fmt.Errorf("nothing could be compared, so it is not known whether the broker lost messages: see above. %s", cmp.Or(denied, "Repeat the command when the broker answers"))
	}
	return nil
}

// printLossTables prints the table of handlers and the table of streams. Below them it prints the
// texts that belong to their rows.
func printLossTables(out io.Writer, losses doctor.Losses) error {
	handlers := [][]string{{"HANDLER", "STREAM", "ACK FLOOR", "FIRST", "LAST", "VERDICT"}}
	var why []string
	for _, s := range losses.Handlers {
		handlers = append(handlers, []string{
			s.Handler, s.Stream, strconv.Itoa(int(s.AckFloor)), strconv.Itoa(int(s.FirstSeq)), strconv.Itoa(int(s.LastSeq)), string(s.Verdict), //nolint:gosec // numbers of messages
		})
		if s.Text != "" {
			why = append(why, s.Handler+": "+s.Text)
		}
		for _, m := range s.Undecided {
			why = append(why, s.Handler+": has not decided seq "+strconv.FormatUint(m.Seq, 10)+" of "+s.Stream+": "+m.Source+" "+m.EventID+" on "+m.Subject)
		}
	}
	streams := [][]string{{"STREAM", "COMPARED", "MISSING"}}
	for _, t := range losses.Streams {
		streams = append(streams, []string{t.Stream, strconv.Itoa(t.Compared), strconv.Itoa(len(t.Missing))})
		if t.Note != "" {
			why = append(why, t.Stream+": "+t.Note)
		}
		for _, l := range t.Missing {
			why = append(why, t.Stream+": lacks seq "+strconv.Itoa(int(l.Seq))+" of the log: "+l.Source+" "+l.EventID+" on "+l.Subject)
		}
		if len(t.Missing) > 0 {
			why = append(why, t.Stream+": 'postroom reconcile --stream "+t.Stream+"' looks for all missing events; with --repair it publishes them again")
		}
	}
	err := errors.Join(output.Table(out, handlers), output.Line(out, ""), output.Table(out, streams))
	if len(losses.Handlers)+len(losses.Streams) == 0 {
		why = append(why, "nothing was compared: no handler of this database reads a stream, and no stream stores events of its log; make a stream with 'postroom stream ensure', or name a stream")
	}
	if len(why) > 0 {
		for i := range why {
			why[i] = output.Flat(why[i])
		}
		err = errors.Join(err, output.Text(out, "\n"+strings.Join(why, "\n")+"\n"))
	}
	return err
}
