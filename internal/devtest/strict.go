package devtest

import (
	"os"
	"testing"
	"time"
)

// Strict returns t in a form that fails, and is not skipped, if there are no servers for it. With
// POSTROOM_TEST_REQUIRE=0 it returns t.
func Strict(t testing.TB) testing.TB {
	if os.Getenv(requireVariable) == "0" {
		return t
	}
	return strictTest{t}
}

// strictTest is a test that fails if a function wants to skip it.
type strictTest struct{ testing.TB }

// Deadline returns the deadline of the test, so that waits end before it.
func (r strictTest) Deadline() (at time.Time, ok bool) {
	if t, has := r.TB.(interface{ Deadline() (time.Time, bool) }); has {
		return t.Deadline()
	}
	return time.Time{}, false
}

// Skipf fails the test.
func (r strictTest) Skipf(format string, args ...any) {
	r.Helper()
	r.Fatalf(format+"\n(set "+requireVariable+"=0 to skip such tests)", args...)
}
