package measure

import (
	"context"

	"github.com/postroom/postroom/integration/bench/internal/machine"
)

func (b *servers) describe(ctx context.Context) (machine.Machine, error) {
	m, err := machine.Describe(ctx, b.pool)
	if err == nil {
		err = b.rest(ctx)
	}
	m.Postgres.Checkpoints = !b.restless
	m.NATS = machine.NATS{Version: b.nc.ConnectedServerVersion(), Storage: "file", Where: b.cfg.Broker.Where}
	return m, err
}
