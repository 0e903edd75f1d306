package webhook_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
)

// serverVar has the database's URL. If it is set, the test binary is the receiving process that
// tests start and kill.
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
