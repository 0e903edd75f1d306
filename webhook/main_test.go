package webhook_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
)

// serverVar makes of the test binary the receiving process that tests start and kill; it
// holds the database's URL.
const serverVar = "POSTROOM_TEST_RECEIVER_DATABASE"

func TestMain(m *testing.M) {
	url := os.Getenv(serverVar)
	if url == "" {
		devtest.Main(m)
		return
	}
	if err := serve(url); err != nil {
		fmt.Fprintln(os.Stderr, "receiving process:", err)
		os.Exit(1)
	}
}
