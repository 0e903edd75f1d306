package wildcard_test

import (
	"slices"
	"testing"

	"github.com/postroom/postroom/internal/wildcard"
)

func TestCovers(t *testing.T) {
	tests := []struct {
		a, b string
		want bool
	}{
		{"order.>", "order.placed", true},
		{"order.>", "order.placed.eu", true},
		{"order.>", "order", false},
		{"order.*", "order.placed", true},
		{"order.*", "order.placed.eu", false},
		{"order.*", "order.>", false},
		{"order.>", "order.*", true},
		{"order.placed", "order.placed", true},
		{"order.placed", "order.*", false},
		{">", "anything.at.all", true},
	}
	for _, tt := range tests {
		if got := wildcard.Covers(tt.a, tt.b); got != tt.want {
			t.Errorf("Covers(%q, %q) = %t, want %t", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestUnion(t *testing.T) {
	tests := []struct {
		name             string
		have, want, both []string
	}{
		{"more", []string{"a.x"}, []string{"a.y"}, []string{"a.x", "a.y"}},
		{"the same", []string{"a.x"}, []string{"a.x", "a.x"}, []string{"a.x"}},
		{"a wider one takes the place of narrower ones", []string{"a.x", "b", "a.y"}, []string{"a.>"}, []string{"b", "a.>"}},
		{"a narrower one is there already", []string{"a.>"}, []string{"a.x"}, []string{"a.>"}},
		{"nothing was there", nil, []string{"a", "a.*", "a.b"}, []string{"a", "a.*"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := wildcard.Union(tt.have, tt.want); !slices.Equal(got, tt.both) {
				t.Errorf("Union(%q, %q) = %q, want %q", tt.have, tt.want, got, tt.both)
			}
		})
	}
}
