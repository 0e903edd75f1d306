package ledger

import (
	"context"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
)

// A server that replaced another one is asked for a transaction whose id it has not reached.
func TestATransactionThatIsNotThere(t *testing.T) {
	t.Parallel()
	db := New(devtest.Pool(t), "postroom", func(context.Context, error) {})
	if committed, err := db.WasCommitted(t.Context(), "4000000000"); committed || err != nil {
		t.Errorf("WasCommitted = %t, %v, want false", committed, err)
	}
}
