package inspectcmd

import (
	"errors"
	"strings"
	"testing"

	"github.com/postroom/postroom/cmd/postroom/internal/exit"
)

// FuzzKeyPlace checks that --after of the command keys is a handler and a key.
func FuzzKeyPlace(f *testing.F) {
	f.Add("ledger.move/account-7")
	f.Add("ledger.move")
	f.Add("/a/b/")
	f.Fuzz(func(t *testing.T, text string) {
		w := keyFlags{after: text}
		w.filter.Limit = 1
		if err := w.read(); err != nil {
			wantUsage(t, text, err)
			return
		}
		if at := w.filter.After; (at == nil) != (text == "") || at != nil && (at.Handler+"/"+at.Key != text || strings.Contains(at.Handler, "/")) {
			t.Errorf("%q is %+v", text, at)
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
