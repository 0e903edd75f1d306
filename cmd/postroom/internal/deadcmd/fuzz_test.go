package deadcmd

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/cmd/postroom/internal/exit"
)

// FuzzFilter checks that arguments which select some events never become a filter that selects all
// events, and that arguments which cannot be parsed are a usage error.
func FuzzFilter(f *testing.F) {
	f.Add("--handler\nbilling.charge\n--since\n90m", "7")
	f.Add("--all", "")
	f.Add("--all\n--type=order.placed", "")
	f.Add("--since\n2026-01-31\n--until\nnow", "07")
	f.Add("--cause=\n--text", "-1")
	f.Fuzz(func(t *testing.T, flags, id string) {
		var w filterFlags
		cmd := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
		w.addFlags(cmd)
		w.addAll(cmd, "all dead events")
		if cmd.ParseFlags(strings.Split(flags, "\n")) != nil {
			return
		}
		var ids []string
		if id != "" {
			ids = append(ids, id)
		}
		filter, err := w.required(ids)
		switch {
		case err != nil:
			wantUsage(t, flags, err)
		case filter.IsZero(), filter.All != w.all:
			t.Errorf("%q and %q mean %+v, with --all %t", flags, id, filter, w.all)
		case len(filter.IDs) != len(ids):
			t.Errorf("%q and %q mean %+v", flags, id, filter)
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
