package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/verdict"
)

// A night is one run of the example, with its counts.
type night struct {
	*shop

	out  io.Writer
	died int64

	replayed, edited, discarded int
}

// operator returns the operator's name and a reason. Postroom records both with each action.
func operator(reason string) postroom.Audit { return postroom.Audit{Actor: "ann", Reason: reason} }

func (n *night) say(format string, args ...any) { fmt.Fprintf(n.out, format+"\n", args...) }

// table prints rows. The first row has the names of the columns.
func (n *night) table(rows ...[]string) {
	w := tabwriter.NewWriter(n.out, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	_ = w.Flush() // the program ignores all errors of n.out
}

// pass plays the parts of the night, one after the other.
func (n *night) pass(ctx context.Context) error {
	for _, part := range []func(ctx context.Context) error{n.sell, n.look, n.tryInVain, n.mend, n.replayRates, n.correct, n.giveUp} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return n.until(ctx, "everything to be settled", "SELECT count(*) FROM postroom.held", 0)
}

// sell places the orders, and waits until each event has been handled or is dead.
func (n *night) sell(ctx context.Context) error {
	n.say("03:00  %d orders come in. A third is in euros, for which no rate is there; some have a comma in their amount.", n.opt.orders)
	bad := 0
	for _, o := range plan(n.opt) {
		if err := n.place(ctx, o); err != nil {
			return err
		}
		if o.Currency == "EUR" || strings.Contains(o.Amount, ",") {
			bad++
		}
	}
	err := n.until(ctx, "the charges", "SELECT count(*) FROM charge", n.opt.orders-bad)
	err = errors.Join(err, n.until(ctx, "the thanks", "SELECT count(*) FROM thanks", n.opt.orders))
	err = errors.Join(err, n.until(ctx, "the others to be dead", "SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL", bad))
	n.died = int64(bad)
	return err
}

// look finds out why the events died.
func (n *night) look(ctx context.Context) error {
	list, err := n.letters.Groups(ctx, deadletter.Filter{})
	if err != nil {
		return err
	}
	n.say("\n03:10  %d events are dead. What killed them?\n       $ postroom dead groups\n", n.died)
	rows := [][]string{{"EVENTS", "HANDLER", "CLASS", "ERROR OF ONE"}}
	for _, g := range list.Groups {
		rows = append(rows, []string{fmt.Sprint(g.Events), g.Handler, g.Class, g.Error})
	}
	n.table(rows...)
	if len(list.Groups) != 2 {
		return fmt.Errorf("%d groups, want 2", len(list.Groups))
	}
	return nil
}

func rates() deadletter.Filter {
	return deadletter.Filter{Handler: billingCharge, Text: "no rate for currency"}
}

func amounts() deadletter.Filter {
	return deadletter.Filter{Handler: billingCharge, Class: "permanent"}
}

// tryInVain makes a dry run before the operator repairs the cause.
func (n *night) tryInVain(ctx context.Context) error {
	n.say("\n03:15  Would they work now?\n       $ postroom dead replay --text 'no rate' --dry-run\n")
	return n.try(ctx, deadletter.DryRunFails)
}

// mend repairs the cause, and makes another dry run.
func (n *night) mend(ctx context.Context) error {
	n.say("\n03:20  The rate is put in.")
	if _, err := n.Pool.Exec(ctx, "INSERT INTO rate VALUES ('EUR', 125)"); err != nil {
		return fmt.Errorf("insert rate: %w", err)
	}
	n.say("       And now?\n       $ postroom dead replay --text 'no rate' --dry-run\n")
	return n.try(ctx, deadletter.DryRunPasses)
}

// try makes a dry run of one event in the process that has the handler. It returns an error if the
// verdict of the dry run is not the parameter want.
func (n *night) try(ctx context.Context, want deadletter.DryRunVerdict) error {
	trials, err := n.letters.DryRun(ctx, rates(), deadletter.DryRunOptions{Each: 1, Wait: 10 * time.Second})
	if err != nil {
		return err
	}
	rows := [][]string{{"TRIED", "NOW", "WOULD HAVE"}}
	for _, t := range trials {
		would := t.Text
		for _, c := range t.Changes {
			would += fmt.Sprintf("%s %s: %d  ", c.Kind, c.Name, c.Inserted)
		}
		rows = append(rows, []string{t.EventID, string(t.Verdict), would})
	}
	n.table(rows...)
	if len(trials) != 1 || trials[0].Verdict != want {
		return fmt.Errorf("dry run: %+v, want that it %s", trials, want)
	}
	return nil
}

// replayRates replays the events that lacked a rate: ten first, and then the rest.
func (n *night) replayRates(ctx context.Context) error {
	n.say("\n03:25  Ten first, then the rest.\n       $ postroom dead replay --text 'no rate' --canary 10 --reason 'the rate is there'\n")
	job, err := n.letters.CreateReplay(ctx, rates(), deadletter.ReplayOptions{Canary: 10}, operator("the rate is there"))
	if err != nil {
		return err
	}
	phase := deadletter.ReplayPhase("")
	job, err = n.letters.RunReplay(ctx, job.ID, deadletter.RunOptions{Progress: func(j deadletter.Replay) {
		if j.Phase != phase {
			phase = j.Phase
			n.say("       %-7s %4d of %d released, %d succeeded, %d failed", phase, j.Released, j.Events, j.Succeeded, j.Failed)
		}
	}})
	if err != nil {
		return err
	}
	n.say("       %-7s %4d of %d released, %d succeeded, %d failed", job.State, job.Released, job.Events, job.Succeeded, job.Failed)
	n.replayed += job.Succeeded
	return nil
}

// correct edits dead events of orders with a comma, all but one, and replays them.
func (n *night) correct(ctx context.Context) error {
	n.say("\n03:40  The commas are corrected, one by one: what was there is kept.\n       $ postroom dead edit ID --data FILE --reason 'comma in the amount'\n")
	letters, _, err := n.letters.List(ctx, amounts(), postroom.Page{Limit: 1000})
	if err != nil {
		return err
	}
	var ids []int64
	for _, l := range letters[:len(letters)-1] {
		was, err := n.letters.Get(ctx, l.ID)
		if err != nil {
			return err
		}
		var o Order
		if err := json.Unmarshal(was.Data, &o); err != nil {
			return fmt.Errorf("decode order: %w", err)
		}
		o.Amount = strings.ReplaceAll(o.Amount, ",", ".")
		corrected, err := json.Marshal(o)
		if err != nil {
			return fmt.Errorf("encode order: %w", err)
		}
		if _, err := n.letters.Edit(ctx, l.ID, deadletter.Edit{Data: corrected}, operator("comma in the amount")); err != nil {
			return err
		}
		if n.edited++; n.edited == 1 {
			n.say("       %s  ->  %s", was.Data, corrected)
		}
		ids = append(ids, l.ID)
	}
	n.say("       %d edited", n.edited)
	if len(ids) == 0 { // a filter without ids would not select these events, but all
		return nil
	}
	job, err := n.letters.CreateReplay(ctx, deadletter.Filter{IDs: ids}, deadletter.ReplayOptions{}, operator("corrected"))
	if err == nil {
		job, err = n.letters.RunReplay(ctx, job.ID, deadletter.RunOptions{})
	}
	n.replayed += job.Succeeded
	return err
}

// giveUp discards the event that is still dead.
func (n *night) giveUp(ctx context.Context) error {
	n.say("\n03:50  The last was a test order.\n       $ postroom dead discard ID --reason 'test order'")
	left, err := n.letters.Discard(ctx, amounts(), deadletter.ChangeOptions{}, operator("test order"))
	n.discarded = int(left)
	return err
}

// until runs the query sql every 20 ms, until the query returns the value want.
func (n *night) until(ctx context.Context, what, sql string, want int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var got int
		if err := n.Pool.QueryRow(ctx, sql).Scan(&got); err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if got == want {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return verdict.NewUndecided("the time ran out while waiting for %s: %d of %d", what, got, want)
			}
			return fmt.Errorf("wait for %s: %d of %d: %w", what, got, want, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
