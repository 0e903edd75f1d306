package measure

import (
	"context"
	_ "embed" // the statement
	"fmt"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/bench/internal/machine"
)

// Machine says on what a report was made.
type Machine struct {
	Date     time.Time `json:"date"`
	Platform string    `json:"platform"`
	CPUs     int       `json:"cpus"` // that this process may use
	CPU      string    `json:"cpu,omitempty"`
	Go       string    `json:"go"`
	Postgres Postgres  `json:"postgres"`
	NATS     NATS      `json:"nats"`
}

// Postgres is what decides how fast a database server commits.
type Postgres struct {
	Version           string `json:"version"`
	Fsync             string `json:"fsync"`
	SynchronousCommit string `json:"synchronous_commit"`
	SharedBuffers     string `json:"shared_buffers"`
	Checkpoints       bool   `json:"checkpoints"` // one was made before each measurement
}

// NATS is what the broker says of itself.
type NATS struct {
	Version string `json:"version"`
	Storage string `json:"storage"`
	Where   string `json:"where,omitempty"` // where it runs
}

//go:embed sql/server.sql
var serverSQL string

func (b *servers) describe(ctx context.Context) (Machine, error) {
	m := Machine{
		Date: time.Now().UTC().Truncate(time.Second), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		CPUs: runtime.GOMAXPROCS(0), CPU: machine.Processor(), Go: runtime.Version(),
		NATS: NATS{Version: b.nc.ConnectedServerVersion(), Storage: "file", Where: b.cfg.Broker.Where},
	}
	rows, _ := b.pool.Query(ctx, serverSQL) // CollectOneRow reports the error
	type settings struct{ Version, Fsync, Commit, Buffers string }
	s, err := pgx.CollectOneRow(rows, pgx.RowToStructByName[settings])
	if err != nil {
		return m, fmt.Errorf("read settings: %w", err)
	}
	if err := b.rest(ctx); err != nil {
		return m, err
	}
	m.Postgres = Postgres{
		Version: s.Version, Fsync: s.Fsync, SynchronousCommit: s.Commit, SharedBuffers: s.Buffers, Checkpoints: !b.restless,
	}
	return m, nil
}
