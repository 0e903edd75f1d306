package seqset

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

func TestSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seqs := rapid.SliceOf(rapid.Int64Range(1, 60))
		a, b := set(seqs.Draw(t, "a")), set(seqs.Draw(t, "b"))
		s, u := Of(slices.Collect(maps.Keys(a))), Of(slices.Collect(maps.Keys(b)))

		both := maps.Clone(a)
		maps.Copy(both, b)
		if got := set(members(s.Union(u))); !maps.Equal(got, both) {
			t.Errorf("union of %s and %s is %v", s, u, got)
		}
		left := maps.Clone(a)
		maps.DeleteFunc(left, func(seq int64, _ bool) bool { return b[seq] })
		if got := s.Without(u); !slices.Equal(got, Of(slices.Collect(maps.Keys(left)))) {
			t.Errorf("%s without %s is %s", s, u, got)
		}
		n := rapid.Int64Range(0, 70).Draw(t, "n")
		head := s.First(n)
		if want := min(n, s.Size()); head.Size() != want {
			t.Errorf("first(%d) of %s gives %s, want %d seqs", n, s, head, want)
		}
		if rest := s.Without(head); len(head) > 0 && (!slices.Equal(head.Union(rest), s) || len(rest) > 0 && head[len(head)-1].Hi >= rest[0].Lo) {
			t.Errorf("first(%d) of %s gives %s: these are not its lowest seqs", n, s, head)
		}
		if s.Has(n) != a[n] {
			t.Errorf("%s has %d: %t", s, n, s.Has(n))
		}
		if got := slices.Clone(s).Drop(n); !slices.Equal(got, s.Above(n)) {
			t.Errorf("drop(%d) of %s is %s, want %s", n, s, got, s.Above(n))
		}
		if got := slices.Clone(s).Add(n); !slices.Equal(got, s.Union(Set{{n, n}})) {
			t.Errorf("%s with %d is %s", s, n, got)
		}
		for seq := range set(members(s.UpTo(n))) {
			if seq > n || !a[seq] {
				t.Errorf("upTo(%d) of %s holds %d", n, s, seq)
			}
		}
		if parsed, err := Parse(canonical(s)); err != nil || !slices.Equal(parsed, s) {
			t.Errorf("%s reads back as %s, %v", s, parsed, err)
		}
	})
}

func TestParseRefusesWhatIsNoMultirange(t *testing.T) {
	for _, text := range []string{"{[1,2", "{[a,b)}", "{(,5)}", "{[3,3)}", "nonsense"} {
		if s, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %s, want an error", text, s)
		}
	}
}

// canonical returns the text that PostgreSQL prints for a value that String wrote.
func canonical(s Set) string {
	text := "{"
	for i, r := range s {
		if i > 0 {
			text += ","
		}
		text += "[" + strconv.FormatInt(r.Lo, 10) + "," + strconv.FormatInt(r.Hi+1, 10) + ")"
	}
	return text + "}"
}

func members(s Set) []int64 {
	var seqs []int64
	for _, r := range s {
		for seq := r.Lo; seq <= r.Hi; seq++ {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

func set(seqs []int64) map[int64]bool {
	m := make(map[int64]bool)
	for _, seq := range seqs {
		m[seq] = true
	}
	return m
}

// FuzzParse checks that no text makes Parse panic, and that Parse returns the same set again for
// the text that PostgreSQL prints for it.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"{}", "{[1,4),[9,12)}", "{[1,2", "{[a,b)}", "{(,5)}", "{[3,3)}", "{[1,9223372036854775807)}", "{[-5,-1)}", "{1,2)}", "{[1,4),(9,12]}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			if s != nil {
				t.Errorf("Parse(%q) = %s, and %v", text, s, err)
			}
			return
		}
		for _, r := range s {
			if r.Lo > r.Hi {
				t.Errorf("Parse(%q) has %d to %d", text, r.Lo, r.Hi)
			}
		}
		if again, err := Parse(canonical(s)); err != nil || !slices.Equal(again, s) {
			t.Errorf("Parse(%q) = %s, which reads back as %s, %v", text, s, again, err)
		}
	})
}
