package natsjs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

// Three replicas check a fence before they agree on a message, and take one message with the fence
// at a time. Batches, single messages and take-overs work as with one replica.
func TestAtomicBatchesInACluster(t *testing.T) {
	t.Parallel()
	c := commonCluster(t)
	nc := connect(t, c.url())
	s := c.streamOf(nc, jetstream.StreamConfig{
		Name: "TRIPLE", Subjects: []string{"TRIPLE.a"}, AllowAtomicPublish: true, MaxMsgSize: 64 << 10,
	})
	var claims leaseTable
	old := begin(t, nc, claims.claim())
	var want []string
	publish := func(p *atomicTerm, id string, n int) {
		t.Helper()
		events := series("TRIPLE.a", id, n, 7)
		p.store(events...)
		want = append(want, idsOf(events)...)
	}
	publish(old, "batches", 2500)

	// Some events of a batch are stored already, and one can never be stored. So all others of the
	// batch are sent one by one.
	again := series("TRIPLE.a", "batches", 2600, 7)[2400:]
	again[150].Data, again[150].Key = make([]byte, 128<<10), ""
	old.send(again...)
	for seq, o := range old.all(200) {
		switch {
		case seq == 2551 && o.class == broker.Permanent:
		case o.class != broker.Stored || o.duplicate != (seq <= 2500):
			t.Fatalf("outcome %+v", o)
		}
	}
	want = append(want, slices.DeleteFunc(idsOf(again[100:]), func(id string) bool { return id == "batches-2551" })...)

	// A leader that was replaced is refused.
	newer := begin(t, nc, claims.claim())
	publish(newer, "young", 1200)
	old.send(series("TRIPLE.a", "late", 1200, 7)...)
	if err := old.error(); !errors.Is(err, eventlog.ErrLeaseLost) {
		t.Errorf("the old term ended with %v, want ErrLeaseLost", err)
	}
	publish(newer, "more", 100)
	if ids := c.ids(s); !slices.Equal(ids, want) {
		t.Errorf("%d events are stored, want %d in their order, and none of the old leader", len(ids), len(want))
	}
}

// A batch whose answer is lost is found stored by all replicas.
func TestALostAnswerToABatchInACluster(t *testing.T) {
	t.Parallel()
	c := commonCluster(t)
	nc := connect(t, c.url())
	s := c.streamOf(nc, jetstream.StreamConfig{Name: "TRIPLELOST", Subjects: []string{"TRIPLELOST.a"}, AllowAtomicPublish: true})
	between := startProxy(t, c.servers["server-0"].URL())
	p := begin(t, connect(t, between.url()), new(leaseTable).claim())
	p.store(series("TRIPLELOST.a", "before", 10, 3)...)
	events := series("TRIPLELOST.a", "it", 100, 3)
	between.losing.Store(true)
	p.send(events[:60]...)
	for _, o := range p.all(60) {
		if o.class != broker.Unknown && o.class != broker.BlockedByKey {
			t.Errorf("outcome %+v, want unknown", o)
		}
	}
	devtest.Eventually(t, clusterPatience, "the batch to be stored", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		info, err := s.Info(ctx)
		return err == nil && info.State.Msgs == 10+60+2
	})
	between.losing.Store(false)
	p.store(events...)
	want := slices.Concat(idsOf(series("", "before", 10, 1)), idsOf(events))
	if ids := c.ids(s); !slices.Equal(ids, want) {
		t.Errorf("%d events are stored, want %d, each once", len(ids), len(want))
	}
}
