// Package devtest gives tests real PostgreSQL databases and NATS servers.
//
// devtest starts each server when a test first needs it. All tests of the process share the server.
// Each test gets its own database, which is a clone of a database that was migrated once. A package
// that uses devtest must have
//
//	func TestMain(m *testing.M) { devtest.Main(m) }
//
// If there is no PostgreSQL, or no program of a NATS server, devtest skips the tests that need it.
// If POSTROOM_TEST_REQUIRE is 1, as in CI, these tests fail instead.
//
// POSTROOM_TEST_SERVERS says where the servers run. "local" means on this machine. "containers"
// means in containers, except the servers of [PlainNATS]; then the package must import
// postroomtest/containers. If this variable is not set, NATS runs as a process, and PostgreSQL is the
// server at POSTROOM_TEST_DATABASE_URL. If that variable is not set either, PostgreSQL runs on this
// machine.
//
// POSTROOM_TEST_BROKER is the path of the NATS server's binary. The command "make test" sets it. If
// it is not set, devtest builds the binary from integration/natsd in the checkout.
//
// POSTROOM_TEST_PATIENCE is a factor: a test waits at most this many times as long as an idle
// machine needs. See [Patience].
package devtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postroom/postroom/internal/devstack"
)

const (
	requireVariable = "POSTROOM_TEST_REQUIRE"
	serversVariable = "POSTROOM_TEST_SERVERS"

	patienceVariable = "POSTROOM_TEST_PATIENCE"
)

// The values of POSTROOM_TEST_SERVERS: where servers run.
const (
	anywhere   = ""
	local      = "local"
	containers = "containers"
)

// startPatience is the longest time for the start of a server, including the download of an image.
const startPatience = 2 * time.Minute

// Main runs a package's tests, stops the servers that the tests used, and ends the process
// with the tests' exit code. If a server did not stop, or goroutines of the tests run on, the exit
// code is 1.
//
// If POSTROOM_TEST_SERVERS is "containers", Main starts the servers before the tests and prints
// which servers these are. If Main cannot start them, it fails at once.
func Main(m *testing.M) {
	code := 1
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "devtest:", err)
	} else {
		skipExamples()
		code = m.Run()
	}
	close(testsEnded)
	if err := errors.Join(awaitDrops(), stopPostgres(), stopNATS()); err != nil {
		fmt.Fprintln(os.Stderr, "devtest: drop databases and stop servers:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := awaitGoroutines(goroutinesEnd); err != nil {
			fmt.Fprintln(os.Stderr, "devtest:", err)
			code = 1
		}
	}
	os.Exit(code)
}

var useContainers atomic.Bool

// UseContainers makes this process start servers in containers, like POSTROOM_TEST_SERVERS. Servers
// that it has already started stay.
func UseContainers() { useContainers.Store(true) }

// where says where servers run.
func where() string {
	if useContainers.Load() {
		return containers
	}
	return os.Getenv(serversVariable)
}

func prepare() error {
	switch where() {
	case anywhere, local:
		return nil
	case containers:
		_, pgErr := postgres()
		_, natsErr := broker()
		if err := errors.Join(pgErr, natsErr); err != nil {
			return fmt.Errorf("%s=%s, and no such servers; make test-containers finds or makes images: %w", serversVariable, containers, err)
		}
		return nil
	}
	return fmt.Errorf("%s is %q, want %s, %s or nothing", serversVariable, where(), local, containers)
}

// skipExamples excludes the examples from this test run if there are no servers for them. An
// example, unlike a test, cannot skip itself.
func skipExamples() {
	if os.Getenv(requireVariable) == "1" || devstack.Installed(context.Background()) == nil {
		return
	}
	_, pgErr := postgres()
	_, natsErr := broker()
	if pgErr == nil && natsErr == nil {
		return
	}
	pattern := "^Example"
	if skip := flag.Lookup("test.skip").Value.String(); skip != "" {
		pattern = skip + "|" + pattern
	}
	if err := flag.Set("test.skip", pattern); err != nil {
		fmt.Fprintln(os.Stderr, "devtest: leave out examples:", err)
	}
}

// announce prints which server the tests use, if the tests are verbose or if servers must run in
// containers. If they are not verbose, go test can hide the text.
func announce(what, version, source, hostname string) {
	if where() != containers && !testing.Verbose() {
		return
	}
	if hostname != "" {
		source += ", hostname " + hostname
	}
	fmt.Fprintf(os.Stderr, "devtest: %s %s from %s\n", what, version, source)
}

// The times between two looks of [Eventually]. They grow, because a condition that does not come
// soon costs a statement at each look, and the parts under test need the processor.
const (
	firstLook = 2 * time.Millisecond
	mostLook  = 25 * time.Millisecond
)

// Eventually calls the function cond every few milliseconds until cond returns true. If cond does
// not return true in time, Eventually fails the test with a message that ends with the given text.
// The parameter within is the longest time that cond may need on an idle machine, and [Patience]
// returns how long Eventually waits on this machine. cond runs on the test's goroutine.
func Eventually(t testing.TB, within time.Duration, what string, cond func() bool) {
	t.Helper()
	within = Patience(t, within)
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for look := firstLook; !cond(); look = min(look*3/2, mostLook) {
		select {
		case <-deadline.C:
			if cond() { // look again, because this goroutine may have waited long for a processor
				return
			}
			t.Fatalf("not so after %s: %s", within, what)
		case <-time.After(look):
		}
	}
}

// Receive returns a value from a channel, or the zero value if the channel is closed. If neither
// happens within the time that [Patience] returns, Receive fails the test.
func Receive[T any](t testing.TB, within time.Duration, what string, from <-chan T) (came T) {
	t.Helper()
	within = Patience(t, within)
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	select {
	case came = <-from:
	case <-deadline.C:
		t.Fatalf("not so after %s: %s", within, what)
	}
	return came
}

// The limits of [Patience].
const (
	patienceTimes = 10 // a test waits ten times as long as an idle machine needs
	leastPatience = time.Minute
	mostPatience  = 5 * time.Minute
	lastWords     = 20 * time.Second // a wait ends this long before the deadline of go test, so that the test can still print why it failed
)

// Patience returns how long a test waits for something. The parameter limit is the longest time
// that an idle machine needs for it. A busy machine needs many times as long, and a test that fails
// only for this reason shows nothing. So Patience returns ten times the limit, but at least one
// minute and at most five. If the deadline of go test comes earlier, the wait ends before it, but
// the wait is never shorter than the limit. POSTROOM_TEST_PATIENCE replaces the factor of ten. Then
// the bounds of one and five minutes do not apply, and a factor below 1 makes the wait shorter than
// the limit. A small factor saves time if many tests should fail (integration/mutants).
func Patience(t testing.TB, limit time.Duration) time.Duration {
	t.Helper()
	patience := max(limit, min(max(patienceTimes*limit, leastPatience), mostPatience))
	if text := os.Getenv(patienceVariable); text != "" {
		times, err := strconv.ParseFloat(text, 64)
		if err != nil || times <= 0 {
			t.Fatalf("%s is %q, want a number above 0", patienceVariable, text)
		}
		patience = time.Duration(times * float64(limit))
	}
	if test, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, ok := test.Deadline(); ok {
			patience = min(patience, max(limit, time.Until(at)-lastWords))
		}
	}
	return patience
}

// Missing skips the test t, because something that it needs is not there. The parameter err says
// what. If POSTROOM_TEST_REQUIRE is 1, as in CI, Missing fails the test instead.
func Missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv(requireVariable) == "1" {
		t.Fatalf("%s=1: %v", requireVariable, err)
	}
	t.Skipf("SKIPPED, NOTHING WAS TESTED: %v", err)
}
