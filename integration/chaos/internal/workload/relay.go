//go:build linux || darwin

package workload

import (
	"context"

	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

func runRelay(ctx context.Context, w *worker) error {
	pool, err := w.connect(ctx, w.Shop, 1) // a leader opens two more connections, outside the pool
	if err != nil {
		return err
	}
	defer pool.Close()
	nc, err := w.broker()
	if err != nil {
		return err
	}
	defer nc.Close()
	r := relay.New(pool, natsjs.NewPublisher(nc), relay.Config{
		Lease: Lease, Atomic: w.Atomic, Retention: relay.KeepForever, Logger: w.log, MeterProvider: w.meters,
		AcceptRisks: []broker.Risk{natsjs.ShortDuplicateWindow},
	})
	childproc.Tell("begins")
	return r.Run(ctx)
}
