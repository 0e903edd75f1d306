package postroomtest_test

import (
	"log/slog"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// quiet discards the logs of parts, because the tests provoke the failures in them.
var quiet = slog.New(slog.DiscardHandler)
