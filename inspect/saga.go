package inspect

import (
	"slices"
	"time"

	"github.com/postroom/postroom/internal/sagas"
)

// SagaStep says that an event is a command of a step of a saga, or a reply to one.
type SagaStep struct {
	Saga      string    `json:"saga"`
	Key       string    `json:"key"` // of the instance
	Step      string    `json:"step"`
	Direction string    `json:"direction"`         // do or undo
	Command   bool      `json:"command"`           // false: a reply
	Outcome   string    `json:"outcome,omitempty"` // of a reply that counted: done, failed or undone
	At        time.Time `json:"at,omitzero"`       // when the command was written, or the reply counted
}

// readSagas reads the steps of sagas to which the event belongs.
func (m *view) readSagas(j *EventTrace) error {
	var causes []string
	for _, l := range j.LogEntries {
		causes = append(causes, l.CausationID)
	}
	for _, h := range slices.Concat(j.Held, j.Discarded) {
		causes = append(causes, h.CausationID)
	}
	for _, s := range j.Streams {
		causes = append(causes, s.CausationID)
	}
	all, err := sagas.StepsOf(m.ctx, m.tx, m.schema, j.EventID, causes)
	for _, s := range all {
		j.Sagas = append(j.Sagas, SagaStep(s))
	}
	return err
}

// String says what the event is to the step.
func (s SagaStep) String() string { return sagas.Step(s).String() }
