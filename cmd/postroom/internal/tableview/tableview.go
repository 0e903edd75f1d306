// Package tableview prints the sizes of tables, for a person or a script.
package tableview

import (
	"fmt"
	"io"
	"time"

	"github.com/postroom/postroom/cmd/postroom/internal/output"
	"github.com/postroom/postroom/internal/inspect"
)

// Print prints the sizes of tables, the progress of the inbox sweep, and what hinders vacuum.
func Print(out io.Writer, asJSON bool, t *inspect.Tables) error {
	if asJSON {
		return output.JSON(out, t)
	}
	rows := [][]string{{"TABLE", "SIZE", "INDEXES", "ROWS ABOUT", "DEAD ABOUT", "VACUUMED", "OLDEST ROW", "OVERDUE"}}
	for _, one := range t.Tables {
		vacuumed, oldest, overdue := "never", "-", "-"
		if !one.VacuumedAt.IsZero() {
			vacuumed = output.Stamp(one.VacuumedAt)
		}
		if !one.OldestAt.IsZero() {
			oldest = span(one.OldestAgeSeconds)
		}
		if one.OverdueSeconds > 0 {
			overdue = span(one.OverdueSeconds)
		}
		rows = append(rows, []string{
			one.Name, Bytes(one.Bytes), Bytes(one.IndexBytes), fmt.Sprint(one.EstimatedRows), fmt.Sprint(one.EstimatedDeadRows), vacuumed, oldest, overdue,
		})
	}
	if err := output.Table(out, rows); err != nil {
		return err
	}
	if err := output.Line(out, "\ninbox: %s", sweepLine(t.Sweep)); err != nil {
		return err
	}
	if err := output.Block(out, holderRows(t.Vacuum.Blockers)); err != nil {
		return err
	}
	if t.Vacuum.Partial {
		return output.Line(out, "\nthis role cannot see transactions of other roles: grant it pg_monitor")
	}
	return nil
}

func sweepLine(s inspect.Sweep) string {
	line := fmt.Sprintf("swept up to page %d of %d", min(s.Page, s.Pages), s.Pages)
	if s.KeptSeconds > 0 {
		line += fmt.Sprintf(", rows are kept for at most %s", span(s.KeptSeconds))
	}
	if s.OverdueSeconds > 300 {
		line += fmt.Sprintf("; no process has continued the sweep for %s: no inbox runs", span(s.OverdueSeconds))
	}
	return line
}

func holderRows(all []inspect.VacuumBlocker) [][]string {
	rows := [][]string{{"KEEPS VACUUM AWAY", "NAME", "FOR", "TRANSACTIONS SINCE", "STATE", "DATABASE", "OWNER", "APPLICATION", "CLIENT"}}
	for _, h := range all {
		age := "-"
		if h.AgeSeconds > 0 {
			age = span(h.AgeSeconds)
		}
		rows = append(rows, []string{
			h.Kind, output.Cell(h.Name, 40), age, fmt.Sprint(h.Xids), output.OrDash(h.State), output.OrDash(output.Cell(h.Database, 40)), output.OrDash(output.Cell(h.Owner, 40)),
			output.OrDash(output.Cell(h.Application, 40)), output.OrDash(h.Client),
		})
	}
	return rows
}

// span formats a number of seconds for a person.
func span(seconds float64) string { return output.Span(time.Duration(seconds * float64(time.Second))) }

// Bytes formats a size for a person.
func Bytes(n int64) string {
	const units = "kMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n)/1024, 0
	for size >= 1024 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	return fmt.Sprintf("%.1f %cB", size, units[unit])
}
