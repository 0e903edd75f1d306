package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/internal/verdict"
)

// result has everything that the program prints at its end, as a table or as one object of JSON.
type result struct {
	orders
	effects
	pace
	waits
	violations
	demo.Proof
	software
}

// orders has the numbers of the orders that the clients placed.
type orders struct {
	Seed       uint64 `json:"seed"`
	Clients    int    `json:"clients"`
	Orders     int64  `json:"orders"` // committed
	RolledBack int64  `json:"rolled_back"`
	Held       int64  `json:"held_open"`
}

// effects has the numbers of the effects of the orders.
type effects struct {
	Published   int64 `json:"published"`
	Late        int64 `json:"late"`
	Charged     int64 `json:"charged"`
	Counted     int64 `json:"counted"`
	CopiesSent  int64 `json:"copies_sent"`
	Suppressed  int64 `json:"duplicates_suppressed"` // the sum of both handlers
	ByBilling   int64 `json:"duplicates_suppressed_by_billing_charge"`
	ByAnalytics int64 `json:"duplicates_suppressed_by_analytics_count"`
}

// pace says how long the run took.
type pace struct {
	PlacingSecs float64 `json:"placing_seconds"`
	TotalSecs   float64 `json:"seconds"`
	P50         float64 `json:"event_insert_to_charge_insert_p50_seconds"`
	P99         float64 `json:"event_insert_to_charge_insert_p99_seconds"`
}

// violations has the numbers of violations that the proof found.
type violations struct {
	Lost      int64 `json:"lost"`
	Ghosts    int64 `json:"ghosts"`
	Doubles   int64 `json:"double_effects"`
	Undecided bool  `json:"undecided,omitempty"` // the run was not complete when its time ran out
	Open      int64 `json:"open,omitempty"`      // violations that do not count, because Undecided is set
}

// software has the versions of the servers, and whether PostgreSQL syncs to the disk.
type software struct {
	PostgreSQL   string `json:"postgresql"`
	PostgresFrom string `json:"postgresql_from"`
	Durable      bool   `json:"postgresql_durable"`
	NATS         string `json:"nats"`
}

// verdict returns nil if the proof holds and the run suppressed at least one duplicate. Without a
// suppressed duplicate, the run proves nothing about duplicates.
func (r *result) verdict() error {
	switch {
	case r.Lost != 0 || r.Ghosts != 0 || r.Doubles != 0:
		return fmt.Errorf("the proof FAILED: %d lost, %d ghosts, %d double effects", r.Lost, r.Ghosts, r.Doubles)
	case r.Suppressed == 0:
		return verdict.NewUndecided("no duplicate was suppressed, so nothing is proved about them")
	}
	return nil
}

// summary returns the last line of the output, which scripts read.
func (r *result) summary() string {
	line := fmt.Sprintf("demo: orders=%d rolled_back=%d published=%d charged=%d counted=%d duplicates_suppressed=%d lost=%d ghosts=%d double_effects=%d",
		r.Orders, r.RolledBack, r.Published, r.Charged, r.Counted, r.Suppressed, r.Lost, r.Ghosts, r.Doubles)
	if r.Undecided {
		line += fmt.Sprintf(" open=%d verdict=undecided", r.Open)
	}
	return line
}

// write prints the result, and then the summary.
func (r *result) write(out io.Writer, asJSON bool) error {
	if !asJSON {
		return r.Write(out, r.table(), "the tables and the messages of the stream", r.summary())
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	return demo.Print(out, fmt.Appendf(text, "\n%s\n", r.summary()))
}

func (r *result) table() string {
	var b strings.Builder
	disk := "durable: fsync on"
	if !r.Durable {
		disk = "NOT durable: fsync or synchronous_commit off"
	}
	fmt.Fprintf(&b, "PostgreSQL %s from %s, %s\n", r.PostgreSQL, r.PostgresFrom, disk)
	fmt.Fprintf(&b, "NATS %s, JetStream on files, synced every 2 minutes as by default\n\n", r.NATS)

	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(what, value, note string) { fmt.Fprintf(w, "%s\t%s\t  %s\n", pad(what), value, note) }
	number := func(what string, n int64, note string) { row(what, demo.Grouped(n), note) }
	number("orders committed", r.Orders, fmt.Sprintf("by %d clients, seed %d", r.Clients, r.Seed))
	number("orders rolled back", r.RolledBack, "after their event was written")
	number("orders held open", r.Held, "for 100 to 400 ms before their commit")
	number("events published", r.Published, "one for each order, one for each charge")
	number("  seen late", r.Late, "became visible to the relay after later ones")
	number("charges by "+billingCharge, r.Charged, "")
	number("orders added up by "+analyticsCount, r.Counted, "")
	number("duplicates sent", r.CopiesSent, "the same event under another message id")
	number("  suppressed by "+billingCharge, r.ByBilling, "")
	number("  suppressed by "+analyticsCount, r.ByAnalytics, "")
	row("orders placed", demo.Grouped(rate(r.Orders, r.PlacingSecs))+"/s", fmt.Sprintf("in %.1f s", r.PlacingSecs))
	row("orders placed, charged, counted", demo.Grouped(rate(r.Orders, r.TotalSecs))+"/s", fmt.Sprintf("in %.1f s, all work included", r.TotalSecs))
	row("latency p50", milliseconds(r.P50), "from the event's insert to the charge's insert, by the database's clock;")
	row("latency p99", milliseconds(r.P99), "with the order's commit, without the charge's; orders held open left out")
	_ = w.Flush() // a strings.Builder never fails
	b.WriteString("\n" + r.limit())
	return b.String()
}

// pad fills a label with spaces to a fixed width. So labels are aligned on the left, in a table
// whose cells are aligned on the right.
func pad(s string) string { return fmt.Sprintf("%-36s", s) }

func rate(n int64, seconds float64) int64 {
	return perSecond(n, time.Duration(seconds*float64(time.Second)))
}

func milliseconds(seconds float64) string { return fmt.Sprintf("%.1f ms", seconds*1000) }
