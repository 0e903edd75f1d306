package relay

// withhold takes the events out of a batch that are not valid, and what comes after
// them of their keys. The database takes the word of a writer that says it has checked
// its event; the broker is not to: an invalid one could purge a stream, or be a request
// to its API.
func (l *leader) withhold(batch []*Flight) []*Flight {
	var invalid []landing
	valid := batch[:0]
	for _, f := range batch {
		if behind(invalid, f) {
			l.settle(f, Outcome{Class: Behind, Err: errBehind})
		} else if err := f.Validate(); err != nil {
			invalid = append(invalid, landing{f, failure(err)})
		} else {
			valid = append(valid, f)
		}
	}
	for _, i := range invalid { // after those that wait behind them
		l.settle(i.Flight, i.Outcome)
	}
	return valid
}

// behind reports whether an event waits behind one of the others.
func behind(others []landing, f *Flight) bool {
	key := f.orderKey()
	for _, o := range others {
		if key != "" && o.orderKey() == key {
			return true
		}
	}
	return false
}
