package idempotency

// Number writes a double as CanonicalJCS does.
func Number(f float64) string { return string(appendDouble(nil, f)) }

// Lock returns the number of a key's lock.
func Lock(k Key) int64 { return k.lock("postroom") }

// Codes returns all codes, with their statuses.
func Codes() map[Code]int { return statusOf }

// Statements returns the statements, by name, for the usual schema.
func Statements() map[string]string {
	s := load("postroom")
	return map[string]string{
		"began": s.began, "still": s.still, "lock": s.lock, "present": s.present, "look": s.look, "clear": s.clear, "store": s.store, "claim": s.claim, "take": s.take, "renew": s.renew,
		"begin": s.begin, "undo": s.undo, "advance": s.advance, "complete": s.complete, "fail": s.fail, "touch": s.touch, "delete": s.delete, "purge": s.purge, "purge_kept": s.purgeKept,
	}
}
