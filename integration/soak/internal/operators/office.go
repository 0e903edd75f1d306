//go:build linux || darwin

package operators

import (
	"context"
	_ "embed" // the statements
	"fmt"
	"time"

	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/cause"
)

// Types of events in the office, and the handlers. The first three handlers read one of these types
// each. No process runs the last handler.
const (
	charged = "soak.charged"
	moved   = "soak.moved"
	mailed  = "soak.mailed"

	charges = "billing.charge"
	moves   = "ledger.move" // ordered
	mails   = "mail.send"   // external
	builds  = "report.build"
)

var (
	//go:embed sql/operator_log.sql
	operatorLogSQL string
	//go:embed sql/operator_ledger.sql
	operatorLedgerSQL string
	//go:embed sql/operator_held.sql
	operatorHeldSQL string
	//go:embed sql/operator_scheduled.sql
	operatorScheduledSQL string
	//go:embed sql/operator_replays.sql
	operatorReplaysSQL string
	//go:embed sql/operator_audit.sql
	operatorAuditSQL string
	//go:embed sql/operator_archive.sql
	operatorArchiveSQL string
	//go:embed sql/operator_receipts.sql
	operatorReceiptsSQL string
)

// office is a database after some days of work.
type office struct {
	stage    *stage.Stage
	db       *stage.Database
	rows     int // of the loaded log; half of them have an inbox row, too
	unit     int // a two-hundredth of the held events
	accounts int // with a dead event, and later events that wait behind it
	fresh    int // events that came while the handlers ran
	causes   []harm
}

// harm describes held events of a handler, with the failure that they have in common.
type harm struct {
	handler      string
	after        int // the number of each event of this harm, modulo six
	first, every int // its first event, and the distance to its next event, both counted among the events with this value of after
	events       int
	state        string // see operator_held.sql
	class, text  string
	attempts     int
}

func (h harm) fingerprint() []byte {
	if h.class == "" {
		return nil
	}
	return cause.Fingerprint(h.handler, h.class, "", h.text)
}

func newOffice(r *stage.Stage, d *stage.Database) *office {
	o := &office{stage: r, db: d, rows: stage.Pick(r, 10_000_000, 100_000), unit: stage.Pick(r, 500, 2), accounts: stage.Pick(r, 300, 6)}
	const refused, slow, away = "the card of %s was refused: insufficient funds (code 51)", "no answer for %s in 30s", "dial tcp 10.0.0.7:25: connection refused (%s)"
	o.causes = []harm{
		{charges, 0, 0, 100, 16 * o.unit, "dead", "permanent", refused, 1},
		{charges, 0, 1, 100, 10 * o.unit, "dead", "timeout", slow, 5},
		{mails, 4, 0, 100, 8 * o.unit, "dead", "error", away, 5},
		{moves, 2, 0, 100, 6*o.unit - o.accounts, "dead", "panic", "runtime error: index out of range [3] with length 3 (%s)", 5},
		{moves, 2, 0, 1, o.accounts, "blocking", "23514", `new row for relation "account" violates check constraint "solvent" (%s)`, 5},
	}
	return o
}

// held returns how many events are held.
func (o *office) held() int { return 200 * o.unit }

// fill loads everything, and then checks the numbers of rows.
func (o *office) fill(ctx context.Context) error {
	began := time.Now()
	for _, step := range []struct {
		what string
		load func(ctx context.Context) error
	}{
		{"the log, " + figures.Grouped(o.rows) + " events", func(ctx context.Context) error { return o.log(ctx, 1, o.rows, 60*time.Hour, o.accounts, 30*o.unit) }},
		{"the inbox, " + figures.Grouped(o.rows/2) + " rows", o.ledger},
		{"statistics", o.tidy},
		{"held events, " + figures.Grouped(o.held()), o.hold},
		{"what operators did", o.history},
		{"statistics", o.tidy},
	} {
		o.stage.Say("loading %s", step.what)
		if err := step.load(ctx); err != nil {
			return err
		}
	}
	o.stage.Say("loaded in %s", time.Since(began).Round(time.Second))
	return o.count(ctx)
}

// log appends n events, which are numbered from first on; see operator_log.sql.
func (o *office) log(ctx context.Context, first, n int, age time.Duration, accounts, scheduled int) error {
	return o.db.Exec(ctx, operatorLogSQL, n, first, stage.Source, age, accounts, scheduled)
}

func (o *office) ledger(ctx context.Context) error {
	if err := o.db.Exec(ctx, stage.EffectTable); err != nil {
		return err
	}
	err := o.db.Exec(ctx, "UPDATE postroom.relay SET high = (SELECT max(seq) FROM postroom.outbox), snap = pg_current_snapshot()")
	if err != nil {
		return err
	}
	return o.db.Exec(ctx, operatorLedgerSQL, []string{charged, moved, mailed}, []string{charges, moves, mails})
}

// hold loads the held events: the dead events of each cause, the events that wait behind dead
// events of the last cause, the events that will be tried again, the events of the handler that no
// process runs, and the scheduled events.
func (o *office) hold(ctx context.Context) error {
	middle, last := o.rows/6/4, (o.rows-2)/6 // as harm.first counts: an event at a quarter of the log, and the newest move
	all := append([]harm{}, o.causes...)
	for i := range all {
		all[i].first += middle
	}
	// In each account, one event is dead, and all later events wait behind it.
	waiting := 60 * o.unit
	all[4].first = last - waiting - o.accounts + 1
	all = append(all,
		harm{moves, 2, last - waiting + 1, 1, waiting, "waiting", "", "%s", 0},
		harm{charges, 0, middle + 2, 50, 40 * o.unit, "retrying", "08006", "connection reset by peer (%s)", 3},
		harm{mails, 4, middle + 2, 50, 29 * o.unit, "retrying", "error", "421 try again later (%s)", 2},
		harm{builds, 3, middle, 100, o.unit, "due", "", "%s", 0},
	)
	for _, h := range all {
		var class *string
		if h.class != "" {
			class = &h.class
		}
		err := o.db.Exec(ctx, operatorHeldSQL, stage.Source, h.handler, h.after, h.first, h.events, h.every, h.state, class, h.text, h.fingerprint(), h.attempts)
		if err != nil {
			return err
		}
	}
	return o.db.Exec(ctx, operatorScheduledSQL)
}

// history loads the operators' actions so far.
func (o *office) history(ctx context.Context) error {
	u := o.unit
	print := o.causes[0].fingerprint()
	if err := o.db.Exec(ctx, operatorReplaysSQL, stage.Source, charges, 24*u, 10*u, 5*u, u, print); err != nil {
		return err
	}
	if err := o.db.Exec(ctx, operatorAuditSQL, 40*u, stage.Source, charges, 10*u); err != nil {
		return err
	}
	if err := o.db.Exec(ctx, operatorArchiveSQL, stage.Source, charges, 10*u, o.rows/6/4+3, "permanent", print); err != nil {
		return err
	}
	return o.db.Exec(ctx, operatorReceiptsSQL, mails, 400*u)
}

// tidy makes the server vacuum the tables and write a checkpoint now, and not later.
func (o *office) tidy(ctx context.Context) error {
	err := o.db.Exec(ctx, "VACUUM (ANALYZE) postroom.outbox, postroom.inbox, postroom.held, postroom.archive, postroom.audit, postroom.replay, postroom.replay_event, postroom.receipt")
	if err != nil {
		return err
	}
	return o.db.Exec(ctx, "CHECKPOINT")
}

// count checks that the tables have as many rows as they should.
func (o *office) count(ctx context.Context) error {
	u := o.unit
	for _, t := range []struct {
		what, sql string
		want      int
	}{
		{"events in the log", "SELECT count(*) FROM postroom.outbox", o.rows},
		{"inbox rows", "SELECT count(*) FROM postroom.inbox", o.rows/2 + u},
		{"held events", "SELECT count(*) FROM postroom.held", o.held()},
		{"dead ones", "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL", 40 * u},
		{"held keys", "SELECT count(DISTINCT (handler, chain)) FROM postroom.held WHERE chain IS NOT NULL", o.accounts},
		{"discarded events", "SELECT count(*) FROM postroom.archive", 10 * u},
		{"actions of operators", "SELECT count(*) FROM postroom.audit", 40 * u},
		{"events of replays", "SELECT count(*) FROM postroom.replay_event", 40 * u},
	} {
		var n int
		if err := o.db.Pool.QueryRow(ctx, t.sql).Scan(&n); err != nil {
			return fmt.Errorf("count %s: %w", t.what, err)
		}
		if n != t.want {
			return fmt.Errorf("there are %d %s, want %d", n, t.what, t.want)
		}
		o.stage.Note(t.what, "%s", figures.Grouped(n))
	}
	return nil
}
