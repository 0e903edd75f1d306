// Package devtest gives tests real PostgreSQL databases and NATS servers.
//
// Servers are started on first use, once per process, and shared by its tests.
// Each test gets a database of its own, cloned from one that was migrated once.
// A package that uses devtest has
//
//	func TestMain(m *testing.M) { devtest.Main(m) }
//
// Where no PostgreSQL can be had, tests that need one are skipped, or fail if
// POSTROOM_TEST_REQUIRE is 1, as it is in CI.
//
// POSTROOM_TEST_SERVERS says where all of these servers run: containers, and
// nothing else will do; local, without Docker; or unset, which is local where this
// machine has the binaries. See internal/devstack for the images.
//
// NATS is a process. POSTROOM_TEST_BROKER is the path of its program, as make test sets
// it; without it integration/natsd is built in the checkout.
//
// POSTROOM_TEST_PATIENCE is how many times as long as on an idle machine tests wait for
// something: see [Patience].
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

// Where servers run, as POSTROOM_TEST_SERVERS says.
const (
	anywhere   = ""
	local      = "local"
	containers = "containers"
)

// startPatience bounds the start of a server, with the download of an image.
const startPatience = 2 * time.Minute

// Main runs a package's tests, stops the servers that they used, and ends the process with
// the tests' exit code, or with 1 if a server did not stop.
//
// If the tests have to run in containers, Main starts the servers first. So it says which
// they are, and fails at once if they cannot be started.
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

// where returns where servers run.
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

// skipExamples leaves the examples out if there are no servers for them: unlike a test,
// an example cannot skip itself.
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

// announce says what the tests run on. Go shows it where tests are verbose, and
// where the test binary is run by itself.
func announce(what, version, source, hostname string) {
	if where() != containers && !testing.Verbose() {
		return
	}
	if hostname != "" {
		source += ", hostname " + hostname
	}
	fmt.Fprintf(os.Stderr, "devtest: %s %s from %s\n", what, version, source)
}

// Eventually calls cond every few milliseconds until it returns true. It fails
// the test, saying what was not so, if that takes too long: within is how long it may
// take on a machine with nothing else to do, and [Patience] what that is here. cond
// runs on the test's goroutine.
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
			if cond() { // it may have waited long for its turn
				return
			}
			t.Fatalf("not so after %s: %s", within, what)
		case <-ticker.C:
		}
	}
}

// Receive returns what comes from a channel, or the zero value if that is closed. It fails
// the test if neither happens within [Patience].
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

// The bounds of [Patience].
const (
	patienceTimes = 10 // as long as on a machine with nothing else to do
	leastPatience = time.Minute
	mostPatience  = 5 * time.Minute
	lastWords     = 20 * time.Second // before the tests' own deadline, to say what was not so
)

// Patience returns how long a test waits for what takes no longer than within on a
// machine with nothing else to do. A busy machine takes many times as long, and a test
// that is red because of that says nothing. So it is ten times within, between one and
// five minutes, and ends before the deadline of go test. POSTROOM_TEST_PATIENCE is
// another factor, without these bounds: where many tests are to fail it saves time.
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

// Missing ends a test that cannot have what it needs: it is skipped, and says so, or
// fails where POSTROOM_TEST_REQUIRE=1 asks for everything, as CI does.
func Missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv(requireVariable) == "1" {
		t.Fatalf("%s=1: %v", requireVariable, err)
	}
	t.Skipf("SKIPPED, NOTHING WAS TESTED: %v", err)
}
