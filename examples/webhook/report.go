package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/internal/verdict"
)

// result is what the program prints.
type result struct {
	demo.Proof
	findings
	interrupted bool // before all was sent

	requests, duplicates, refused, unavailable, again int64
}

// verdict returns nil where the proof holds. A run that met nothing of what it is
// to survive proves nothing of it, and is no success.
func (r *result) verdict() error {
	fault := r.Fault()
	if r.interrupted || r.Running != nil {
		return fault
	}
	return errors.Join(fault, demo.Missed(
		demo.Met{N: r.Applied, What: "webhooks that took effect"},
		demo.Met{N: r.duplicates, What: "duplicates"},
		demo.Met{N: r.Conflicts, What: "changed bodies"},
		demo.Met{N: r.refused, What: "forged or stale webhooks"},
		demo.Met{N: r.unavailable, What: "answers of 503"},
		demo.Met{N: r.OutOfOrder, What: "webhooks out of order"},
	))
}

// write prints the proof, and under it the summary, for scripts.
func (r *result) write(out io.Writer) error {
	return r.Write(out, "", "the service's tables and the provider's books", r.summary())
}

// summary is the last line of the output.
func (r *result) summary() string {
	word := verdict.Of(r.verdict())
	return fmt.Sprintf("webhook: payments=%d webhooks=%d requests=%d applied=%d duplicates=%d conflicts=%d refused=%d answered_503=%d sent_again=%d"+
		" out_of_order=%d kept_cents=%d lost=%d ghosts=%d double_effects=%d wrong=%d verdict=%s",
		r.Payments, r.Webhooks, r.requests, r.Applied, r.duplicates, r.Conflicts, r.refused, r.unavailable, r.again,
		r.OutOfOrder, r.Kept, r.Violations("lost"), r.Violations("ghost"), r.Violations("double"), r.Violations("wrong"), word)
}
