package repeat

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// Whatever never says the same thing twice does not fill the memory of its process.
func TestMemoryIsBounded(t *testing.T) {
	var lines Lines
	log := slog.New(slog.DiscardHandler)
	for i := range 4 * most {
		lines.Warn(context.Background(), log, "away", fmt.Errorf("no %s", strings.Repeat("x", i+1)))
		if n := len(lines.told); n > most {
			t.Fatalf("%d lines are remembered after %d, want %d at the most", n, i+1, most)
		}
	}
}
