package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"
)

// Of so many webhooks one is sent again with another body, forged, tampered with,
// or sent long after it was signed.
const (
	changeEvery = 20
	badEvery    = 10
	mostCopies  = 4
)

// hook is a genuine webhook.
type hook struct {
	id, payment, eventType string
	amount                 int64
	n                      int // the order in which it happened
	body                   []byte
}

// kind says what is sent of a hook.
type kind string

const (
	genuine  kind = "genuine"
	changed  kind = "changed"  // another body under its id, signed as it should be
	forged   kind = "forged"   // under an id of its own, by somebody without the secret
	stale    kind = "stale"    // under an id of its own, signed long ago
	tampered kind = "tampered" // under its id, with a body that was changed on the way
)

// delivery is one webhook to be sent until it is answered for good.
type delivery struct {
	kind
	hook *hook
	id   string
	body []byte
	then *delivery // to be sent when this one was taken
}

// plan returns what the provider will send for n payments, in the order in which
// it will: the same for the same seed.
func plan(seed uint64, n int) []delivery {
	chance := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a play, not a secret
	var hooks []*hook
	for p := range n {
		payment := fmt.Sprintf("pay_%05d", p+1)
		for _, step := range history(chance) {
			h := &hook{
				id: fmt.Sprintf("msg_%06d", len(hooks)+1), n: len(hooks) + 1,
				payment: payment, eventType: step.eventType, amount: step.amount,
			}
			h.body = h.render(h.amount)
			hooks = append(hooks, h)
		}
	}
	var all []delivery
	for i, h := range hooks {
		first := delivery{kind: genuine, hook: h, id: h.id, body: h.body}
		copies := 1 + chance.IntN(mostCopies)
		for range copies - 1 {
			all = append(all, first)
		}
		if i%changeEvery == changeEvery/2 {
			first.then = &delivery{kind: changed, hook: h, id: h.id, body: h.render(h.amount + 1)}
		}
		all = append(all, first)
		if i%badEvery == badEvery/2 {
			all = append(all, bad(h, i/badEvery))
		}
	}
	chance.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// bad returns what must not be taken: each kind in turn.
func bad(h *hook, turn int) delivery {
	switch turn % 3 {
	case 0:
		return delivery{kind: forged, hook: h, id: "forged_" + h.id, body: h.render(h.amount)}
	case 1:
		return delivery{kind: stale, hook: h, id: "stale_" + h.id, body: h.render(h.amount)}
	default:
		return delivery{kind: tampered, hook: h, id: h.id, body: h.render(h.amount * 10)}
	}
}

// step is something that happens to a payment.
type step struct {
	eventType string
	amount    int64
}

// history returns what happens to one payment, in order.
func history(chance *rand.Rand) []step {
	amount := 100 + chance.Int64N(50_000)
	part := 1 + chance.Int64N(amount-1)
	all := []step{{authorized, amount}}
	switch chance.IntN(10) {
	case 0: // never captured
	case 1:
		all = append(all, step{captured, part})
	case 2:
		all = append(all, step{captured, part}, step{captured, amount - part})
	case 3, 4, 5:
		all = append(all, step{captured, amount})
	case 6, 7:
		all = append(all, step{captured, amount}, step{refunded, amount})
	case 8:
		all = append(all, step{captured, amount}, step{refunded, part})
	case 9:
		all = append(all, step{captured, amount}, step{refunded, part}, step{refunded, amount - part})
	}
	return all
}

// render returns the body of a webhook.
func (h *hook) render(amount int64) []byte {
	told := notice{Type: h.eventType, Timestamp: time.Unix(1_780_000_000+int64(h.n), 0).UTC()}
	told.Data.Payment, told.Data.Amount = h.payment, amount
	body, err := json.Marshal(told)
	if err != nil {
		panic(err) // of a struct of texts and numbers
	}
	return body
}
