package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/internal/verdict"
	"github.com/postroom/postroom/saga"
)

// result has everything that the program prints at its end.
type result struct {
	demo.Proof
	findings
	story         saga.Story // the story of one order
	stuck         int        // number of stuck sagas
	interrupted   bool       // the user ended the placing of orders
	killed, kills int        // how many services were killed, and how many kills the flags ask for
	repeated      int64      // deliveries to handlers with a durable consumer, beyond one for each event
}

// verdict returns nil if the proof holds and the run proves enough. A complete run proves enough if
// at least one order ended in each of the four ways below, and as many services were killed as the
// flags ask for.
func (r *result) verdict() error {
	fault := r.Fault()
	if r.interrupted || r.Running != nil {
		return fault
	}
	missed := demo.Missed(
		demo.Met{N: r.Confirmed, What: "orders confirmed"},
		demo.Met{N: r.Declined, What: "payments declined"},
		demo.Met{N: r.Short, What: "orders short of stock"},
		demo.Met{N: r.Expired, What: "orders out of time"},
	)
	if r.killed < r.kills {
		missed = errors.Join(missed, verdict.NewUndecided("%d services were killed, and not %d", r.killed, r.kills))
	}
	return errors.Join(fault, missed)
}

// write prints the story of an order, the proof, and then the summary, which scripts read.
func (r *result) write(out io.Writer) error {
	return r.Write(out, r.tale(), "the tables of all services and the messages of their streams", r.summary())
}

func (r *result) tale() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe story of %s, which is %s:\n\n", r.story.Key, r.story.State)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, e := range r.story.History {
		fmt.Fprintf(w, "  %8.1f ms\t%s\t%s\t%s\t%s\n", float64(e.At.Sub(r.story.StartedAt).Microseconds())/1000, e.Step, e.Direction, e.What, e.Type)
	}
	_ = w.Flush() // a strings.Builder never fails
	return b.String()
}

// summary returns the last line of the output.
func (r *result) summary() string {
	word := verdict.Of(r.verdict())
	return fmt.Sprintf("saga: orders=%d confirmed=%d cancelled=%d declined=%d out_of_stock=%d out_of_time=%d undone=%d stuck=%d killed=%d events=%d redelivered=%d"+
		" charged_cents=%d refunded_cents=%d lost=%d ghosts=%d double_effects=%d wrong=%d verdict=%s",
		r.Orders, r.Confirmed, r.Cancelled, r.Declined, r.Short, r.Expired, r.Undone, r.stuck, r.killed, r.Events, r.repeated,
		r.Charged, r.Refunded, r.Violations("lost"), r.Violations("ghost"), r.Violations("double"), r.Violations("wrong"), word)
}
