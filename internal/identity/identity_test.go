package identity_test

import (
	"testing"

	"github.com/postroom/postroom/internal/identity"
)

// The names must never change: with another name, every handler would get a new consumer and begin
// from the start.
func TestNameStaysAsItIs(t *testing.T) {
	const instance = "0f9a3a52-6a0c-4b0e-9f4e-3f0f6c1f7a11"
	if got, want := identity.Consumer(instance, "billing.charge"), "billing-charge-f84e99ae"; got != want {
		t.Errorf("Consumer = %q, want %q", got, want)
	}
	if identity.Consumer(instance, "a.b") == identity.Consumer(instance, "a-b") {
		t.Error("two handlers have one name")
	}
	if identity.Consumer(instance, "a") == identity.Consumer("", "a") {
		t.Error("two instances have one name")
	}
}

// Two pairs of source and id have two keys, even if a source has spaces, or what stands for spaces.
func TestDedupeKeysAreDifferent(t *testing.T) {
	pairs := map[string][2]string{}
	for _, pair := range [][2]string{{"/a b", "c"}, {"/a", "b c"}, {"/a%20b", "c"}, {"/a%2520b", "c"}, {"/a%20b%25", "c"}, {"/a b%", "c"}} {
		key := identity.DedupeKey(pair[0], pair[1])
		if other, taken := pairs[key]; taken {
			t.Errorf("%q and %q have the key %q", pair, other, key)
		}
		pairs[key] = pair
	}
	if got := identity.DedupeKey("/shop", "1 2%"); got != "/shop 1 2%" {
		t.Errorf("an ordinary source has the key %q", got)
	}
}
