package inbox

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// How often a process looks at its consumer, and how often it notes how far the
// handler has come.
const (
	lookEvery  = 15 * time.Second
	floorEvery = time.Minute
)

// brokerView is what the broker says of a handler's consumer.
type brokerView struct {
	pending, ackPending float64
	drifted             bool
}

// watch looks after the consumer until ctx ends.
func (c *consumer) watch(ctx context.Context, durable jetstream.Consumer) {
	want := durable.CachedInfo().Config
	var faults []string
	var noted time.Time
	for ; ctx.Err() == nil; sleep(ctx, c.inbox.lookEvery) {
		info, err := durable.Info(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.log.DebugContext(ctx, "the consumer could not be looked at", "error", err)
			}
			continue
		}
		found := drift(info.Config, want)
		if len(found) > 0 && !slices.Equal(found, faults) {
			c.log.ErrorContext(ctx, "the handler's consumer is not as it should be; restart a process of the handler, or mend it",
				"stream", c.sub.Stream, "consumer", info.Name, "faults", strings.Join(found, "; "))
		}
		faults = found
		c.broker.Store(&brokerView{pending: float64(info.NumPending), ackPending: float64(info.NumAckPending), drifted: len(faults) > 0})
		if time.Since(noted) >= c.inbox.floorEvery {
			noted = time.Now()
			c.noteFloor(ctx, info.AckFloor.Stream)
		}
	}
}

// noteFloor notes up to where everything is decided.
func (c *consumer) noteFloor(ctx context.Context, floor uint64) {
	if floor == 0 {
		return
	}
	_, err := c.inbox.pool.Exec(ctx, c.inbox.sql.floor, c.sub.Name, c.origin.Created.Truncate(time.Microsecond), floor)
	if err != nil && ctx.Err() == nil {
		c.log.DebugContext(ctx, "the floor could not be noted; the next look notes it", "error", err)
	}
}
