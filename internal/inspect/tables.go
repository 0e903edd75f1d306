package inspect

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// Tables says how large the tables are, and what stops them from shrinking.
type Tables struct {
	Tables []Table      `json:"tables"` // the largest first
	Sweep  Sweep        `json:"sweep"`
	Vacuum VacuumStatus `json:"vacuum"`
}

// Table is one of Postroom's tables.
type Table struct {
	Name              string `json:"table"`
	Bytes             int64  `json:"bytes"`          // the size on disk, without indexes
	IndexBytes        int64  `json:"index_bytes"`    // size of its indexes
	EstimatedRows     int64  `json:"estimated_rows"` // the server's estimate
	EstimatedDeadRows int64  `json:"estimated_dead_rows"`

	// VacuumedAt and AnalyzedAt are the times of the last vacuum and analyze, automatic or manual.
	VacuumedAt time.Time `json:"vacuumed_at,omitzero"`
	AnalyzedAt time.Time `json:"analyzed_at,omitzero"`

	// OldestAt is the time of the oldest row, if it can be found without reading all rows.
	OldestAt         time.Time `json:"oldest_at,omitzero"`
	OldestAgeSeconds float64   `json:"oldest_age_seconds,omitzero"`

	// OverdueSeconds is how long the removal of the oldest row has been overdue. Only the table
	// outbox has this field.
	OverdueSeconds float64 `json:"overdue_seconds,omitzero"`
}

// Sweep is the state of the sweep of the table inbox's pages, which removes expired rows.
type Sweep struct {
	Page  int64 `json:"page"`
	Pages int64 `json:"pages"`

	// KeptSeconds is the longest time for which a process keeps inbox rows. It is zero if no
	// process is alive.
	KeptSeconds float64 `json:"kept_seconds"`

	// OverdueSeconds is how long the next step of the sweep has been due. If it is more than a few
	// minutes, no process with an inbox runs.
	OverdueSeconds float64 `json:"overdue_seconds"`
}

// VacuumStatus says what keeps vacuum from removing dead rows, in this and all other databases of
// the cluster.
type VacuumStatus struct {
	Blockers []VacuumBlocker `json:"blockers"` // at most ten, the largest Xids first

	// Partial says that this role cannot see the transactions of other roles: grant it pg_monitor.
	Partial bool `json:"partial"`
}

// VacuumBlocker is a transaction, a replication slot or a standby that keeps vacuum from removing
// dead rows.
type VacuumBlocker struct {
	Kind        string  `json:"kind"` // "transaction", "prepared", "slot" or "standby"
	Name        string  `json:"name"` // the process id of a transaction
	Database    string  `json:"database,omitempty"`
	Owner       string  `json:"owner,omitempty"`
	Application string  `json:"application,omitempty"`
	Client      string  `json:"client,omitempty"` // address of the client
	State       string  `json:"state,omitempty"`
	AgeSeconds  float64 `json:"age_seconds,omitzero"` // zero if the age is not known
	Xids        int64   `json:"xids"`                 // its age, counted in transactions
}

func scanTable(row pgx.CollectableRow, t *Table) error {
	return row.Scan(&t.Name, &t.Bytes, &t.IndexBytes, &t.EstimatedRows, &t.EstimatedDeadRows, at(&t.VacuumedAt), at(&t.AnalyzedAt))
}

func scanVacuumBlocker(row pgx.CollectableRow, h *VacuumBlocker) error {
	return row.Scan(&h.Kind, &h.Name, &h.Database, &h.Owner, &h.Application, &h.State, &h.AgeSeconds, &h.Xids, &h.Client)
}

// readOldest sets the times of the tables' oldest rows.
func readOldest(m *view, tables []Table, retention time.Duration) error {
	found, err := rows(m, "oldest rows", m.sql.OldestRows, func(row pgx.CollectableRow, t *Table) error {
		return row.Scan(&t.Name, at(&t.OldestAt), &t.OldestAgeSeconds)
	})
	for _, o := range found {
		for n := range tables {
			t := &tables[n]
			if t.Name != o.Name {
				continue
			}
			t.OldestAt, t.OldestAgeSeconds = o.OldestAt, o.OldestAgeSeconds
			if t.Name == "outbox" && retention > 0 {
				t.OverdueSeconds = max(o.OldestAgeSeconds-retention.Seconds(), 0)
			}
		}
	}
	return err
}

func readSweep(m *view) (Sweep, error) {
	s, err := one(m, "the removal of old inbox rows", m.sql.Sweep, func(row pgx.CollectableRow, s *Sweep) error {
		return row.Scan(&s.Page, &s.Pages, &s.OverdueSeconds)
	})
	if err != nil {
		return s, err
	}
	processes, err := readProcesses(m)
	for _, p := range processes {
		if p.Alive {
			s.KeptSeconds = max(s.KeptSeconds, p.longest)
		}
	}
	return s, err
}
