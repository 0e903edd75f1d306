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

// JudgePatience bounds the gathering of evidence and the proof.
const JudgePatience = 5 * time.Minute

// Querier is a source of a proof: connections, or a test's transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Evidence is facts that a proof needs and that are not in the database: rows for a table of
// their own.
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
	// The tables were filled a moment ago. Without this the planner takes them for empty.
	if _, err := db.Exec(ctx, "ANALYZE"); err != nil {
		return fmt.Errorf("analyze: %w", err)
	}
	return nil
}

// Check is one statement of a proof.
type Check struct {
	N          int    `json:"-"`
	Violation  string `json:"violation"` // the kind of one violation: lost, ghost, double or wrong
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

// Rows returns what a statement returns, by position.
func Rows[T any](ctx context.Context, db Querier, sql string, args ...any) ([]T, error) {
	rows, _ := db.Query(ctx, sql, args...) // CollectRows reports the error
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}

// Row returns the one row that a statement returns, by position.
func Row[T any](ctx context.Context, db Querier, sql string, args ...any) (T, error) {
	rows, _ := db.Query(ctx, sql, args...) // CollectOneRow reports the error
	return pgx.CollectOneRow(rows, pgx.RowToStructByPos[T])
}

// Proof is the result of a run, with the error that ended it.
type Proof struct {
	Checks  []Check `json:"checks"`
	Running error   `json:"-"`
}

// IsOpen reports whether a check shows nothing yet, because the time ran out before the run
// was complete. Doubles and ghosts count in any case.
func (p *Proof) IsOpen(c Check) bool {
	return verdict.IsUndecided(p.Running) && c.Violation != "double" && c.Violation != "ghost"
}

// Violations adds up the violations of one kind.
func (p *Proof) Violations(sort string) int64 {
	var n int64
	for _, c := range p.Checks {
		if c.Violation == sort && !p.IsOpen(c) {
			n += c.Violations
		}
	}
	return n
}

// OpenViolations adds up the violations that show nothing yet, and reports whether the run was
// undecided.
func (p *Proof) OpenViolations() (n int64, undecided bool) {
	for _, c := range p.Checks {
		if p.IsOpen(c) {
			n += c.Violations
		}
	}
	return n, verdict.IsUndecided(p.Running)
}

// Fault returns the error with which the run ended, and one for each check that failed.
func (p *Proof) Fault() error {
	faults := []error{p.Running}
	for _, c := range p.Checks {
		if c.Violations > 0 && !p.IsOpen(c) {
			faults = append(faults, fmt.Errorf("the proof FAILED: %s: %d %s", c.Name, c.Violations, c.Violation))
		}
	}
	return errors.Join(faults...)
}

// Met is something that a run has to meet, and how often it met it.
type Met struct {
	N    int64
	What string
}

// Missed returns an error for each thing that a run did not meet. Such a run is undecided,
// because it proves nothing about that thing.
func Missed(all ...Met) error {
	var faults []error
	for _, met := range all {
		if met.N == 0 {
			faults = append(faults, verdict.NewUndecided("there were no %s, so nothing is proved about them", met.What))
		}
	}
	return errors.Join(faults...)
}

// Write prints the text of an example, the checks, and then the summary, for scripts.
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
