package postmill_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(restartVariable); url != "" {
		if err := askForRestart(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	devtest.Main(m)
}
