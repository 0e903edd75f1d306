// Package devtest gives tests real PostgreSQL databases and NATS servers.
//
// devtest starts a server when a test first needs it, once per process, and all tests of the
// process share the server. Each test gets its own database, which is a clone of a database that
// was migrated once. A package that uses devtest has
//
//	func TestMain(m *testing.M) { devtest.Main(m) }
//
// If there is no PostgreSQL, devtest skips the tests that need it. If POSTROOM_TEST_REQUIRE is 1,
// as in CI, these tests fail instead.
//
// POSTROOM_TEST_SERVERS says where the servers run. "containers" means in containers, except for
// [PlainNATS], and "local" means without containers. If it is not set, NATS runs as a process, and
// PostgreSQL is the server of POSTROOM_DATABASE_URL. Without that variable, PostgreSQL runs locally
// if this machine has the binaries, otherwise in a container. See internal/devstack for the images.
//
// POSTROOM_TEST_BROKER is the path of the program of a NATS process, and make test sets it. If it
// is not set, devtest builds integration/natsd in the checkout.
//
// POSTROOM_TEST_PATIENCE is a factor. A test waits for the time that an idle machine needs, times
// this factor. See [Patience].
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
// If servers must run in containers, Main starts them before the tests. In this case Main prints
// which servers the tests use, and fails at once if it cannot start them.
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

// skipExamples makes the test run leave out the examples if there are no servers for them. An
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

// announce prints which servers the tests use, if the tests are verbose or if servers must run in
// containers. Without -v, go test may not show the text.
func announce(what, version, source, hostname string) {
	if where() != containers && !testing.Verbose() {
		return
	}
	if hostname != "" {
		source += ", hostname " + hostname
	}
	fmt.Fprintf(os.Stderr, "devtest: %s %s from %s\n", what, version, source)
}

// Eventually calls cond every few milliseconds until cond returns true. If that takes too long,
// Eventually fails the test. The parameter what is the end of the message. The parameter within is
// the time that cond may need on an idle machine; from this time, [Patience] computes the time for
// the machine of the test. cond runs on the test's goroutine.
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

// Receive returns a value from a channel, or the zero value if the channel is closed. If the
// channel stays open but gives no value for the time that [Patience] returns, Receive fails the
// test.
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
	lastWords     = 20 * time.Second // a wait ends this long before the deadline of go test, so that the test can still print its text
)

// Patience returns how long a test waits for something. The parameter within is the longest time
// that an idle machine needs for it. A busy machine needs many times as long. If a test fails only
// because the machine is busy, the failure means nothing. So Patience returns ten times the
// parameter, but at least one minute and at most five minutes. If the deadline of go test comes
// earlier, the wait ends before the deadline. No limit makes the result shorter than the parameter.
// If POSTROOM_TEST_PATIENCE is set, it replaces the factor of ten, and only the deadline limits the
// result. A small factor saves time if many tests are expected to fail.
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

// Missing skips a test because something that the test needs is missing. err says what is missing.
// If POSTROOM_TEST_REQUIRE is 1, as in CI, Missing fails the test instead.
func Missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv(requireVariable) == "1" {
		t.Fatalf("%s=1: %v", requireVariable, err)
	}
	t.Skipf("SKIPPED, NOTHING WAS TESTED: %v", err)
}
