package main

import (
	"context"
	_ "embed" // the statement
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/postroom/postroom/examples/internal/demo"
)

//go:embed sql/waits.sql
var waitsSQL string

// waits says what limits the run. It has the numbers of sessions that were seen at work, by what
// they waited for, and how busy the processors were.
type waits struct {
	Disk    int64 `json:"waited_for_disk"`
	Program int64 `json:"waited_for_program"`
	Other   int64 `json:"waited_for_other"`
	Running int64 `json:"ran"`

	Busy, Ticks int64 `json:"-"` // of the processors, since the first look; 0 if the system does not tell
	from        struct{ busy, ticks int64 }
}

// look adds what the sessions wait for at this moment.
func (w *waits) look(ctx context.Context, db demo.Querier) error {
	now, err := demo.Row[struct{ Disk, Program, Other, Running int64 }](ctx, db, waitsSQL)
	if err != nil {
		return fmt.Errorf("look at the sessions: %w", err)
	}
	w.Disk += now.Disk
	w.Program += now.Program
	w.Other += now.Other
	w.Running += now.Running
	busy, ticks := processors()
	if w.from.ticks == 0 {
		w.from.busy, w.from.ticks = busy, ticks
	}
	w.Busy, w.Ticks = busy-w.from.busy, ticks-w.from.ticks
	return nil
}

// processors returns for how long all processors of the machine have been busy, and for how long
// they have been there. Where Linux does not tell, it returns zeros.
func processors() (busy, ticks int64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	var t [8]int64 // user, nice, system, idle, iowait, irq, softirq, steal
	if _, err := fmt.Sscanf(string(text), "cpu %d %d %d %d %d %d %d %d", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]); err != nil {
		return 0, 0
	}
	for _, n := range t {
		ticks += n
	}
	return ticks - t[3] - t[4], ticks
}

// limit says what limits the run, and what that is read from.
func (w *waits) limit() string {
	all := w.Disk + w.Program + w.Other + w.Running
	if all == 0 {
		return "What limits the orders/s: not known, the run was too short.\n"
	}
	percent := func(n, of int64) int64 { return (100*n + of/2) / max(of, 1) }
	why := "the clients, each of which places one order after the other"
	switch most := max(w.Disk, w.Program, w.Other, w.Running); {
	case percent(w.Busy, w.Ticks) >= 80:
		why = "the processors, which this program, PostgreSQL and NATS share"
	case most == w.Disk:
		why = "the disk: a commit ends when PostgreSQL has synced its log"
	case most == w.Running:
		why = "PostgreSQL"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "What limits the orders/s: %s.\n", why)
	if w.Ticks > 0 {
		fmt.Fprintf(&b, "  The %d processors of this machine were %d %% busy.\n", runtime.NumCPU(), percent(w.Busy, w.Ticks))
	}
	fmt.Fprintf(&b, "  Of PostgreSQL's sessions with work in hand, %d %% waited for the disk, %d %% for this program,\n  %d %% for something else, and %d %% ran.\n",
		percent(w.Disk, all), percent(w.Program, all), percent(w.Other, all), percent(w.Running, all))
	return b.String()
}
