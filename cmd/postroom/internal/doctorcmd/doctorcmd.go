// Package doctorcmd has the command doctor, which examines a set-up.
package doctorcmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/argument"
	"github.com/postroom/postroom/cmd/postroom/internal/broker"
	"github.com/postroom/postroom/cmd/postroom/internal/command"
	"github.com/postroom/postroom/cmd/postroom/internal/database"
	"github.com/postroom/postroom/cmd/postroom/internal/exit"
	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/doctor"
)

const help = `Check a set-up for everything that could lose or delay events: the version of the
tables, settings of the database, rights, the relay, handlers and their processes,
streams, consumers, clocks, and whether the broker lost anything.

Each finding says what is wrong and, in the next line, what to type or to change. If a
check needs a right or a broker that the command does not have, the check is listed as
skipped. The command changes nothing and reads no large table from end to end.

Run it as the role of an operator, who may read all tables, and as the roles of the relay
and of the inboxes, because it checks the rights and settings of its own role. With
--producer-role it also checks roles that only write events.

To leave out findings that you know and accept, give the name of their check, which
--json shows. To leave out only the finding about one subject, give check and subject:

    --ignore broker-clock,unknown-handler:billing.old

Exit status 0: nothing is wrong. 3: there are faults or warnings. 1: nothing could be
checked. Skipped checks and notes do not change the exit status.`

// options has the values of the flags.
type options struct {
	db      database.Target
	broker  *broker.Target
	cfg     doctor.Config
	asJSON  bool
	verbose bool
}

// New returns the command doctor.
func New(getenv func(string) string) *cobra.Command {
	w := &options{db: database.New(getenv), broker: broker.New(getenv)}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the set-up for faults before they cost an event",
		Long:  help,
		Example: `  postroom doctor --database-url postgres://relay@localhost/shop --nats-url nats://localhost:4222
  postroom doctor --producer-role shop_app --stream SHOP --verbose
  postroom doctor --json | jq '.findings[] | select(.severity == "fault")'`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := argument.StreamNames(w.cfg.Streams); err != nil {
				return err
			}
			return w.run(cmd)
		},
	}
	w.db.AddURLFlag(cmd)
	w.db.AddSchemaFlag(cmd)
	w.broker.AddFlags(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&w.cfg.ProducerRoles, "producer-role", nil, "also check these roles, which only write events")
	flags.StringSliceVar(&w.cfg.Streams, "stream", nil, "streams to check, besides those in use")
	flags.StringSliceVar(&w.cfg.Ignore, "ignore", nil, "findings to leave out, each 'check' or 'check:subject'")
	flags.DurationVar(&w.cfg.Retention, "retention", 72*time.Hour, "the --retention of the relays")
	flags.DurationVar(&w.cfg.Lease, "lease", 0, "the --lease of the relays, if you set it")
	flags.BoolVar(&w.verbose, "verbose", false, "also list the checks that passed")
	command.AddJSON(cmd, &w.asJSON)
	command.NoFileCompletion(cmd, "producer-role", "stream", "ignore", "retention", "lease")
	argument.Positive(cmd, "retention", &w.cfg.Retention, "72h")
	argument.AtLeast(cmd, "lease", &w.cfg.Lease, time.Second)
	argument.Conditions(cmd, "producer-role", "stream", "ignore")
	return cmd
}

func (w *options) run(cmd *cobra.Command) error {
	var err error
	if w.cfg.Schema, err = w.db.Schema(); err != nil {
		return err
	}
	pool, err := w.db.LookPool(cmd.Context())
	if err != nil {
		return err
	}
	defer pool.Close()
	written, err := pgx.ParseConfig(pool.Config().ConnConfig.ConnString())
	if err != nil {
		return fmt.Errorf("read the database URL: %w", err)
	}
	w.cfg.ExecMode = written.DefaultQueryExecMode // not that of the pool, with which the command works through every pooler
	nc, unreachable, err := w.connect()
	if err != nil {
		return err
	}
	if nc != nil {
		defer nc.Close()
	}
	report, err := doctor.New(pool, nc, w.cfg).Examine(cmd.Context())
	if err != nil {
		return err
	}
	if unreachable != nil {
		report.Findings = append(report.Findings, doctor.Finding{
			Check: "connection", Severity: doctor.Fault, Text: unreachable.Error(),
			Remedy: "start the broker, or correct --nats-url and --nats-creds: relays and inboxes wait for it",
		})
	}
	return w.print(cmd, report)
}

// connect connects to the broker. If no URL is given, nc is nil. If connect cannot reach the
// broker, the result unreachable is the reason.
func (w *options) connect() (nc *nats.Conn, unreachable, err error) {
	if !w.broker.IsGiven() {
		return nil, nil, nil
	}
	nc, err = w.broker.Connect()
	var usage *exit.UsageError
	if errors.As(err, &usage) {
		return nil, nil, err
	}
	return nc, err, nil
}

func (w *options) print(cmd *cobra.Command, report doctor.Report) error {
	out := cmd.OutOrStdout()
	var err error
	if w.asJSON {
		err = output.JSON(out, report)
	} else {
		err = output.Text(out, reportText(report, w.verbose))
	}
	if err != nil || report.Healthy() {
		return err
	}
	return exit.Todof("%s and %s; see above", output.Plural(len(report.Of(doctor.Fault)), "fault"), output.Plural(len(report.Of(doctor.Warning)), "warning"))
}

// reportText lists findings by severity, the worst first. The remedy of a finding follows in the
// next line.
func reportText(report doctor.Report, verbose bool) string {
	var b strings.Builder
	for _, severity := range []doctor.Severity{doctor.Fault, doctor.Warning, doctor.Note, doctor.Skipped} {
		for _, f := range mergeSkipped(report.Of(severity)) {
			b.WriteString(findingText(f))
			if f.Remedy != "" {
				fmt.Fprintf(&b, "        to do: %s\n", output.Flat(f.Remedy))
			}
			b.WriteString("\n")
		}
	}
	passed := report.Of(doctor.OK)
	if verbose {
		for _, f := range passed {
			b.WriteString(findingText(f))
		}
	}
	fmt.Fprintf(&b, "%s passed", output.Plural(len(passed), "check"))
	if skipped := len(report.Of(doctor.Skipped)); skipped > 0 {
		fmt.Fprintf(&b, ", %d skipped", skipped)
	}
	b.WriteString("\n")
	return b.String()
}

// mergeSkipped makes one finding of all skipped checks that have the same reason, so that the report
// does not repeat this reason.
func mergeSkipped(findings []doctor.Finding) []doctor.Finding {
	var all []doctor.Finding
	for _, f := range findings {
		i := slices.IndexFunc(all, func(o doctor.Finding) bool { return o.Text == f.Text && o.Remedy == f.Remedy && o.Subject == f.Subject })
		//guard:a-reason-is-said-once false
		if f.Severity == doctor.Skipped && f.Subject == "" && i >= 0 {
			all[i].Check += ", " + f.Check
			continue
		}
		all = append(all, f)
	}
	return all
}

func findingText(f doctor.Finding) string {
	name := f.Check
	if f.Subject != "" {
		name += " " + f.Subject
	}
	return fmt.Sprintf("%-7s %s: %s\n", strings.ToUpper(string(f.Severity)), output.Flat(name), output.Flat(f.Text))
}
