package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/internal/verdict"
)

// result has everything that the program prints at its end.
type result struct {
	demo.Proof
	findings

	keys, requests, replayed, inProgress, mismatches, crashes int64
}

// verdict returns nil if the proof holds and all the listed things happened in the run. If a listed
// thing did not happen, the run proves nothing about it, and verdict returns an error.
func (r *result) verdict() error {
	fault := r.Fault()
	if r.Running != nil {
		return fault
	}
	return errors.Join(fault, demo.Missed(
		demo.Met{N: r.Charges, What: "charges"},
		demo.Met{N: r.Refunds, What: "refunds"},
		demo.Met{N: r.replayed, What: "replays"},
		demo.Met{N: r.inProgress, What: "twins in progress"},
		demo.Met{N: r.mismatches, What: "changed requests"},
		demo.Met{N: r.crashes, What: "crashes"},
		demo.Met{N: r.Calls - r.Effects, What: "repeated calls of the provider"},
	))
}

// write prints the proof, and then the summary, which scripts read.
func (r *result) write(out io.Writer) error {
	return r.Write(out, "", "the service's tables, what clients were told, and the provider's books", r.summary())
}

// summary returns the last line of the output.
func (r *result) summary() string {
	word := verdict.Of(r.verdict())
	return fmt.Sprintf("refunds: keys=%d requests=%d replayed=%d in_progress=%d mismatches=%d crashes=%d charges=%d refunds=%d entries=%d events=%d"+
		" provider_calls=%d provider_effects=%d balance_cents=%d lost=%d ghosts=%d double_effects=%d wrong=%d verdict=%s",
		r.keys, r.requests, r.replayed, r.inProgress, r.mismatches, r.crashes, r.Charges, r.Refunds, r.Entries, r.Events,
		r.Calls, r.Effects, r.Cents, r.Violations("lost"), r.Violations("ghost"), r.Violations("double"), r.Violations("wrong"), word)
}
