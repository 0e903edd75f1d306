package inbox

import (
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/dispatch"
)

// Order says whether the events of a key take effect in their order, and what becomes
// of a key whose event is dead.
type Order int

const (
	// Unordered events are handled as they come, those of a key side by side.
	Unordered Order = iota

	// HoldKey handles the events of a key one after the other, in the order of the
	// stream. While one is tried again, later ones of its key wait in held, and they
	// go on waiting when it is dead, until an operator decides. Events of other keys,
	// and those without one, wait for nothing.
	HoldKey

	// SkipKey is as HoldKey, but later events of a key go on when one is dead.
	SkipKey
)

// keys are those of an ordered handler of which something is held. An event without a key
// waits for none.
type keys struct{ dispatch.Keys }

// isHeld reports whether something of a key is held, as far as is known.
func (k *keys) isHeld(key string) bool {
	is, _ := k.Has(key)
	return is && key != ""
}

// version returns what is known of a key, as Keys.Version has it.
func (k *keys) version(key string) uint64 {
	if key == "" {
		return 0
	}
	return k.Version(key)
}

// free notes that an event took the straight path: nothing of its key was held, as
// far as that was known before it was handled. This process may have begun another term
// since, and have learned then what others held meanwhile.
func (k *keys) free(key string, known uint64) {
	if key != "" {
		k.Free(key, known)
	}
}

// doubt notes that another process decided an event of a key, and may have held it.
func (k *keys) doubt(key string) {
	if key != "" {
		k.Doubt(key)
	}
}

// held notes that an event of a key was held.
func (k *keys) held(key string, h delivery.Holding) {
	if key == "" {
		return
	}
	var again time.Time
	if h.After != nil && !h.Behind {
		again = time.Now().Add(*h.After)
	}
	k.Hold(key, again)
}
