package schema

// LocksOf returns the tables that a migration locks before it does anything, and how.
func LocksOf(m Migration) map[string]string {
	locks := map[string]string{}
	for _, l := range locksOf(m.source) {
		locks[l.table] = l.mode
	}
	return locks
}
