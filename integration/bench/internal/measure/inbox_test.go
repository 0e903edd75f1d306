package measure

import "testing"

func TestFailingEventsAreSpreadEvenly(t *testing.T) {
	tests := []struct {
		name            string
		events, failing int
		healthy         int
	}{
		{"none", 250, 0, 250},
		{"rarely", 100_000, rarely, 99_000},
		{"often", 50_000, often, 35_000},
		{"a few events", 50, rarely, 49},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := backlog{events: tt.events, load: load{failing: tt.failing}}
			if got := l.healthy(); got != tt.healthy {
				t.Errorf("%d of %d do not fail, want %d", got, tt.events, tt.healthy)
			}
			for from := 0; tt.failing > 0 && from+100 <= tt.events; from += 100 {
				failing := 0
				for i := from; i < from+100; i++ {
					if l.fails(i) {
						failing++
					}
				}
				if failing != tt.failing {
					t.Fatalf("%d of 100 fail from %d, want %d", failing, from, tt.failing)
				}
			}
		})
	}
}
