// Package seqset has sets of seqs, which are the numbers of events in the log. It reads and
// writes such sets in PostgreSQL's text form.
package seqset

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Span is the seqs from Lo through Hi.
type Span struct{ Lo, Hi int64 }

// Set is a set of seqs. Its spans are ascending and disjoint, with at least one missing seq between
// two spans. String writes a set as a text that PostgreSQL reads as int8multirange.
type Set []Span

// Parse reads the text of an int8multirange, in the form in which PostgreSQL prints it:
// {[1,4),[9,12)}. It does not read the text that String returns.
func Parse(text string) (Set, error) {
	inner, ok := unwrap(text, "{", "}")
	if !ok {
		return nil, fmt.Errorf("parse ranges: %.40q is no multirange", text)
	}
	if inner == "" {
		return nil, nil
	}
	var s Set
	for part := range strings.SplitSeq(inner, ",[") {
		bounds, ok := unwrap("["+strings.TrimPrefix(part, "["), "[", ")")
		lo, hi, _ := strings.Cut(bounds, ",")
		from, err1 := strconv.ParseInt(lo, 10, 64)
		end, err2 := strconv.ParseInt(hi, 10, 64)
		if !ok || err1 != nil || err2 != nil || end <= from {
			return nil, fmt.Errorf("parse ranges: %.40q is no range of seqs", part)
		}
		s = append(s, Span{from, end - 1})
	}
	return s, nil
}

// unwrap removes a pair of brackets from a text.
func unwrap(s, left, right string) (string, bool) {
	s, ok1 := strings.CutPrefix(s, left)
	s, ok2 := strings.CutSuffix(s, right)
	return s, ok1 && ok2
}

// Of returns the set of the given seqs, which may be in any order. It sorts seqs in place.
func Of(seqs []int64) Set {
	slices.Sort(seqs)
	var s Set
	for _, seq := range seqs {
		if n := len(s); n > 0 && seq <= s[n-1].Hi+1 {
			s[n-1].Hi = max(s[n-1].Hi, seq)
			continue
		}
		s = append(s, Span{seq, seq})
	}
	return s
}

// Add adds a seq, and may use the memory of s.
func (s Set) Add(seq int64) Set {
	switch n := len(s); {
	case n == 0 || seq > s[n-1].Hi+1:
		return append(s, Span{seq, seq})
	case seq == s[n-1].Hi+1:
		s[n-1].Hi = seq
		return s
	}
	return s.Union(Set{{seq, seq}})
}

// Has reports whether a seq is in s.
func (s Set) Has(seq int64) bool {
	i := sort.Search(len(s), func(i int) bool { return s[i].Hi >= seq })
	return i < len(s) && s[i].Lo <= seq
}

// Drop removes the part of s that is not above the given limit. It uses the memory of s.
func (s Set) Drop(limit int64) Set {
	for len(s) > 0 && s[0].Hi <= limit {
		s = s[1:]
	}
	if len(s) > 0 {
		s[0].Lo = max(s[0].Lo, limit+1)
	}
	return s
}

// String returns a text that PostgreSQL reads as int8multirange: {[1,3],[9,11]}.
func (s Set) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for i, r := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "[%d,%d]", r.Lo, r.Hi)
	}
	b.WriteByte('}')
	return b.String()
}

// Union returns the set of seqs that are in s or in t. The spans of both may be in any order, and may
// overlap.
func (s Set) Union(t Set) Set {
	all := slices.Concat(s, t)
	slices.SortFunc(all, func(a, b Span) int {
		switch {
		case a.Lo < b.Lo:
			return -1
		case a.Lo > b.Lo:
			return 1
		}
		return 0
	})
	var u Set
	for _, r := range all {
		if n := len(u); n > 0 && r.Lo <= u[n-1].Hi+1 {
			u[n-1].Hi = max(u[n-1].Hi, r.Hi)
			continue
		}
		u = append(u, r)
	}
	return u
}

// First returns the lowest n seqs of s, or all if s has fewer.
func (s Set) First(n int64) Set {
	for i, r := range s {
		if size := r.Hi - r.Lo + 1; size <= n {
			n -= size
			continue
		}
		head := slices.Clone(s[:i])
		if n > 0 {
			head = append(head, Span{r.Lo, r.Lo + n - 1})
		}
		return head
	}
	return slices.Clone(s)
}

// UpTo returns the part of s that is not above the given limit.
func (s Set) UpTo(limit int64) Set {
	for i, r := range s {
		if r.Hi > limit {
			s = slices.Clone(s[:i])
			if r.Lo <= limit {
				s = append(s, Span{r.Lo, limit})
			}
			return s
		}
	}
	return s
}

// Above returns the part of s that is above the given limit.
func (s Set) Above(limit int64) Set {
	for i, r := range s {
		if r.Hi > limit {
			s = slices.Clone(s[i:])
			s[0].Lo = max(r.Lo, limit+1)
			return s
		}
	}
	return nil
}

// Without returns the set of seqs that are in s but not in t.
func (s Set) Without(t Set) Set {
	var rest Set
	for _, r := range s {
		for len(t) > 0 && t[0].Hi < r.Lo {
			t = t[1:]
		}
		for _, gone := range t {
			if gone.Lo > r.Hi {
				break
			}
			if gone.Lo > r.Lo {
				rest = append(rest, Span{r.Lo, gone.Lo - 1})
			}
			r.Lo = gone.Hi + 1
		}
		if r.Lo <= r.Hi {
			rest = append(rest, r)
		}
	}
	return rest
}

// AppendTo appends the seqs of s to a list.
func (s Set) AppendTo(seqs []int64) []int64 {
	for _, r := range s {
		for seq := r.Lo; seq <= r.Hi; seq++ {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// Size returns the number of seqs in s.
func (s Set) Size() int64 {
	var n int64
	for _, r := range s {
		n += r.Hi - r.Lo + 1
	}
	return n
}
