package text_test

import (
	"testing"

	"github.com/postroom/postroom/internal/text"
)

func TestValid(t *testing.T) {
	for s, want := range map[string]bool{"": true, "grün": true, "a\nb": true, "a\x00b": false, "\xff": false} {
		if got := text.Valid(s); got != want {
			t.Errorf("Valid(%q) = %t, want %t", s, got, want)
		}
	}
}
