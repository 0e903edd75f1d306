package pglog

import "testing"

// A search by transaction id also looks at transactions that were open at the former snapshot,
// even if no transaction has begun since.
func TestSearchIncludesTransactionsThatWereOpen(t *testing.T) {
	t.Parallel()
	s := newSearch(nil, state{high: 10, snap: "5:7:5"}, searchBoundsRow{Snap: "7:7:", XIDFrom: 7, XIDUntil: 7})
	if s.bySeq || s.done() {
		t.Errorf("by seq %t, done %t: transaction 5 ended meanwhile, and the search does not read what it wrote", s.bySeq, s.done())
	}
}
