package inspect

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Process is a process that runs handlers.
type Process struct {
	Name      string    `json:"name"`
	Handlers  []string  `json:"handlers"`
	StartedAt time.Time `json:"started_at"`
	SeenAt    time.Time `json:"seen_at"`

	// SilentSeconds is how long ago the process last renewed its row. A process renews its row
	// every ten seconds.
	SilentSeconds float64 `json:"silent_seconds"`

	// Alive is false if the process did not renew its row for a minute. Probably it ended without
	// removing the row.
	Alive bool `json:"alive"`

	// Paused are the handlers that paused themselves in this process, because they fail for nearly
	// all events.
	Paused map[string]SelfPause `json:"paused,omitempty"`

	longest float64 // the longest time for which the process keeps inbox rows, in seconds
}

func readProcesses(m *view) ([]Process, error) {
	return rows(m, "processes", m.sql.Processes, func(row pgx.CollectableRow, p *Process) error {
		var paused map[string]json.RawMessage
		if err := row.Scan(&p.Name, &p.Handlers, at(&p.StartedAt), at(&p.SeenAt), &p.SilentSeconds, &p.Alive, &p.longest, &paused); err != nil {
			return err
		}
		for handler, text := range paused {
			if p.Paused == nil {
				p.Paused = make(map[string]SelfPause, len(paused))
			}
			var one SelfPause
			if err := json.Unmarshal(text, &one); err != nil { // a role that may write the row may write anything
				one = SelfPause{Since: p.SeenAt, Class: "unknown", Text: "what it wrote about the pause cannot be read"}
			}
			p.Paused[handler] = one
		}
		return nil
	})
}

// aliveProcesses returns the names of the living processes that run a handler.
func aliveProcesses(all []Process, handler string) []string {
	names := []string{} // not null in JSON
	for _, p := range all {
		if p.Alive && slices.Contains(p.Handlers, handler) {
			names = append(names, p.Name)
		}
	}
	return names
}
