package natsjs_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// Terms end, fences vanish, and events are refused for good or for a while, among many events
// of each key. Each key stays in order. After a dead event, no later event of its key is
// published.
func TestARelayInAtomicBatchesKeepsTheOrder(t *testing.T) {
	t.Parallel()
	const keys = 8
	random := devtest.Random(t, 0)
	nc := devtest.NATS(t)
	s := openStream(t, nc, "CHAOS", func(cfg *jetstream.StreamConfig) { cfg.MaxMsgSize = 32 << 10 })
	src := using("CHAOS.a")
	own := connect(t, devtest.NATSURL(t))
	r := relayOver(src, natsjs.NewPublisher(own), relay.Config{
		Atomic: true, AcceptRisks: []broker.Risk{natsjs.SmallMessages},
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	}()
	devtest.Eventually(t, clusterPatience, "the relay to lead", func() bool { return r.Health().State == relay.Leading })

	var written int64
	bad := map[string]int64{} // the dead event of some keys
	write := func(n int) {
		src.Set(func() {
			term := src.Terms[len(src.Terms)-1]
			for range n {
				written++
				key := fmt.Sprint(random.IntN(keys))
				ev := event(written, "CHAOS.a", fmt.Sprintf("%s-%d", key, written))
				ev.Key = key
				if _, dead := bad[key]; !dead && written > 4000 && key < "3" {
					ev.Data, bad[key] = make([]byte, 64<<10), written
				}
				src.Events = append(src.Events, ev)
				term.Unread = append(term.Unread, ev)
			}
		})
	}
	settled := func() (n int64) {
		src.Set(func() { n = int64(len(src.Done) + len(src.Held)) })
		return n
	}
	terms := func() (n int) {
		src.Set(func() { n = len(src.Terms) })
		return n
	}
	for round := range 10 {
		write(random.IntN(1500))
		switch round % 3 {
		case 0:
			before := terms()
			if err := own.ForceReconnect(); err != nil {
				t.Fatal(err)
			}
			write(500)
			devtest.Eventually(t, clusterPatience, "another term", func() bool { return terms() > before })
		case 1:
			loseLeases(t, s)
		case 2:
			devtest.Eventually(t, clusterPatience, "some progress", func() bool { return settled() > written/2 })
		}
	}
	if written < 4500 {
		write(4500)
	}
	devtest.Eventually(t, clusterPatience, "everything to be published or held", func() bool { return settled() == written })

	ids, _ := stored(t, s)
	last, seen := map[string]int64{}, map[string]bool{}
	for _, id := range ids {
		if seen[id] {
			t.Errorf("event %s is stored twice within the duplicate window", id)
		}
		seen[id] = true
		key, number, _ := strings.Cut(id, "-")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if n < last[key] {
			t.Errorf("event %d of key %s comes after %d", n, key, last[key])
		}
		if b, dead := bad[key]; dead && n >= b {
			t.Errorf("event %d of key %s is published, and %d of it is dead", n, key, b)
		}
		last[key] = n
	}
	src.Set(func() {
		if len(bad) != 3 || len(seen)+len(src.Held) != int(written) {
			t.Errorf("%d published, %d held, %d keys with a dead event; want %d in all, and 3 keys", len(seen), len(src.Held), len(bad), written)
		}
	})
	t.Logf("%d events in %d terms", written, terms())
}
