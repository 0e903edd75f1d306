// Package devtest gives tests real PostgreSQL databases and NATS servers.
//
// Servers are started on first use, once per process, and shared by its tests. Each test
// gets its own database, a clone of a database that was migrated once. A package that
// uses devtest has
//
//	func TestMain(m *testing.M) { devtest.Main(m) }
//
// If there is no PostgreSQL, tests that need one are skipped. If POSTROOM_TEST_REQUIRE is
// 1, as in CI, they fail instead.
//
// POSTROOM_TEST_SERVERS says where these servers run. containers means only in
// containers, and local means without Docker. If it is not set, servers run locally if
// this machine has the binaries. See internal/devstack for the images.
//
// NATS is a process. POSTROOM_TEST_BROKER is the path of its program, and make test sets
// it. If it is not set, devtest builds integration/natsd in the checkout.
//
// POSTROOM_TEST_PATIENCE is a factor: tests wait for something that many times longer
// than on an idle machine. See [Patience].
package devtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
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

// startPatience limits the start of a server, including the download of an image.
const startPatience = 2 * time.Minute

// Main runs a package's tests, stops the servers that the tests used, and ends the process
// with the tests' exit code. If a server did not stop, the exit code is 1.
//
// If servers must run in containers, Main starts them first. So it prints which servers
// the tests use, and fails at once if they cannot be started.
func Main(m *testing.M) {
	code := 1
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "devtest:", err)
	} else {
		skipExamples()
		code = m.Run()
	}
	if err := errors.Join(stopPostgres(), stopNATS()); err != nil {
		fmt.Fprintln(os.Stderr, "devtest: stop servers:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// where returns POSTROOM_TEST_SERVERS.
func where() string { return os.Getenv(serversVariable) }

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

// skipExamples leaves out the examples if there are no servers for them, because an
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

// announce prints which servers the tests use. The text is visible if tests are verbose,
// or if the test binary is run directly.
func announce(what, version, source, hostname string) {
	if where() != containers && !testing.Verbose() {
		return
	}
	if hostname != "" {
		source += ", hostname " + hostname
	}
	fmt.Fprintf(os.Stderr, "devtest: %s %s from %s\n", what, version, source)
}

// Eventually calls cond every few milliseconds until cond returns true. If that takes too
// long, Eventually fails the test and prints what. within is how long it may take on an
// idle machine, and [Patience] computes the time for this machine. cond runs on the
// test's goroutine.
func Eventually(t testing.TB, within time.Duration, what string, cond func() bool) {
	t.Helper()
	within = Patience(t, within)
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			if cond() { // this goroutine may have waited long for a processor
				return
			}
			t.Fatalf("not so after %s: %s", within, what)
		case <-ticker.C:
		}
	}
}

// Receive returns a value from a channel, or the zero value if the channel is closed. If
// neither happens within [Patience], it fails the test.
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
	patienceTimes = 10 // times as long as on an idle machine
	leastPatience = time.Minute
	mostPatience  = 5 * time.Minute
	lastWords     = 20 * time.Second // how long before the tests' own deadline a wait ends, so that its text is printed
)

// Patience returns how long a test waits for something that takes at most within on an
// idle machine. A busy machine needs many times as long, and if a test fails only because
// of that, the failure means nothing. So Patience returns ten times within, but at least
// one and at most five minutes, and never longer than until the deadline of go test. If
// POSTROOM_TEST_PATIENCE is set, it replaces the factor of ten, and there are no limits:
// that saves time if many tests are expected to fail.
func Patience(t testing.TB, within time.Duration) time.Duration {
	t.Helper()
	patience := max(within, min(max(patienceTimes*within, leastPatience), mostPatience))
	if text := os.Getenv(patienceVariable); text != "" {
		times, err := strconv.ParseFloat(text, 64)
		if err != nil || times <= 0 {
			t.Fatalf("%s is %q, want a number above 0", patienceVariable, text)
		}
		patience = time.Duration(times * float64(within))
	}
	if test, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, ok := test.Deadline(); ok {
			patience = min(patience, max(within, time.Until(at)-lastWords))
		}
	}
	return patience
}

// Missing ends a test if something that the test needs is missing. The test is skipped,
// with a message. If POSTROOM_TEST_REQUIRE is 1, as in CI, it fails instead.
func Missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv(requireVariable) == "1" {
		t.Fatalf("%s=1: %v", requireVariable, err)
	}
	t.Skipf("SKIPPED, NOTHING WAS TESTED: %v", err)
}
