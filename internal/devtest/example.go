package devtest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
)

// Servers are what a runnable example works with.
type Servers struct {
	Pool *pgxpool.Pool // on a migrated database of the example's own
	NATS *nats.Conn    // to a server of the example's own, with JetStream

	*example
}

// ForExample returns servers for a runnable example, which closes them at its end. The options
// are those of the connection to NATS. [Main]
// leaves examples out if there are no servers. If one does not start, the process ends.
func ForExample(options ...nats.Option) *Servers {
	e := &example{}
	s := &Servers{Pool: Pool(e), example: e}
	nc, err := nats.Connect(OwnNATS(e).URL(), options...)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(nc.Close)
	s.NATS = nc
	return s
}

// Exec executes statements, such as those that make the example's own tables.
func (s *Servers) Exec(ctx context.Context, sql string) {
	if _, err := s.Pool.Exec(ctx, sql); err != nil {
		s.Fatal(err)
	}
}

// example is a testing.TB outside a test. It has the methods that devtest calls.
type example struct {
	testing.TB

	cleanups []func()
}

func (*example) Helper()                  {}
func (*example) Name() string             { return "Example" }
func (*example) Context() context.Context { return context.Background() }
func (e *example) Cleanup(f func())       { e.cleanups = append(e.cleanups, f) }

// Close ends what was started for the example.
func (e *example) Close() {
	for _, f := range slices.Backward(e.cleanups) {
		f()
	}
	e.cleanups = nil
}

// Error prints to the example's output, which is then not the one that is expected.
func (*example) Error(args ...any)                 { fmt.Println(args...) }
func (*example) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (e *example) Fatalf(format string, args ...any) { e.Fatal(fmt.Sprintf(format, args...)) }

func (e *example) Skipf(format string, args ...any) { e.Fatal(fmt.Sprintf(format, args...)) }

// Fatal ends the process: the goroutine of an example cannot be ended alone.
func (e *example) Fatal(args ...any) {
	e.Close()
	fmt.Fprintln(os.Stderr, "devtest: example:", fmt.Sprint(args...))
	os.Exit(1)
}
