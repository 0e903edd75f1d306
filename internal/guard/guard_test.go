package guard_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/postroom/postroom/internal/guard"
)

type odd struct {
	text   func() string
	unwrap func() error
}

func (o *odd) Error() string { return o.text() }
func (o *odd) Unwrap() error { return o.unwrap() }

func endless() error {
	o := &odd{text: func() string { return "endless" }}
	o.unwrap = func() error { return errors.Join(fs.ErrExist, o, o) }
	return o
}

// text is a value to panic with.
type text func() string

func (f text) String() string { return f() }

type number int

func TestCallTellsWhatAPanicSaid(t *testing.T) {
	tests := []struct {
		name  string
		value any
		want  string
	}{
		{"a text", "no", "no"},
		{"an error", errors.New("no"), "no"},
		{"a Stringer", text(func() string { return "no" }), "no"},
		{"a number", number(7), "7"},
		{"a struct, which may hold a payload", struct{ Card string }{"4711"}, "a value of type struct { Card string }"},
		{"nothing", nil, new(runtime.PanicNilError).Error()},
		{"a method that panics", text(func() string { panic("no") }), "a value of type guard_test.text, whose own method panicked when it was asked for its text"},
		{"no UTF-8", "a\xff\x00", "a\uFFFD\uFFFD"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := guard.Call(func() error { panic(tt.value) })
			var panicked *guard.PanicError
			if !errors.As(err, &panicked) || panicked.Text != tt.want || !strings.Contains(panicked.Frame, "guard_test.") || !strings.Contains(panicked.Stack, "guard_test") {
				t.Errorf("%+v, want the text %q, and a frame and a stack of this test", panicked, tt.want)
			}
		})
	}
}

func TestApart(t *testing.T) {
	wrong := errors.New("wrong")
	tests := []struct {
		name string
		f    func() (int, error)
		want int
		err  error
	}{
		{"it returns", func() (int, error) { return 7, nil }, 7, nil},
		{"it fails", func() (int, error) { return 7, wrong }, 7, wrong},
		{"it ends its goroutine", func() (int, error) { runtime.Goexit(); return 0, nil }, 0, guard.ErrGoexit},
		{"it does not return in time", func() (int, error) { time.Sleep(time.Minute); return 7, nil }, 0, guard.ErrTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got, err := guard.Apart(time.Second, tt.f); got != tt.want || !errors.Is(err, tt.err) {
					t.Errorf("%d, %v, want %d, %v", got, err, tt.want, tt.err)
				}
				time.Sleep(time.Hour) // so that goroutines that were left behind end
			})
		})
	}
}

func TestClean(t *testing.T) {
	tests := []struct{ name, s, want string }{
		{"short", "abc", "abc"},
		{"just as long", "abcde", "abcde"},
		{"longer", "abcdef", "abcde…"},
		{"cut within a character", "abcdß", "abcd…"},
		{"no UTF-8", "a\xffb", "a\uFFFDb"},
		{"NUL", "a\x00b", "a\uFFFDb"},
	}
	for _, tt := range tests {
		if got := guard.Clean(tt.s, 5); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\xffß\x00", 3)
	f.Fuzz(func(t *testing.T, s string, n int) {
		n = min(max(n, 0), 1000)
		if got := guard.Clean(s, n); !utf8.ValidString(got) || strings.Contains(got, "\x00") || len(got) > 3*n+3 {
			t.Errorf("%q of %q at %d", got, s, n)
		}
	})
}

// Tree, Is and As find the same errors as the standard library, and also end for an endless tree.
func TestTree(t *testing.T) {
	path := &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}
	trees := map[string]error{
		"one":    fs.ErrNotExist,
		"chain":  fmt.Errorf("a: %w", fmt.Errorf("b: %w", path)),
		"joined": errors.Join(errors.New("a"), fmt.Errorf("b: %w, %w", path, fs.ErrClosed)),
		"sealed": fmt.Errorf("c: %w", guard.Seal(path)),
		"none":   errors.New("a"),
	}
	for name, err := range trees {
		tree := guard.Tree(err)
		for _, target := range []error{fs.ErrNotExist, fs.ErrClosed, path} {
			if got, want := guard.Is(tree, target), errors.Is(err, target); got != want {
				t.Errorf("%s: Is(%v) = %v, want %v", name, target, got, want)
			}
		}
		var want *fs.PathError
		is := errors.As(err, &want)
		if got, ok := guard.As[*fs.PathError](tree); ok != is || got != want {
			t.Errorf("%s: As = %v, %v, want %v, %v", name, got, ok, want, is)
		}
	}
	if guard.Tree(nil) != nil || guard.Is(nil, fs.ErrExist) {
		t.Error("nil has a tree")
	}
	tree := guard.Tree(endless())
	if _, ok := guard.As[*fs.PathError](tree); len(tree) != 256 || !guard.Is(tree, fs.ErrExist) || ok {
		t.Errorf("an endless tree has %d errors", len(tree))
	}
}

func TestSeal(t *testing.T) {
	path := &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}
	sealed := guard.Seal(fmt.Errorf("a: %w", path))
	var found *fs.PathError
	if !errors.Is(sealed, fs.ErrNotExist) || errors.Is(sealed, fs.ErrExist) || !errors.As(sealed, &found) || found != path || sealed.Error() != "a: "+path.Error() {
		t.Errorf("%v: it is not the sealed error", sealed)
	}
	if guard.Seal(nil) != nil {
		t.Error("nil is sealed")
	}
	if err := guard.Seal(endless()); errors.Is(err, fs.ErrNotExist) || !errors.Is(err, fs.ErrExist) || errors.As(err, &found) {
		t.Errorf("%v: errors.Is finds an error that the endless error does not wrap", err)
	}
	panics := &odd{text: func() string { return "odd" }, unwrap: func() error { panic("no") }}
	if err := guard.Seal(panics); errors.Is(err, fs.ErrExist) || errors.As(err, &found) || err.Error() != "odd" {
		t.Errorf("%v: errors.Is finds an error in one that panics", err)
	}
	mute := &odd{text: func() string { panic("no") }}
	var panicked *guard.PanicError
	if err := guard.Seal(mute); !errors.As(err, &panicked) {
		t.Errorf("an error without a text is %v, want a panic", err)
	}
}

func TestLogger(t *testing.T) {
	var b strings.Builder
	log := guard.Logger(slog.New(slog.NewJSONHandler(&b, nil)))
	if guard.Logger(log) != log {
		t.Error("it is wrapped twice")
	}
	long := strings.Repeat("x", 1<<20)
	log.With("one", long).WithGroup("g").Error("m", "two", long, "three", errors.New(long), slog.Group("h", "four", long),
		"five", (*fs.PathError)(nil), "six", 6, "seven", errors.New("short"))
	if line := b.String(); len(line) > 64<<10 || strings.Count(line, "(1048576 bytes, cut)") != 4 ||
		!strings.Contains(line, `*fs.PathError, whose own method`) || !strings.Contains(line, `"six":6`) || !strings.Contains(line, `"seven":"short"`) {
		t.Errorf("%d bytes: %.200s … %.400s", len(line), line, line[max(len(line)-400, 0):])
	}
	slog.New(guard.Logger(slog.New(fails{})).Handler()).With("a", 1).WithGroup("g").Info("m") // this must not panic
}

// fails is a log handler whose methods panic.
type fails struct{}

func (fails) Enabled(context.Context, slog.Level) bool  { return true }
func (fails) Handle(context.Context, slog.Record) error { panic("Handle") }
func (fails) WithAttrs([]slog.Attr) slog.Handler        { panic("WithAttrs") }
func (fails) WithGroup(string) slog.Handler             { panic("WithGroup") }

func TestLeveler(t *testing.T) {
	if guard.Leveler(nil) != nil {
		t.Error("nil is wrapped")
	}
	if got := guard.Leveler(slog.LevelWarn).Level(); got != slog.LevelWarn {
		t.Errorf("Level = %v, want that of the leveler", got)
	}
	var unset *slog.LevelVar
	if got := guard.Leveler(unset).Level(); got >= slog.LevelDebug {
		t.Errorf("the level of a leveler that panics is %v", got)
	}
}
