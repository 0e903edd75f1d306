package outbox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// span is the seqs from lo through hi.
type span struct{ lo, hi int64 }

// spans is a set of seqs: ascending, disjoint, with at least one seq between
// two spans. Its text is that of PostgreSQL's int8multirange.
type spans []span

// parseSpans reads the text of an int8multirange, in the form in which
// PostgreSQL prints it: {[1,4),[9,12)}.
func parseSpans(text string) (spans, error) {
	inner, ok := unwrap(text, "{", "}")
	if !ok {
		return nil, fmt.Errorf("parse ranges: %.40q is no multirange", text)
	}
	if inner == "" {
		return nil, nil
	}
	var s spans
	for part := range strings.SplitSeq(inner, ",[") {
		bounds, ok := unwrap("["+strings.TrimPrefix(part, "["), "[", ")")
		lo, hi, _ := strings.Cut(bounds, ",")
		from, err1 := strconv.ParseInt(lo, 10, 64)
		end, err2 := strconv.ParseInt(hi, 10, 64)
		if !ok || err1 != nil || err2 != nil || end <= from {
			return nil, fmt.Errorf("parse ranges: %.40q is no range of seqs", part)
		}
		s = append(s, span{from, end - 1})
	}
	return s, nil
}

// unwrap takes a pair of brackets off a text.
func unwrap(s, left, right string) (string, bool) {
	s, ok1 := strings.CutPrefix(s, left)
	s, ok2 := strings.CutSuffix(s, right)
	return s, ok1 && ok2
}

// spansOf returns the set of the given seqs, in any order.
func spansOf(seqs []int64) spans {
	slices.Sort(seqs)
	var s spans
	for _, seq := range seqs {
		if n := len(s); n > 0 && seq <= s[n-1].hi+1 {
			s[n-1].hi = max(s[n-1].hi, seq)
			continue
		}
		s = append(s, span{seq, seq})
	}
	return s
}

// String returns the text of an int8multirange.
func (s spans) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for i, r := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "[%d,%d]", r.lo, r.hi)
	}
	b.WriteByte('}')
	return b.String()
}

// union returns the set of what is in s or in t.
func (s spans) union(t spans) spans {
	all := slices.Concat(s, t)
	slices.SortFunc(all, func(a, b span) int {
		switch {
		case a.lo < b.lo:
			return -1
		case a.lo > b.lo:
			return 1
		}
		return 0
	})
	var u spans
	for _, r := range all {
		if n := len(u); n > 0 && r.lo <= u[n-1].hi+1 {
			u[n-1].hi = max(u[n-1].hi, r.hi)
			continue
		}
		u = append(u, r)
	}
	return u
}

// cut splits s into its lowest n seqs, or fewer, and the rest.
func (s spans) cut(n int64) (head, rest spans) {
	for i, r := range s {
		if size := r.hi - r.lo + 1; size <= n {
			n -= size
			continue
		}
		head, rest = slices.Clone(s[:i]), slices.Clone(s[i:])
		if n > 0 {
			head = append(head, span{r.lo, r.lo + n - 1})
			rest[0].lo += n
		}
		return head, rest
	}
	return s, nil
}

// upTo returns the part of s that is not above limit.
func (s spans) upTo(limit int64) spans {
	for i, r := range s {
		if r.hi > limit {
			s = slices.Clone(s[:i])
			if r.lo <= limit {
				s = append(s, span{r.lo, limit})
			}
			return s
		}
	}
	return s
}

// above returns the part of s that is above limit.
func (s spans) above(limit int64) spans {
	for i, r := range s {
		if r.hi > limit {
			s = slices.Clone(s[i:])
			s[0].lo = max(r.lo, limit+1)
			return s
		}
	}
	return nil
}

// size returns how many seqs are in s.
func (s spans) size() int64 {
	var n int64
	for _, r := range s {
		n += r.hi - r.lo + 1
	}
	return n
}
