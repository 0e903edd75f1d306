package deadletter

import (
	"errors"
	"testing"

	"github.com/postroom/postroom"
)

// FuzzPlace checks that a place that a list returns is read as the same place, and that any other text
// is refused.
func FuzzPlace(f *testing.F) {
	for _, seed := range []string{"", "2026-02-03T04:05:06.789Z/7", "2026-02-03T04:05:06+02:00/7", "2026-02-03/7", "/", "2026-02-03T04:05:06Z/-1", "2026-02-03T04:05:06Z/7/8"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePlace(text)
		if err != nil {
			if !errors.Is(err, postroom.ErrPage) {
				t.Errorf("%q: %v is no fault of the page", text, err)
			}
			return
		}
		if year := p.at.UTC().Year(); year < 0 || year > 9999 {
			return // no event can have died in that year
		}
		again, err := parsePlace(p.String())
		if err != nil || !again.at.Equal(p.at) || again.id != p.id {
			t.Errorf("%q is %+v, printed %q, which is %+v, %v", text, p, p, again, err)
		}
	})
}
