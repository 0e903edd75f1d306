package pglog

// One recording moves at most maxRows events to the table held, and as many from it, of about
// maxBytes. It also orders the republish of at most maxRanges ranges of lost events. So a recording
// takes some ten milliseconds, and on a busy machine or a slow disk still far less than a third of
// the lease. What is left comes with the next recordings, which each renew the lease.
//
// prune.sql has the same limits.
const (
	maxRows   = 1000
	maxBytes  = 4 << 20
	maxRanges = 5000
)

// budget counts what one recording writes of one kind.
type budget struct{ rows, bytes int }

// take adds a row of the given size, and reports whether it fits. The first row always fits.
func (b *budget) take(bytes int) bool {
	if b.rows > 0 && (b.rows >= maxRows || b.bytes+bytes > maxBytes) {
		return false
	}
	b.rows, b.bytes = b.rows+1, b.bytes+bytes
	return true
}
