package machine

import (
	"context"
	_ "embed" // for the SQL statement
	"fmt"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Machine describes the machine and the servers on which a report was measured.
type Machine struct {
	Date     time.Time `json:"date"`
	Platform string    `json:"platform"`
	CPUs     int       `json:"cpus"` // the number of processors that this process may use
	CPU      string    `json:"cpu,omitempty"`
	Go       string    `json:"go"`
	Postgres Postgres  `json:"postgres"`
	NATS     NATS      `json:"nats"`
}

// Postgres has the settings that determine how fast a database server commits.
type Postgres struct {
	Version           string `json:"version"`
	Fsync             string `json:"fsync"`
	SynchronousCommit string `json:"synchronous_commit"`
	SharedBuffers     string `json:"shared_buffers"`
	Checkpoints       bool   `json:"checkpoints"` // the benchmark makes a checkpoint before each measurement
}

// NATS describes the broker.
type NATS struct {
	Version string `json:"version"`
	Storage string `json:"storage"`
	Where   string `json:"where,omitempty"` // the place where the broker runs
}

//go:embed sql/server.sql
var serverSQL string

// Describe returns a description of the machine and of the database server.
func Describe(ctx context.Context, pool *pgxpool.Pool) (Machine, error) {
	m := Machine{
		Date: time.Now().UTC().Truncate(time.Second), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		CPUs: runtime.GOMAXPROCS(0), CPU: Processor(), Go: runtime.Version(),
	}
	rows, _ := pool.Query(ctx, serverSQL) // CollectOneRow reports the error
	type settings struct{ Version, Fsync, Commit, Buffers string }
	s, err := pgx.CollectOneRow(rows, pgx.RowToStructByName[settings])
	if err != nil {
		return m, fmt.Errorf("read settings: %w", err)
	}
	m.Postgres = Postgres{Version: s.Version, Fsync: s.Fsync, SynchronousCommit: s.Commit, SharedBuffers: s.Buffers}
	return m, nil
}
