package repeat_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom/internal/repeat"
)

func TestWarn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		var lines repeat.Lines
		count := func(want int, what string) {
			t.Helper()
			if got := strings.Count(out.String(), "\n"); got != want {
				t.Errorf("%d lines after %s, want %d:\n%s", got, what, want, out.String())
			}
		}
		warn := func(err error, args ...any) { lines.Warn(context.Background(), log, "away", err, args...) }

		for i := range 60 { // half a minute, twice a second
			warn(fmt.Errorf("dial tcp 127.0.0.1:%d: refused", 40_000+i), "failures", i)
			time.Sleep(500 * time.Millisecond)
		}
		count(1, "half a minute")
		warn(errors.New("dial tcp 127.0.0.1:7: refused"), "failures", 61)
		count(2, "more than that")
		if want := "failures=61 left_out=59"; !strings.Contains(out.String(), want) {
			t.Errorf("%s\nwant %q in it", out.String(), want)
		}
		warn(errors.New("permission denied (SQLSTATE 42501)"))
		count(3, "another cause")
		warn(errors.New("permission denied (SQLSTATE 42P01)"))
		count(4, "a cause that differs in its SQLSTATE")
		lines.Warn(context.Background(), log, "far away", errors.New("permission denied (SQLSTATE 42501)"))
		count(5, "another text")
		lines.Warn(context.Background(), log.With("handler", "a"), "away", errors.New("permission denied (SQLSTATE 42501)"))
		count(6, "another who says it")
		for i := range 1000 {
			warn(errors.New(strings.Repeat("x", i+1)))
		}
		count(1006, "as many causes")
		warn(errors.New("7 refused"))
		warn(errors.New("8 refused"))
		count(1007, "causes that begin with a number")
	})
}
