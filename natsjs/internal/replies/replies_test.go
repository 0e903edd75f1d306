package replies_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/natsjs/internal/replies"
)

// Only an error about a publication denies a subject. If the same connection may not subscribe to
// the subject, its events can still be published.
func TestDeniedSubject(t *testing.T) {
	t.Parallel()
	violation := func(text string) error { return fmt.Errorf("%w: %s", nats.ErrPermissionViolation, text) }
	for _, tt := range []struct {
		name    string
		err     error
		subject string
		denied  bool
	}{
		{"a publication", violation(`Permissions Violation for Publish to "order.placed"`), "order.placed", true},
		{"a subscription", violation(`Permissions Violation for Subscription to "order.placed"`), "", false},
		{"a subscription of a queue", violation(`Permissions Violation for Subscription to "order.placed" using queue "q"`), "", false},
		{"another error", errors.New(`Permissions Violation for Publish to "order.placed"`), "", false},
		{"no error", nil, "", false},
	} {
		if subject, denied := replies.DeniedSubject(tt.err); subject != tt.subject || denied != tt.denied {
			t.Errorf("%s: DeniedSubject = %q, %t; want %q, %t", tt.name, subject, denied, tt.subject, tt.denied)
		}
	}
}
