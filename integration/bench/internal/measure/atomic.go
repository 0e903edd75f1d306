package measure

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/natsjs"
	port "github.com/postroom/postroom/relay/broker"
)

// maxSynced is the largest number of messages that the reference publishes to a broker that syncs
// each message. More messages would take too long: this broker stores a few thousand per second.
const maxSynced = 20_000

// onSynced returns a trial that runs the trial measure on the broker that syncs every message.
func onSynced(measure trial) trial {
	return func(ctx context.Context, b *bench) (sample, error) {
		if b.synced == nil {
			return sample{}, errors.New("there is no broker that syncs every message")
		}
		usual := b.broker
		b.broker = b.synced
		defer func() { b.broker = usual }()
		return measure(ctx, b)
	}
}

// atomicTrial measures a relay that drains a backlog in atomic batches. The parameters keys and n
// are $5 and $6 of load.sql.
func atomicTrial(keys string, n int) trial {
	return func(ctx context.Context, b *bench) (sample, error) {
		schemaName, err := b.backlog(ctx, keys, n)
		if err != nil {
			return sample{}, err
		}
		b.atomic = true
		defer func() { b.atomic = false }()
		return b.withStream(ctx, func(nc *nats.Conn) (sample, error) { return drain(ctx, b, nc, schemaName, 0) })
	}
}

// publisher makes a relay's publisher. A publisher of atomic batches has no probe.
func publisher(b *bench, nc *nats.Conn, p probe) port.Publisher {
	if b.atomic {
		return natsjs.NewPublisher(nc)
	}
	return probedPublisher{natsjs.NewPublisher(nc), p}
}
