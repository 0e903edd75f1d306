package guard

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync/atomic"
)

// maxLogged is the largest number of bytes of one value that Logger logs. It is a little more than
// MaxStack, so that Logger does not cut the stack of a panic.
const maxLogged = MaxStack + 64

// Logger returns a logger for the messages of this module. It passes the messages to the user's
// handler in l, and cuts long values, such as texts of other programs. If the handler panics, only
// that message is lost. Logger reports the first panic on standard error.
func Logger(l *slog.Logger) *slog.Logger {
	if _, wrapped := l.Handler().(*handler); wrapped {
		return l
	}
	return slog.New(&handler{to: l.Handler(), told: new(atomic.Bool)})
}

// Leveler returns a leveler that asks l, or nil for nil. If l panics, for instance because it is a nil
// pointer, the level is so low that nothing is logged at it. Leveler reports the first panic on
// standard error.
func Leveler(l slog.Leveler) slog.Leveler {
	if l == nil {
		return nil
	}
	return &leveler{of: l}
}

// leveler is the slog.Leveler of Leveler.
type leveler struct {
	of   slog.Leveler
	told atomic.Bool
}

func (l *leveler) Level() (level slog.Level) {
	//guard:a-leveler-that-panics-ends-no-process = func() error { level = l.of.Level(); return nil }()
	err := Call(func() error { level = l.of.Level(); return nil })
	if err == nil {
		return level
	}
	if !l.told.Swap(true) {
		fmt.Fprintf(os.Stderr, "postroom: the configured slog.Leveler does not work, log lines are lost: %v\n", err)
	}
	return math.MinInt
}

// handler is the slog.Handler of Logger.
type handler struct {
	to   slog.Handler
	told *atomic.Bool // the panic of the user's handler was reported already
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	h.guard(func() error { enabled = h.to.Enabled(ctx, level); return nil })
	return enabled
}

func (h *handler) Handle(ctx context.Context, r slog.Record) (err error) {
	bounded := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		bounded.AddAttrs(bound(a))
		return true
	})
	h.guard(func() error { err = h.to.Handle(ctx, bounded); return nil })
	return err
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	bounded := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		bounded[i] = bound(a)
	}
	next := *h
	h.guard(func() error { next.to = h.to.WithAttrs(bounded); return nil })
	return &next
}

func (h *handler) WithGroup(name string) slog.Handler {
	next := *h
	h.guard(func() error { next.to = h.to.WithGroup(name); return nil })
	return &next
}

// guard calls the user's handler.
func (h *handler) guard(f func() error) {
	if err := Call(f); err != nil && !h.told.Swap(true) {
		fmt.Fprintf(os.Stderr, "postroom: the handler of the configured logger does not work, log lines are lost: %v\n", err)
	}
}

// bound cuts the value of an attribute to at most maxLogged bytes.
func bound(a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if text := a.Value.String(); len(text) > maxLogged {
			a.Value = slog.StringValue(cut(text))
		}
	case slog.KindAny:
		err, ok := a.Value.Any().(error)
		if !ok {
			return a
		}
		var text string
		if failed := Call(func() error { text = err.Error(); return nil }); failed != nil {
			a.Value = slog.StringValue(fmt.Sprintf("an error of type %T, whose own method does not work: %v", err, failed))
		} else if len(text) > maxLogged {
			a.Value = slog.StringValue(cut(text))
		}
	case slog.KindGroup:
		group := a.Value.Group()
		bounded := make([]slog.Attr, len(group))
		for i, member := range group {
			bounded[i] = bound(member)
		}
		a.Value = slog.GroupValue(bounded...)
	default: // all other kinds have a fixed size, and this module logs no slog.LogValuer of a user
	}
	return a
}

// cut cuts a text, and adds a note with the length that the text had before.
func cut(text string) string {
	return fmt.Sprintf("%s (%d bytes, cut)", Clean(text, maxLogged), len(text))
}
