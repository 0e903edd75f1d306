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
package devtest

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
)

const requireVariable = "POSTROOM_TEST_REQUIRE"

// startPatience bounds the start of a server, with the download of an image.
const startPatience = 2 * time.Minute

// Main runs a package's tests, stops whatever servers they used, and ends the
// process with the tests' exit code, or 1 if a server did not stop.
func Main(m *testing.M) {
	code := m.Run()
	if err := errors.Join(stopPostgres(), stopNATS()); err != nil {
		fmt.Fprintln(os.Stderr, "devtest: stop servers:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Eventually calls cond every few milliseconds until it returns true. It fails
// the test, saying what was not so, if that takes longer than within. cond runs
// on the test's goroutine.
func Eventually(t testing.TB, within time.Duration, what string, cond func() bool) {
	t.Helper()
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

// missing ends a test that cannot have a server.
func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv(requireVariable) == "1" {
		t.Fatalf("%s=1: %v", requireVariable, err)
	}
	t.Skipf("SKIPPED, NOTHING WAS TESTED: %v", err)
}
