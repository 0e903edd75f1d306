package republishcmd

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/broker"
	"github.com/postroom/postroom/cmd/postroom/internal/caller"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/confirm"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/internal/reconcile"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/operator"
)

const reconcileHelp = `Compare the events that were published with the messages in the streams, and print which
events are missing. With --repair, publish the missing events again.

The command compares all events that the log still has, or with --since those that were
written since then. It reads the headers of the messages, and without --repair it
changes nothing. You can run it while events flow: it compares no more than
--compare-rate events in a second. You may interrupt it and run it again.

A stream drops old messages because of its max_age and its other limits. Events that are
older than the first message of the stream are counted as UNKNOWN, because the stream
may have had them or not. The same is true of lacking events that are older than the
stream itself and all events in it, because another stream may have stored them before
their subject moved to this one, and of lacking events that a later message of their
subject may have replaced (limit of messages per subject, roll-ups). --repair does not
publish events that are UNKNOWN. A stream that drops consumed messages cannot be
compared.

With --repair, the relay publishes missing events again, as for 'postroom republish':
beside live events, not faster than --rate, with new message ids and the header
postroom-republish. A handler that has decided an event does not apply it twice. If an
ordered handler has not decided the event, it holds the event as dead, with the class
'late', because later events of the key may have taken effect.

CONFLICTS counts events for which the stream has a message with the same source and id
and other content. Usually two logs with the same source publish to the stream, and the
broker dropped the event as a duplicate. --repair does not publish such an event. Give
each log a stream or a source of its own.

If the broker loses the end of a stream, the relay finds and repairs that by itself. Use
this command for losses in the middle of a stream, or if you want to be sure.

Exit status 3: something is missing and was not repaired, or a stream was not compared.`

// A reconciliation has the flags of the command.
type reconciliation struct {
	order

	broker  *broker.Target
	streams []string
	pace    float64
	repair  bool
}

// NewReconcile returns the command reconcile.
func NewReconcile(getenv func(string) string) *cobra.Command {
	r := &reconciliation{
		order:  order{Caller: caller.New(getenv)},
		broker: broker.New(getenv),
	}
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Compare published events with the messages in the streams",
		Long:  reconcileHelp,
		Example: `  postroom reconcile
  postroom reconcile --since 24h --stream SHOP --json | jq '.streams[].missing'
  postroom reconcile --repair --reason 'disk of nats-2 was replaced'`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&r.since, "since", "", "events that were written at this time or later: a time (2026-01-31T03:00:00Z) or how long ago (90m)")
	flags.StringArrayVar(&r.streams, "stream", nil, "compare this stream; can be repeated (default all streams to which the relay published)")
	flags.Float64Var(&r.pace, "compare-rate", reconcile.DefaultRate, "compare at most this many events a second")
	flags.BoolVar(&r.repair, "repair", false, "publish missing events again")
	flags.Float64Var(&r.request.Rate, "rate", operator.DefaultRate, "with --repair: publish at most this many events a second")
	flags.BoolVar(&r.detach, "detach", false, "with --repair: do not wait until the republish ends")
	command.NoFileCompletion(cmd, "since", "stream", "compare-rate", "rate")
	argument.Rate(cmd, "rate", &r.request.Rate)
	argument.Rate(cmd, "compare-rate", &r.pace)
	argument.Conditions(cmd, "since", "stream")
	r.AddAuditFlags(cmd)
	r.AddYes(cmd)
	r.AddCommonFlags(cmd)
	r.broker.AddFlags(cmd)
	return cmd
}

func (r *reconciliation) run(cmd *cobra.Command) error {
	since, err := argument.Time("since", r.since)
	if err != nil {
		return err
	}
	if err := argument.StreamNames(r.streams); err != nil {
		return err
	}
	nc, err := r.broker.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := r.broker.CheckJetStream(cmd.Context(), nc); err != nil {
		return err
	}
	return r.with(cmd.Context(), func(log *pglog.Log, store *operator.Store) error {
		found, err := r.compare(cmd, log, nc, since)
		if err != nil {
			return err
		}
		return r.judge(cmd, store, found)
	})
}

// compare compares the log with the streams, and shows its progress.
func (r *reconciliation) compare(cmd *cobra.Command, log *pglog.Log, nc *nats.Conn, since time.Time) ([]reconcile.Result, error) {
	backlog, err := log.Lag(cmd.Context())
	if err != nil {
		return nil, err
	}
	bar := output.Bar(cmd.ErrOrStderr())
	defer bar.Clear()
	return reconcile.Compare(cmd.Context(), log, natsjs.NewPublisher(nc), reconcile.Config{
		Streams: r.streams, Since: since, Rate: r.pace,
		Progress: func(stream string, compared, messages int) {
			bar.Show(compared, int(backlog.Appended), fmt.Sprintf("%s: %d messages", stream, messages))
		},
	})
}

// judge prints the result. With --repair, it orders a republish of the missing events.
func (r *reconciliation) judge(cmd *cobra.Command, store *operator.Store, found []reconcile.Result) error {
	var missing []int64
	var failed []string
	conflicts := 0
	for _, f := range found {
		missing = append(missing, f.Missing...)
		conflicts += len(f.Conflicts)
		if f.Err != nil {
			failed = append(failed, f.Stream)
		}
	}
	said := answer{Streams: findingsJSON(found)}
	if r.JSON {
		r.together = &said.Republishes
	} else if err := printFindings(cmd, found); err != nil {
		return err
	}
	var err error
	switch {
	case len(found) == 0:
		err = errors.New("no relay of this version has published anything yet: name streams with --stream")
	case len(missing) > 0 && !r.repair:
		err = exit.Todof("the broker lost %s; to publish them again, use --repair", output.Plural(len(missing), "event"))
	case len(missing) > 0:
		err = r.mend(cmd, store, missing)
	}
	if r.JSON {
		if failed := output.JSON(cmd.OutOrStdout(), said); failed != nil {
			return errors.Join(err, failed)
		}
	}
	var left []string
	if conflicts > 0 {
		left = append(left, fmt.Sprintf("%s not in the stream, which has other content under the same source and id", output.Plural(conflicts, "event")))
	}
	if len(failed) > 0 {
		left = append(left, fmt.Sprintf("%s not compared: %s", output.Plural(len(failed), "stream"), strings.Join(failed, ", ")))
	}
	switch {
	case len(left) == 0:
		return err
	case err != nil:
		return errors.Join(err, errors.New(strings.Join(left, "\n"))) // err decides the exit status
	}
	return exit.Todof("%s", strings.Join(left, "\n"))
}

// mend orders and follows the republishes of missing events. Without --yes, it asks first.
func (r *reconciliation) mend(cmd *cobra.Command, store *operator.Store, missing []int64) error {
	if !r.Yes {
		if err := confirm.Ask(cmd, fmt.Sprintf("publish %s again?", output.Plural(len(missing), "event")), "this command without --repair"); err != nil {
			return err
		}
	}
	made, err := store.RepublishSeqs(cmd.Context(), missing, r.request.Rate, r.audit())
	if err != nil {
		return err
	}
	for _, one := range made {
		if err := r.follow(cmd, store, one); err != nil {
			return err
		}
	}
	return nil
}

// An answer is the output, for scripts.
type answer struct {
	Streams     []findingJSON        `json:"streams"`
	Republishes []operator.Republish `json:"republishes,omitempty"` // those of --repair
}

// findingJSON is the result for one stream, for scripts.
type findingJSON struct {
	Stream    string  `json:"stream"`
	Verdict   string  `json:"verdict,omitempty"`
	Last      uint64  `json:"last_seq"`
	Compared  int     `json:"compared"`
	Messages  int     `json:"messages"`
	Unknown   int     `json:"unknown"`
	Missing   []int64 `json:"missing"`   // the seqs, in the log, of the events that the stream lacks
	Late      []int64 `json:"late"`      // seqs of the missing events for which the stream has a later event of the same key
	Conflicts []int64 `json:"conflicts"` // seqs of events for which the stream has a message with other content
	Seconds   float64 `json:"took_seconds"`
	Error     string  `json:"error,omitempty"`
}

func findingsJSON(found []reconcile.Result) []findingJSON {
	all := make([]findingJSON, 0, len(found))
	for _, f := range found {
		one := findingJSON{
			Stream: f.Stream, Verdict: string(f.Verdict), Last: f.LastSeq, Compared: f.Compared, Messages: f.Messages, Unknown: f.Unknown,
			Missing: append([]int64{}, f.Missing...), Late: append([]int64{}, f.OutOfOrder...),
			Conflicts: append([]int64{}, f.Conflicts...), Seconds: f.Took.Seconds(),
		}
		if f.Err != nil {
			one.Error = f.Err.Error()
		}
		all = append(all, one)
	}
	return all
}

func printFindings(cmd *cobra.Command, found []reconcile.Result) error {
	rows := [][]string{{"STREAM", "COMPARED", "MISSING", "LATE", "CONFLICTS", "UNKNOWN", "MESSAGES", "LAST", "TOOK"}}
	var why []string
	for _, f := range found {
		rows = append(rows, []string{
			f.Stream, strconv.Itoa(f.Compared), strconv.Itoa(len(f.Missing)), strconv.Itoa(len(f.OutOfOrder)), strconv.Itoa(len(f.Conflicts)), strconv.Itoa(f.Unknown), strconv.Itoa(f.Messages),
			strconv.Itoa(int(f.LastSeq)), f.Took.Round(time.Millisecond).String(), //nolint:gosec // a number of messages
		})
		if f.Err != nil {
			why = append(why, output.Flat(f.Err.Error()))
		}
		if n := len(f.Missing); n > 0 {
			why = append(why, fmt.Sprintf("%s: lacks seq %s of the log", f.Stream, someSeqs(f.Missing)))
		}
		if n := len(f.Conflicts); n > 0 {
			why = append(why, fmt.Sprintf("%s: has other content under the source and id of seq %s of the log. Do two logs with the same source publish to the stream?", f.Stream, someSeqs(f.Conflicts)))
		}
	}
	if err := output.Table(cmd.OutOrStdout(), rows); err != nil {
		return err
	}
	if len(why) == 0 {
		return nil
	}
	return output.Line(cmd.OutOrStdout(), "\n%s", strings.Join(why, "\n"))
}

// someSeqs returns a text with the first few seqs.
func someSeqs(seqs []int64) string {
	const most = 5
	var b strings.Builder
	for i, seq := range seqs[:min(most, len(seqs))] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d", seq)
	}
	if len(seqs) > most {
		fmt.Fprintf(&b, " and %d more", len(seqs)-most)
	}
	return b.String()
}
