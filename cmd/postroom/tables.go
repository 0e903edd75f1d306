package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/inspect"
)

func newTables(getenv func(string) string) *cobra.Command {
	s := newInspection(getenv)
	var cfg inspect.Config
	cmd := &cobra.Command{
		Use:   "tables",
		Short: "Show what grows, and what keeps vacuum away",
		Long: `Show how large Postroom's tables are, how far back they reach, and the oldest
transactions of the whole cluster, which keep vacuum from giving space back. Rows
are the server's estimates. Changes nothing, and reads no table.

Without the role pg_monitor the transactions of other roles are not shown.`,
		Example: `  postroom tables
  postroom tables --retention 168h
  postroom tables --json | jq '.tables[] | select(.estimated_dead_rows > 100000)'`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withDatabase(cmd.Context(), cfg, func(i *inspect.Inspector) error {
				t, err := i.Tables(cmd.Context())
				if err != nil {
					return err
				}
				return printTables(cmd, s.asJSON, t)
			})
		},
	}
	cmd.Flags().DurationVar(&cfg.Retention, "retention", 72*time.Hour, "the --retention of the relays")
	noFileCompletion(cmd, "retention")
	s.addFlags(cmd, false)
	return cmd
}

func printTables(cmd *cobra.Command, asJSON bool, t *inspect.Tables) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), t)
	}
	rows := [][]string{{"TABLE", "SIZE", "INDEXES", "ROWS ABOUT", "DEAD ABOUT", "VACUUMED", "OLDEST ROW", "OVERDUE"}}
	for _, one := range t.Tables {
		vacuumed, oldest, overdue := "never", "-", "-"
		if !one.VacuumedAt.IsZero() {
			vacuumed = stamp(one.VacuumedAt)
		}
		if !one.OldestAt.IsZero() {
			oldest = spanOf(one.OldestAgeSeconds)
		}
		if one.OverdueSeconds > 0 {
			overdue = spanOf(one.OverdueSeconds)
		}
		rows = append(rows, []string{
			one.Name, bytesOf(one.Bytes), bytesOf(one.IndexBytes), count(one.EstimatedRows), count(one.EstimatedDeadRows), vacuumed, oldest, overdue,
		})
	}
	if err := printTable(cmd.OutOrStdout(), rows); err != nil {
		return err
	}
	if err := printLine(cmd.OutOrStdout(), "\ninbox: %s", sweepLine(t.Sweep)); err != nil {
		return err
	}
	if err := block(cmd, holderRows(t.Vacuum.Blockers)); err != nil {
		return err
	}
	if t.Vacuum.Partial {
		return printLine(cmd.OutOrStdout(), "\nthis role sees no transactions of others: grant it pg_monitor")
	}
	return nil
}

func sweepLine(s inspect.Sweep) string {
	line := fmt.Sprintf("swept up to page %d of %d", min(s.Page, s.Pages), s.Pages)
	if s.KeptSeconds > 0 {
		line += fmt.Sprintf(", rows are kept %s", spanOf(s.KeptSeconds))
	}
	if s.OverdueSeconds > 300 {
		line += fmt.Sprintf("; no process has continued for %s: no inbox runs", spanOf(s.OverdueSeconds))
	}
	return line
}

func holderRows(all []inspect.VacuumBlocker) [][]string {
	rows := [][]string{{"KEEPS VACUUM AWAY", "NAME", "FOR", "TRANSACTIONS SINCE", "STATE", "DATABASE", "OWNER", "APPLICATION", "CLIENT"}}
	for _, h := range all {
		age := "-"
		if h.AgeSeconds > 0 {
			age = spanOf(h.AgeSeconds)
		}
		rows = append(rows, []string{
			h.Kind, cell(h.Name, 40), age, count(h.Xids), orDash(h.State), orDash(cell(h.Database, 40)), orDash(cell(h.Owner, 40)),
			orDash(cell(h.Application, 40)), orDash(h.Client),
		})
	}
	return rows
}
