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

// Servers are the servers of a runnable example.
type Servers struct {
	Pool *pgxpool.Pool // for a migrated database that only this example uses
	NATS *nats.Conn    // to a server with JetStream that only this example uses

	*example
}

// ForExample returns servers for a runnable example. The example must call Close at its end. The
// options are for the connection to NATS. If there are no servers, [Main] leaves out the examples.
// If a server nevertheless does not start, ForExample ends the process.
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

// Exec executes statements, for instance to create the example's tables.
func (s *Servers) Exec(ctx context.Context, sql string) {
	if _, err := s.Pool.Exec(ctx, sql); err != nil {
		s.Fatal(err)
	}
}

// example is a testing.TB that is not in a test. It has the methods that devtest calls.
type example struct {
	testing.TB

	cleanups []func()
}

func (*example) Helper()                  {}
func (*example) Name() string             { return "Example" }
func (*example) Context() context.Context { return context.Background() }
func (e *example) Cleanup(f func())       { e.cleanups = append(e.cleanups, f) }

// Close stops the servers of the example and closes its connections.
func (e *example) Close() {
	for _, f := range slices.Backward(e.cleanups) {
		f()
	}
	e.cleanups = nil
}

// Error prints to the example's output. Then the output is not the expected output, and the example
// fails.
func (*example) Error(args ...any)                 { fmt.Println(args...) }
func (*example) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (e *example) Fatalf(format string, args ...any) { e.Fatal(fmt.Sprintf(format, args...)) }

func (e *example) Skipf(format string, args ...any) { e.Fatal(fmt.Sprintf(format, args...)) }

// Fatal ends the process, because it cannot end the goroutine of an example alone.
func (e *example) Fatal(args ...any) {
	e.Close()
	fmt.Fprintln(os.Stderr, "devtest: example:", fmt.Sprint(args...))
	os.Exit(1)
}
