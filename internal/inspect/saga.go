package inspect

import (
	"slices"
	"time"

	"github.com/postroom/postroom/internal/sagas"
)

// SagaStep names a step of a saga, and the role that an event has in it.
type SagaStep struct {
	Saga      string `json:"saga"`
	Key       string `json:"key"` // key of the instance
	Step      string `json:"step"`
	Direction string `json:"direction"` // do or undo

	// Kind is command, deadline, decision or reply. A reply is any other event that the command
	// caused, even if the saga has not counted this event as the reply.
	Kind string `json:"kind"`

	// Outcome is what the saga recorded: done, failed, undone or deadline, or the operator's
	// decision. It is empty if the saga has recorded nothing.
	Outcome string    `json:"outcome,omitempty"`
	At      time.Time `json:"at,omitzero"` // when the command was written, or when the saga recorded the outcome
}

// readSagas reads the steps of sagas in which the event has a role.
func (m *view) readSagas(j *EventTrace) error {
	var types, causes []string
	for _, l := range j.LogEntries {
		types, causes = append(types, l.Type), append(causes, l.CausationID)
	}
	for _, h := range slices.Concat(j.Held, j.Discarded) {
		types, causes = append(types, h.Type), append(causes, h.CausationID)
	}
	for _, s := range j.Streams {
		types, causes = append(types, s.Subject), append(causes, s.CausationID)
	}
	all, err := sagas.StepsOf(m.ctx, m.tx, m.schema, j.EventID, types, causes)
	for _, s := range all {
		j.Sagas = append(j.Sagas, SagaStep(s))
	}
	return err
}

// String describes the role that the event has in the step.
func (s SagaStep) String() string { return sagas.Step(s).String() }
