package identity_test

import (
	"strings"
	"testing"

	"github.com/postroom/postroom/internal/identity"
)

// FuzzConsumer checks that a durable name is one token, and that other handlers and instances have
// other names.
func FuzzConsumer(f *testing.F) {
	f.Add("0190", "billing.charge", "0190", "billing-charge")
	f.Add("a", "b", "b", "a")
	f.Add("", ".", ".", "")
	f.Fuzz(func(t *testing.T, instance, handler, otherInstance, otherHandler string) {
		one, other := identity.Consumer(instance, handler), identity.Consumer(otherInstance, otherHandler)
		if strings.Contains(one, ".") || len(one) != len(handler)+9 {
			t.Errorf("Consumer(%q, %q) = %q", instance, handler, one)
		}
		if again := identity.Consumer(instance, handler); again != one {
			t.Errorf("Consumer(%q, %q) = %q, then %q", instance, handler, one, again)
		}
		// Real names have no NUL, so the two parts cannot be confused. Names with a NUL are not
		// checked.
		same := instance == otherInstance && handler == otherHandler
		if !same && one == other && !strings.Contains(instance+handler+otherInstance+otherHandler, "\x00") {
			t.Errorf("%q of %q and %q of %q are both %q", handler, instance, otherHandler, otherInstance, one)
		}
	})
}
