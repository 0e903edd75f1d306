package inbox

import (
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

// StepKey returns the key that a vendor is given for a step of an event in a revision.
func StepKey(instance, name, dedupeKey, step string, revision int32) string {
	return stepKey(instance, &claim{c: &loop{handler: &handler{sub: Subscription{Name: name}}}, Held: ledger.Held{Task: delivery.Task{Key: dedupeKey}, Revision: revision}}, step)
}
