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
