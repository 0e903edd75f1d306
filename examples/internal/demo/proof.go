package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom/internal/verdict"
)

// JudgePatience limits the time in which a program gathers evidence and runs its proof.
const JudgePatience = 5 * time.Minute

// Querier runs the statements of a proof. It is a connection, a pool of connections, or a test's
// transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Evidence has rows for one table. The rows are facts that a proof needs, and that the database
// does not have yet.
type Evidence struct {
	Table   string
	Columns []string
	Rows    [][]any
}

// Store stores evidence in the database.
func Store(ctx context.Context, db interface {
	CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error)
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
}, all ...Evidence,
) error {
	for _, e := range all {
		if _, err := db.CopyFrom(ctx, pgx.Identifier{e.Table}, e.Columns, pgx.CopyFromRows(e.Rows)); err != nil {
			return fmt.Errorf("store evidence in %s: %w", e.Table, err)
		}
	}
	// The tables were filled a moment ago. Without ANALYZE, PostgreSQL plans as if they were empty.
	if _, err := db.Exec(ctx, "ANALYZE"); err != nil {
		return fmt.Errorf("analyze: %w", err)
	}
	return nil
}

// Check is one claim of a proof, with the number of violations that the proof found.
type Check struct {
	N          int    `json:"-"`
	Violation  string `json:"violation"` // the kind of the violations: lost, ghost, double or wrong
	Name       string `json:"name"`
	Violations int64  `json:"violations"`
}

// Prove runs the checks of a proof.
func Prove(ctx context.Context, db Querier, sql string, args ...any) ([]Check, error) {
	checks, err := Rows[Check](ctx, db, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	return checks, nil
}

// Rows returns the rows of a statement. The n-th column sets the n-th field of a T.
func Rows[T any](ctx context.Context, db Querier, sql string, args ...any) ([]T, error) {
	rows, _ := db.Query(ctx, sql, args...) // CollectRows reports the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}

// Row returns the only row of a statement. The n-th column sets the n-th field of the T.
func Row[T any](ctx context.Context, db Querier, sql string, args ...any) (T, error) {
	rows, _ := db.Query(ctx, sql, args...) // CollectOneRow reports the error
	return pgx.CollectOneRow(rows, pgx.RowToStructByPos[T])
}

// Proof is the result of a run. Running is the error that ended the run, or nil.
type Proof struct {
	Checks  []Check `json:"checks"`
	Running error   `json:"-"`
}

// IsOpen reports whether the violations of a check prove nothing yet, because the run did not end
// in time. A check for violations of the kind double or ghost is never open.
func (p *Proof) IsOpen(c Check) bool {
	return verdict.IsUndecided(p.Running) && c.Violation != "double" && c.Violation != "ghost"
}

// Violations adds up the violations of one kind, without the checks that are open (see IsOpen).
func (p *Proof) Violations(sort string) int64 {
	var n int64
	for _, c := range p.Checks {
		if c.Violation == sort && !p.IsOpen(c) {
			n += c.Violations
		}
	}
	return n
}

// OpenViolations adds up the violations of the checks that are open (see IsOpen), and reports
// whether the run was undecided.
func (p *Proof) OpenViolations() (n int64, undecided bool) {
	for _, c := range p.Checks {
		if p.IsOpen(c) {
			n += c.Violations
		}
	}
	return n, verdict.IsUndecided(p.Running)
}

// Fault returns the error that ended the run, joined with an error for each check that failed.
func (p *Proof) Fault() error {
	faults := []error{p.Running}
	for _, c := range p.Checks {
		if c.Violations > 0 && !p.IsOpen(c) {
			faults = append(faults, fmt.Errorf("the proof FAILED: %s: %d %s", c.Name, c.Violations, c.Violation))
		}
	}
	return errors.Join(faults...)
}

// Met is a kind of thing that has to happen in a run, such as a crash, and how often it happened.
type Met struct {
	N    int64
	What string
}

// Missed returns an error for each kind of thing that did not happen in a run. Then the run is
// undecided, because it proves nothing about that kind.
func Missed(all ...Met) error {
	var faults []error
	for _, met := range all {
		if met.N == 0 {
			faults = append(faults, verdict.NewUndecided("there were no %s, so nothing is proved about them", met.What))
		}
	}
	return errors.Join(faults...)
}

// Write prints the parameter before, then the checks, and then the parameter summary, which scripts
// read. The parameter over names what the proof reads.
func (p *Proof) Write(out io.Writer, before, over, summary string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\nThe proof, in SQL over %s:\n\n", before, over)
	for _, c := range p.Checks {
		switch {
		case c.Violations == 0:
			fmt.Fprintf(&b, "  ok      %s\n", c.Name)
		case p.IsOpen(c):
			fmt.Fprintf(&b, "  open    %s: %s to go\n", c.Name, Grouped(c.Violations))
		default:
			fmt.Fprintf(&b, "  FAILED  %s: %s %s\n", c.Name, Grouped(c.Violations), c.Violation)
		}
	}
	fmt.Fprintf(&b, "\n%s\n", summary)
	return Print(out, b.Bytes())
}

// Print prints a result.
func Print(out io.Writer, text []byte) error {
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}
