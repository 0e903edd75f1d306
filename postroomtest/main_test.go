package postroomtest_test

import (
	"log/slog"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// quiet takes the logs of parts, which are of failures on purpose.
var quiet = slog.New(slog.DiscardHandler)
