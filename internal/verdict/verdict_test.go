package verdict

import (
	"errors"
	"fmt"
	"testing"
)

// A run is undecided if nothing else is wrong with it.
func TestExitStatus(t *testing.T) {
	t.Parallel()
	undecided := NewUndecided("not complete after %s", "1s")
	wrong := errors.New("two effects")
	for _, tt := range []struct {
		name string
		err  error
		want int
		word string
	}{
		{"well", nil, 0, "ok"},
		{"undecided", undecided, 3, "undecided"},
		{"wrapped", fmt.Errorf("customers: %w", undecided), 3, "undecided"},
		{"twice", errors.Join(undecided, fmt.Errorf("part: %w", undecided)), 3, "undecided"},
		{"wrong", wrong, 1, "FAILED"},
		{"undecided and wrong", errors.Join(undecided, wrong), 1, "FAILED"},
		{"deep", fmt.Errorf("run: %w", errors.Join(undecided, fmt.Errorf("and: %w", wrong))), 1, "FAILED"},
		{"an error of one that wraps two", fmt.Errorf("%w: %w", wrong, undecided), 1, "FAILED"},
	} {
		if got, word := ExitStatus(tt.err), Of(tt.err); got != tt.want || word != tt.word {
			t.Errorf("%s: %d %s, want %d %s", tt.name, got, word, tt.want, tt.word)
		}
	}
}
