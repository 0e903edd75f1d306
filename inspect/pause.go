package inspect

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Pause is an operator's pause of a handler. Package control makes and ends them.
type Pause struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // zero: until an operator resumes the handler
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`

	handler string
}

func readPauses(m *view) (map[string]*Pause, error) {
	all, err := rows(m, "pauses", m.sql.Pauses, func(row pgx.CollectableRow, p *Pause) error {
		return row.Scan(&p.handler, at(&p.Since), at(&p.Until), &p.Actor, &p.Reason)
	})
	if err != nil {
		return nil, err
	}
	pauses := make(map[string]*Pause, len(all))
	for _, p := range all {
		pauses[p.handler] = &p
	}
	return pauses, nil
}

// String says who paused the handler, since when, until when, and why.
func (p *Pause) String() string {
	until := ""
	if !p.Until.IsZero() {
		until = " until " + p.Until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("paused by %s since %s%s: %s", p.Actor, p.Since.UTC().Format(time.RFC3339), until, p.Reason)
}
