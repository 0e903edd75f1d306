package model

// violated returns the invariants that a state breaks. If the parameter ended is true, no step is
// possible in that state.
func (s *state) violated(ended bool) Invariant {
	broken := s.broken
	for i, t := range s.txs {
		stored, effects := s.stream.copies[i] > 0, s.inbox.effects[i]
		if t.fate == rolledBack && stored {
			broken |= NoGhost
		}
		gone := s.inbox.gone.has(uint8(i)) //nolint:gosec // i is below the constant events
		if effects > 1 || gone && effects > 0 {
			broken |= EffectOnce
		}
		if t.fate == committed && ended && (!stored || effects == 0 && !gone) {
			broken |= NoLoss
		}
	}
	if s.txs[0].fate == committed && s.stream.copies[0] == 0 && s.stream.copies[1] > 0 {
		broken |= KeyOrder
	}
	return broken
}

// isMarked reports whether the state row calls an event published although the event is not in the
// stream.
func (s *state) isMarked() bool {
	for i, t := range s.txs {
		if t.fate == committed && t.seq <= s.row.high && s.row.snap.sees(t.xid) &&
			!s.row.pending.has(t.seq) && s.stream.copies[i] == 0 {
			return true
		}
	}
	return false
}
