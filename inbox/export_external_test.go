package inbox

import (
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/steps"
)

// StepKey returns the key that a vendor is given for a step of an event in a revision.
func StepKey(instance, name, dedupeKey, step string, revision int32) string {
	return steps.Key(instance, &delivery.HeldEvent{Handler: name, Task: delivery.Task{Key: dedupeKey}, Revision: revision}, step)
}
