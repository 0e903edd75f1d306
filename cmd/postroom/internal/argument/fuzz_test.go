package argument

import (
	"errors"
	"testing"
	"time"

	"github.com/postroom/postroom/cmd/postroom/internal/exit"
)

// FuzzTime checks that each text is parsed as a time or a duration, or refused as a usage error.
func FuzzTime(f *testing.F) {
	for _, seed := range []string{"", "90m", "-90m", "1e3s", "2562047h47m16.854775807s", "2026-01-31", "2026-01-31 03:00", "2026-01-31T03:00", "2026-01-31T03:00:00Z", "9999-12-31T23:59:59-23:59", "yesterday"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		before := time.Now()
		at, err := Time("since", text)
		if err != nil {
			wantUsage(t, text, err)
			return
		}
		ago, failed := time.ParseDuration(text)
		switch {
		case text == "" && !at.IsZero():
			t.Errorf("nothing is %s", at)
		case text != "" && failed == nil && (ago < 0 || at.After(time.Now().Add(-ago)) || at.Before(before.Add(-ago))):
			t.Errorf("%q is %s", text, at)
		}
	})
}

// wantUsage checks that an error is a usage error: the exit status is 2 and the text says what to
// do.
func wantUsage(t *testing.T, given string, err error) {
	t.Helper()
	var usage *exit.UsageError
	if !errors.As(err, &usage) {
		t.Errorf("%q: %v is no fault of usage", given, err)
	}
}
