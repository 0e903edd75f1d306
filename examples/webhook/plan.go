package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"
)

// The provider sends one in changeEvery webhooks again with another body. For one in forgeEvery
// webhooks, a sender without the secret sends a forged webhook. The plan has at most mostCopies
// deliveries of each genuine webhook.
const (
	changeEvery = 20
	forgeEvery  = 10
	mostCopies  = 4
)

// hook is a genuine webhook.
type hook struct {
	id, payment, eventType string
	amount                 int64
	n                      int // the webhook's number, in the order in which the events happened
}

// kind says how a hook is sent.
type kind string

const (
	genuine kind = "genuine"
	changed kind = "changed" // sent with another body under the same id, correctly signed
	forged  kind = "forged"  // sent under an id of its own, by a sender without the secret
)

// delivery is one delivery of a webhook. Its request is repeated until there is a final answer.
type delivery struct {
	kind
	id   string
	hook *hook
}

// plan returns the deliveries for n payments, in the random order in which they are sent. The same
// seed gives the same deliveries.
func plan(seed uint64, n int) []delivery {
	chance := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a play, not a secret
	var all []delivery
	hooks := 0
	for p := range n {
		for _, h := range history(chance) {
			hooks++
			h.n, h.id, h.payment = hooks, fmt.Sprintf("msg_%06d", hooks), fmt.Sprintf("pay_%05d", p+1)
			for range 1 + chance.IntN(mostCopies) {
				all = append(all, delivery{genuine, h.id, h})
			}
			if hooks%forgeEvery == 0 {
				all = append(all, delivery{forged, "forged_" + h.id, h})
			}
		}
	}
	chance.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// history returns the events of one payment, in order: an authorization, and then up to two
// captures. The first capture takes a part of the amount, and the second takes the rest. After two
// captures, one or two refunds may follow. The first refund is for a part, and the second for the
// rest.
func history(chance *rand.Rand) []*hook {
	amount := 100 + chance.Int64N(50_000)
	part := 1 + chance.Int64N(amount-1)
	all := []*hook{{eventType: authorized, amount: amount}}
	for _, next := range []string{captured, refunded} {
		steps := []*hook{{eventType: next, amount: part}, {eventType: next, amount: amount - part}}
		n := min(chance.IntN(5), 2)
		all = append(all, steps[:n]...)
		if n < 2 {
			break
		}
	}
	return all
}

func (d delivery) body() []byte {
	told := notice{Type: d.hook.eventType, Timestamp: time.Unix(1_780_000_000+int64(d.hook.n), 0).UTC()}
	told.Data.Payment, told.Data.Amount = d.hook.payment, d.hook.amount
	if d.kind == changed {
		told.Data.Amount++
	}
	body, _ := json.Marshal(told) // cannot fail: texts and a number
	return body
}
