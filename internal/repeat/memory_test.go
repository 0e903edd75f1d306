package repeat

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// Lines that never repeat do not fill the memory.
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
