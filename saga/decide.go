package saga

import (
	"encoding/json"
	"fmt"
)

// decisionData is the data of an event of type decision.
type decisionData struct {
	Saga     string          `json:"saga"`
	Key      string          `json:"key"`
	Step     string          `json:"step"`
	Revision int64           `json:"revision"`
	Action   Choice          `json:"action"`
	Type     string          `json:"type,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
}

// Choice is a choice of an operator who decides about an instance.
type Choice string

const (
	// Retry sends the pending command again, with a new id and the same [StepKey]. It is for a
	// command that an operator has discarded at the participant.
	Retry Choice = "retry"

	// Skip continues as if the pending step were done, or undone. The state does not change.
	Skip Choice = "skip"

	// MarkDone continues like Skip, and applies the data that the operator gives for the reply.
	MarkDone Choice = "done"

	// Compensate begins to undo the instance, beginning with the pending step.
	Compensate Choice = "compensate"
)

// decide handles an operator's decision, or returns an error that says why it cannot.
func (t *turn[S]) decide(d decisionData) (outcome, error) {
	//guard:a-decision-has-its-revision 2 false
	if t.inst.state.Ended() || d.Revision != t.inst.revision {
		t.touched = true
		t.inst.note = fmt.Sprintf("a decision to %s was made for revision %d, but the instance has changed since then", d.Action, d.Revision)
		return stale, nil
	}
	i := t.plan.find(t.inst.step)
	s, dir := &t.plan.steps[i], t.direction()
	t.change()
	switch d.Action {
	case Retry:
		if err := t.again(s, dir); err != nil {
			return "", err
		}
	case Compensate:
		if dir == toUndo {
			return "", fmt.Errorf("%w: it is already being undone", errLasting)
		}
		t.compensate()
		return counts, nil
	case Skip:
		t.record(s.Name, dir, string(Skip), "", t.cause)
		t.leave(i, dir)
	case MarkDone:
		if err := t.mark(s, dir, d); err != nil {
			return "", err
		}
		t.leave(i, dir)
	default:
		return "", fmt.Errorf("%w: there is no action %q", errLasting, d.Action)
	}
	t.arm()
	return counts, nil
}

// compensate begins to undo the instance, from the pending step on. If no event led to this turn,
// the pending command is the cause of the events that follow.
func (t *turn[S]) compensate() {
	i := t.plan.find(t.inst.step)
	t.change()
	t.record(t.inst.step, toDo, string(Compensate), "", t.cause)
	if t.cause == "" && t.plan.steps[i].Do.eventType != "" {
		t.cause = commandID(t.stepKey(t.inst.step), toDo, t.inst.run)
	}
	t.backward(i)
	t.arm()
}

// again sends the pending command once more.
func (t *turn[S]) again(s *Step[S], d direction) error {
	if d == toDo && s.Do.eventType == "" || d == toUndo && s.Undo.eventType == "" {
		return fmt.Errorf("%w: step %s sends no command", errLasting, s.Name)
	}
	t.record(s.Name, d, string(Retry), "", t.cause)
	t.inst.run++
	t.send(s, d)
	if d == toDo {
		t.limit(s.Within)
	} else {
		t.limit(0)
	}
	return nil
}

// mark applies the reply that an operator gives for the pending step. Without data, the state does
// not change, because only the data of a reply says how the state changes.
func (t *turn[S]) mark(s *Step[S], d direction, given decisionData) error {
	reply := s.Done
	if d == toUndo {
		reply = s.Undone
	}
	if !reply.isSet() {
		return fmt.Errorf("%w: step %s does not wait for a reply", errLasting, s.Name)
	}
	found := &reply.answers[0]
	if given.Type != "" {
		found = reply.find(given.Type, false)
	}
	if found == nil {
		return fmt.Errorf("%w: %s is not a reply that ends step %s", errLasting, given.Type, s.Name)
	}
	//guard:done-without-data-changes-no-state true
	if len(given.Data) > 0 {
		if err := found.apply(&t.inst.data, given.Data); err != nil {
			return fmt.Errorf("%w: step %s: %s: %w", errLasting, s.Name, found.eventType, err)
		}
	}
	t.record(s.Name, d, wasMarkedDone, found.eventType, t.cause)
	return nil
}
