package measure

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

const (
	// A turn takes about this time. The speed of a machine changes within seconds, so if turns were
	// longer, the machine could have another speed in each turn.
	turn = 200 * time.Millisecond

	// This part of a turn does not count, because transactions of the previous turn end in it.
	handover = 20 * time.Millisecond
)

// The map transactions has the producers' transactions, by the name of the trial.
var transactions = map[string]func(p *producer, ctx context.Context) error{
	plainTx:          (*producer).plain,
	"producer.write": (*producer).write,
	"producer.queue": (*producer).queue,
	handOutbox:       (*producer).byHand,
}

// steps returns the measurements in their order. A step is one trial, or several trials that take
// turns. If a profile is wanted, each trial is a separate step.
func (b *bench) steps(order []string) [][]string {
	var steps [][]string
	together := -1
	for _, name := range order {
		switch {
		case transactions[name] == nil || b.cfg.Profile != nil:
			steps = append(steps, []string{name})
		case together < 0:
			together = len(steps)
			steps = append(steps, []string{name})
		default:
			steps[together] = append(steps[together], name)
		}
	}
	return steps
}

// titleOf returns a title for the measurements of a step.
func titleOf(names []string) string {
	if len(names) > 1 {
		return "transactions, in turns"
	}
	return names[0]
}

// takeTurns measures several kinds of transactions on one log. Each kind gets turns until it has
// had its full time.
func (b *bench) takeTurns(ctx context.Context, names []string) ([]sample, error) {
	p, _, err := newProducer(ctx, b)
	if err != nil {
		return nil, err
	}
	var now atomic.Int64 // the index of the transaction whose turn it is
	counts := make([]atomic.Int64, len(names))
	repeat := func(ctx context.Context, _ int, end <-chan struct{}) error {
		for !over(end) {
			n := now.Load()
			if err := transactions[names[n]](p, ctx); err != nil {
				return err
			}
			counts[n].Add(1)
		}
		return nil
	}
	rounds := max(1, int(b.cfg.Span/turn))
	committed, took := make([]int64, len(names)), make([]time.Duration, len(names))
	err = crew(ctx, repeat, func(ctx context.Context) error {
		for round := range rounds + 1 { // in the first round, which does not count, the clients connect and prepare statements
			for i := range names {
				n := i
				if round%2 == 1 { // so that no transaction always follows the same other one
					n = len(names) - 1 - i
				}
				now.Store(int64(n))
				sleep(ctx, handover)
				from, began := counts[n].Load(), time.Now()
				sleep(ctx, b.cfg.Span/time.Duration(rounds))
				if round > 0 {
					committed[n] += counts[n].Load() - from
					took[n] += time.Since(began)
				}
			}
		}
		return ctx.Err()
	})
	found := make([]sample, len(names))
	for n := range names {
		if err == nil && committed[n] == 0 {
			err = errors.New("no transaction ended in the time")
		}
		found[n].value = float64(committed[n]) / took[n].Seconds()
	}
	return found, err
}
