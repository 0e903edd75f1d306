package inbox_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// hostile is an error whose methods do what the test says.
type hostile struct {
	text   func() string
	unwrap func() error
	is     func(error) bool
	as     func(any) bool
}

func (h *hostile) Error() string {
	if h.text == nil {
		return "hostile"
	}
	return h.text()
}

func (h *hostile) Unwrap() error {
	if h.unwrap == nil {
		return nil
	}
	return h.unwrap()
}

func (h *hostile) Is(target error) bool { return h.is != nil && h.is(target) }
func (h *hostile) As(target any) bool   { return h.as != nil && h.as(target) }

// typedNil is an error type that functions often return as a nil pointer.
type typedNil struct{ inner error }

func (e *typedNil) Error() string { return "typed nil" }
func (e *typedNil) Unwrap() error { return e.inner }

// wide contains itself more than once.
type wide struct{}

func (w wide) Error() string   { return "wide" }
func (w wide) Unwrap() []error { return []error{w, w, w} }

// loud is a value of a panic.
type loud struct{ text func() string }

func (l loud) String() string { return l.text() }

var long = sync.OnceValue(func() string { return "long " + strings.Repeat("x", 100<<20) })

// hostiles are values that a user's function may return or panic with, and the text that is
// kept of each.
var hostiles = []struct {
	name  string
	do    func() error
	class string
	text  string // a part of the text that is kept
}{
	{"a typed nil whose Unwrap dereferences it", func() error { return (*typedNil)(nil) }, "panic", "runtime error"},
	{"a typed nil within another", func() error { return fmt.Errorf("charge: %w", (*typedNil)(nil)) }, "panic", "runtime error"},
	{"a typed nil of the database's", func() error { return (*pgconn.PgError)(nil) }, "panic", "runtime error"},
	{"a typed nil of the database's within another", func() error {
		return &hostile{unwrap: func() error { return (*pgconn.PgError)(nil) }}
	}, "error", "hostile"},
	{"an Error that panics", func() error { return &hostile{text: func() string { panic("loud") }} }, "panic", "loud"},
	{"an Is that panics", func() error { return &hostile{is: func(error) bool { panic("loud") }} }, "panic", "loud"},
	{"an As that panics", func() error { return &hostile{as: func(any) bool { panic("loud") }} }, "panic", "loud"},
	{"an Unwrap that panics", func() error { return &hostile{unwrap: func() error { panic("loud") }} }, "panic", "loud"},
	{"an Error that ends the goroutine", func() error { return &hostile{text: func() string { runtime.Goexit(); return "" }} }, "panic", "Goexit"},
	{"an Is that ends the goroutine", func() error { return &hostile{is: func(error) bool { runtime.Goexit(); return false }} }, "panic", "Goexit"},
	{"an Error that never returns", func() error { return &hostile{text: func() string { devtest.Forever(); return "" }} }, "timeout", "abandoned"},
	{"an error that contains itself", func() error {
		h := &hostile{}
		h.unwrap = func() error { return h }
		return h
	}, "error", "hostile"},
	{"an error that contains itself three times", func() error { return wide{} }, "error", "wide"},
	{"an Unwrap that always finds another", func() error {
		var another func() error
		another = func() error { return &hostile{unwrap: another} }
		return another()
	}, "error", "hostile"},
	{"a hundred megabytes", func() error { return &hostile{text: long} }, "error", "long xxx"},
	{"no UTF-8, and NUL", func() error { return errors.New("a\xffb\x00c") }, "error", "a\uFFFDb\uFFFDc"},
	{"an SQLSTATE that is none", func() error { return &pgconn.PgError{Code: strings.Repeat("4", 1<<20) + "\x00"} }, "error", "444"},
	{"a panic with a hundred megabytes", func() error { panic(long()) }, "panic", "panic: long xxx"},
	{"a panic with an error that panics", func() error { panic(&hostile{text: func() string { panic("loud") }}) }, "panic", "own method panicked"},
	{"a panic with a typed nil", func() error { panic((*typedNil)(nil)) }, "panic", "panic: typed nil"},
	{"a panic with a String that panics", func() error { panic(loud{func() string { panic("loud") }}) }, "panic", "own method panicked"},
	{"a panic with a String that ends the goroutine", func() error { panic(loud{func() string { runtime.Goexit(); return "" }}) }, "panic", "Goexit"},
	{"a panic with a String that never returns", func() error { panic(loud{func() string { devtest.Forever(); return "" }}) }, "timeout", "abandoned"},
	{"a panic with a map that contains itself", func() error {
		m := map[string]any{}
		m["m"] = m
		panic(m)
	}, "panic", "map[string]interface"},
	{"permanent by its own word", func() error {
		return &hostile{is: func(target error) bool { return errors.Is(target, postroom.ErrPermanent) }}
	}, "permanent", "hostile"},
	{"permanent within one that contains itself", func() error {
		h := &hostile{}
		h.unwrap = func() error { return errors.Join(h, postroom.Permanent(errors.New("no"))) }
		return errors.Join(postroom.Permanent(h), h)
	}, "permanent", "hostile"},
	{"an SQLSTATE by its own word", func() error {
		return &hostile{as: func(target any) bool {
			pg, ok := target.(**pgconn.PgError)
			if ok {
				*pg = &pgconn.PgError{Code: "23505"}
			}
			return ok
		}}
	}, "23505", "hostile"},
}

// If a handler returns an error or panics, that is a failed attempt, whatever the methods of
// the error do. The process lives, other events are decided, and the stored text is bounded.
func TestErrorsWhoseMethodsFailAreFailedAttempts(t *testing.T) {
	t.Parallel()
	long() // takes its time
	doing := func(ev postroom.Event) func() error {
		for _, h := range hostiles {
			if h.name == ev.Key {
				return h.do
			}
		}
		return nil
	}
	transactional := func(batch int) func(*bench) {
		return func(b *bench) {
			sub := b.subscription("h")
			sub.Schedule, sub.Attempts, sub.Batch, sub.Workers, sub.Timeout = postroom.Backoff{time.Hour}, 8, batch, 2, time.Second
			b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				if do := doing(ev); do != nil {
					return do()
				}
				return effect("h").Handle(ctx, tx, ev)
			}))
		}
	}
	external := func(handle func(ctx context.Context, attempt *inbox.Attempt, do func() error) error) func(*bench) {
		return func(b *bench) {
			sub := b.subscription("h")
			sub.Schedule, sub.Attempts, sub.Timeout, sub.VendorWindow = postroom.Backoff{time.Hour}, 8, time.Second, time.Hour
			b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
				if do := doing(attempt.Event); do != nil {
					return handle(ctx, attempt, do)
				}
				attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return effect("h").Handle(ctx, tx, attempt.Event) })
				return nil
			})
		}
	}
	ways := []struct {
		name     string
		register func(*bench)
	}{
		{"a handler", transactional(1)},
		{"a handler of batches", transactional(10)},
		{"an external handler", external(func(_ context.Context, _ *inbox.Attempt, do func() error) error { return do() })},
		{"a step", external(func(ctx context.Context, attempt *inbox.Attempt, do func() error) error {
			_, err := inbox.Step(ctx, attempt, "charge", func(context.Context, string) ([]byte, error) { return nil, do() })
			return err
		})},
		{"a settlement", external(func(_ context.Context, attempt *inbox.Attempt, do func() error) error {
			attempt.OnSuccess(func(context.Context, pgx.Tx) error { return do() })
			return nil
		})},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			way.register(b)
			for i, tt := range hostiles {
				b.publish(fmt.Sprintf("good %d", i))
				b.publishEvent(postroom.Event{ID: fmt.Sprintf("bad %d", i), Source: "/shop", Type: b.stream + ".placed", ContentType: "application/json", Key: tt.name})
			}
			stop := b.run()
			devtest.Eventually(t, time.Minute, "all to be decided", func() bool {
				return len(b.effects("h")) == len(hostiles) && b.failures("bad %") == len(hostiles)
			})
			stop()
			for _, tt := range hostiles {
				var class, text string
				err := b.pool.QueryRow(t.Context(), "SELECT class, failures->0->>'text' FROM postroom.held WHERE key = $1", tt.name).Scan(&class, &text)
				if err != nil || class != tt.class || !strings.Contains(text, tt.text) || len(text) > 2300 {
					t.Errorf("%s: class %q, text of %d bytes %.300q, %v; want class %q and %q", tt.name, class, len(text), text, err, tt.class, tt.text)
				}
			}
		})
	}
}

// failures returns how many failures are kept of events whose id is like a pattern.
func (b *bench) failures(event string) (n int) {
	b.Helper()
	err := b.pool.QueryRow(b.Context(), "SELECT coalesce(sum(jsonb_array_length(failures)), 0) FROM postroom.held WHERE event_id LIKE $1", event).Scan(&n)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// A dry run reports the same failure of a handler as a run does.
func TestDryRunSurvivesErrorsWhoseMethodsFail(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.Attempts = 1
	b.in.Handle(sub, postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error { return (*typedNil)(nil) }))
	b.publish("bad")
	b.run()
	b.eventually("it to be dead", func() bool { return b.held("h")["/shop bad"].State == "dead" })
	b.exec("INSERT INTO postroom.dry_run (handler, held) SELECT handler, id FROM postroom.held")
	b.eventually("the dry run to fail", func() bool {
		var class *string
		err := b.pool.QueryRow(t.Context(), "SELECT outcome->>'class' FROM postroom.dry_run").Scan(&class)
		return err == nil && class != nil && *class == "panic"
	})
}

// If DedupeKey fails, the event is dead, and the inbox goes on.
func TestDedupeKeyThatFails(t *testing.T) {
	t.Parallel()
	long() // takes its time
	tests := []struct {
		name string
		key  func() string
		text string
	}{
		{"it panics", func() string { panic("no") }, "panic: no"},
		{"it panics at length", func() string { panic(long()) }, "xxx"},
		{"it panics with a value that panics", func() string { panic(loud{func() string { panic("no") }}) }, "own method"},
		{"it ends its goroutine", func() string { runtime.Goexit(); return "" }, "Goexit"},
		{"it does not return", func() string { devtest.Forever(); return "" }, "in time"},
		{"it returns nothing", func() string { return "" }, "empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sub := b.subscription("h")
			sub.Timeout = 2 * time.Second
			sub.DedupeKey = func(ev postroom.Event) string {
				if ev.ID == "bad" {
					return tt.key()
				}
				return ev.ID
			}
			b.in.Handle(sub, effect("h"))
			b.publish("good 1", "bad", "good 2")
			b.run()
			b.eventually("all to be decided", func() bool { return len(b.effects("h")) == 2 && b.failures("bad") == 1 })
			var class, text string
			err := b.pool.QueryRow(t.Context(), "SELECT class, failures->0->>'text' FROM postroom.held WHERE dead_at IS NOT NULL").Scan(&class, &text)
			if err != nil || class != "dedupe_key" || !strings.Contains(text, tt.text) || len(text) > 2300 {
				t.Errorf("class %q, text of %d bytes %.200q, %v; want dedupe_key and %q", class, len(text), text, err, tt.text)
			}
			if _, err := b.in.Accept(t.Context(), "h", postroom.Event{ID: "bad", Source: "/shop", Type: b.stream + ".placed"}); err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("Accept = %v, want an error with %q", err, tt.text)
			}
		})
	}
}

// A statement with a NUL in its text fails the same way each time. So that is a failed
// attempt, not contention after which the event runs again at once.
func TestStatementWithNUL(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, class string
		exec        func(ctx context.Context, tx pgx.Tx) error
	}{
		{"in the text", "08P01", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 'a\x00b'")
			return err
		}},
		{"in the text, by the simple protocol", "08P01", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 'a\x00b'", pgx.QueryExecModeSimpleProtocol)
			return err
		}},
		{"in a parameter", "22021", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT $1::text", "a\x00b")
			return err
		}},
		{"what the client cannot encode", "error", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT $1::int", struct{ A int }{})
			return err
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sub := b.subscription("h")
			sub.Schedule, sub.Attempts = postroom.Backoff{time.Hour}, 8
			var mu sync.Mutex
			runs := 0
			b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
				mu.Lock()
				runs++
				mu.Unlock()
				return tt.exec(ctx, tx)
			}))
			b.publish("bad")
			stop := b.run()
			b.eventually("it to fail", func() bool { return b.failures("bad") == 1 })
			stop()
			want := heldEntry{Key: "/shop bad", State: "due", Attempts: 1, Class: tt.class, Failures: 1}
			if got := b.held("h")["/shop bad"]; got != want || runs != 1 {
				t.Errorf("held %+v after %d runs, want %+v after one", got, runs, want)
			}
		})
	}
}

// The methods of a COPY's rows, and of the values in them, run in another goroutine than the handler.
func TestPanicInRowsOfACopyIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	rows := func(row func() []any) func(ctx context.Context, tx pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"handler", "event"},
				pgx.CopyFromSlice(2, func(int) ([]any, error) { return row(), nil }))
			return err
		}
	}
	for name, copyBad := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"a row":    rows(func() []any { panic("no such row") }),
		"a value":  rows(func() []any { return []any{"h", angryValue{}} }),
		"its text": rows(func() []any { return []any{"h", angryText{}} }),
		"a row of a savepoint": func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return rows(func() []any { panic("no such row") })(ctx, tx) })
		},
		"a value of a savepoint": func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				return rows(func() []any { return []any{"h", angryValue{}} })(ctx, tx)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sub := b.subscription("h")
			sub.Schedule, sub.Attempts = postroom.Backoff{time.Hour}, 8
			b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error { return copyBad(ctx, tx) }))
			b.publish("bad")
			b.run()
			b.eventually("it to fail", func() bool { return b.failures("bad") == 1 })
			if got := b.held("h")["/shop bad"]; got.Class != "panic" {
				t.Errorf("held %+v, want class panic", got)
			}
		})
	}
}

// angryValue and angryText are parameters that panic when pgx asks for their values.
type (
	angryValue struct{}
	angryText  struct{}
)

func (angryValue) Value() (driver.Value, error)   { panic("no value") }
func (angryText) TextValue() (pgtype.Text, error) { panic("no text") }

// A message of another program that has no body and the header of a broker's status is an event
// like any other. It delays no other message, even if a reader begins directly after it.
func TestAMessageWithTheHeaderOfAStatus(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(sub *inbox.Subscription){
		"plain":   func(*inbox.Subscription) {},
		"ordered": func(sub *inbox.Subscription) { sub.Order = inbox.HoldKey },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			stream, err := b.js.Stream(t.Context(), b.stream)
			if err != nil {
				t.Fatal(err)
			}
			direct := stream.CachedInfo().Config
			direct.AllowDirect = true
			if _, err := b.js.UpdateStream(t.Context(), direct); err != nil {
				t.Fatal(err)
			}
			sub := b.subscription("h")
			change(&sub)
			b.in.Handle(sub, effect("h"))
			stop := b.run()
			odd := []string{"404", "409", "100", "shipped"}
			for i, status := range odd {
				b.publish(fmt.Sprint("e", i))
				b.publishRaw(&nats.Msg{Subject: b.stream + ".placed", Header: nats.Header{"Status": {status}}})
			}
			b.eventually("all effects", func() bool { return len(b.effects("h")) == 2*len(odd) })
			b.drained()
			stop()
			b.in = inbox.New(b.pool, b.nc, b.config())
			b.in.Handle(sub, effect("h"))
			b.run()
			b.publish("last")
			b.eventually("the events behind it", func() bool { return b.effects("h")["last"] == 1 })
			for id, n := range b.effects("h") {
				if n != 1 {
					t.Errorf("%s took effect %d times", id, n)
				}
			}
		})
	}
}

// longest is a slog.Handler that keeps the longest line, and that may panic.
type longest struct {
	mu     sync.Mutex
	bytes  int
	count  int
	panics bool
}

func (l *longest) Enabled(context.Context, slog.Level) bool { return true }
func (l *longest) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *longest) WithGroup(string) slog.Handler            { return l }

func (l *longest) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := len(r.Message)
	r.Attrs(func(a slog.Attr) bool { size += len(a.Key) + len(a.Value.String()); return true })
	l.bytes, l.count = max(l.bytes, size), l.count+1
	if l.panics {
		panic("the log is full")
	}
	return nil
}

// The log's text of a failure is bounded. If the logger panics, nothing else fails.
func TestWhatIsLoggedIsBounded(t *testing.T) {
	t.Parallel()
	for _, panics := range []bool{false, true} {
		t.Run(fmt.Sprintf("a logger that panics: %v", panics), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			log := &longest{panics: panics}
			cfg := b.config()
			cfg.Logger = slog.New(log)
			b.in = inbox.New(b.pool, b.nc, cfg)
			sub := b.subscription("h")
			sub.Schedule, sub.Attempts = postroom.Backoff{time.Hour}, 8
			b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				if ev.ID == "bad" {
					panic(strings.Repeat("x", 42<<20))
				}
				return effect("h").Handle(ctx, tx, ev)
			}))
			b.publish("bad", "good")
			stop := b.run()
			b.eventually("all to be decided", func() bool { return len(b.effects("h")) == 1 && b.failures("bad") == 1 })
			stop()
			log.mu.Lock()
			defer log.mu.Unlock()
			if log.count == 0 || log.bytes > 16<<10 {
				t.Errorf("%d lines, the longest of %d bytes, want some, and at most 16 KiB", log.count, log.bytes)
			}
		})
	}
}
