package doctor_test

import (
	"testing"

	"github.com/postroom/postroom/doctor"
	"github.com/postroom/postroom/internal/devtest"
)

// Whether a dead event is old depends on the time of its own handler, and not on the time of
// another handler.
func TestDeadEventsAreOldByTheirHandler(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, `INSERT INTO postroom.node (id, name, handlers, dedupe_windows, max_event_ages, longest_window)
		VALUES (gen_random_uuid(), 'p', '{mail,payments}', '{7 d,90 d}', '{6 d,87 d}', '90 d')`)
	exec(t, pool, "INSERT INTO postroom.dedupe_window (handler, kept) VALUES ('mail', '7 d'), ('payments', '90 d')")
	exec(t, pool, "INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('mail', 'a'), ('payments', 'a')")
	exec(t, pool, `INSERT INTO postroom.held (handler, dedupe_key, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
		SELECT handler, 'a', now() - age::interval, 'x', now(), '/shop', 'a', 'a.b', 'a.b', 'text/plain', '' FROM (VALUES ('mail', '6 d'), ('payments', '40 d')) h (handler, age)`)
	report := examine(t, pool, nil, doctor.Config{})
	wantOne(t, report, "dedupe-window", doctor.OK, "2 handlers are kept for 7.0 days to 90.0 days and relied on for 6.0 days to 87.0 days")
	wantOne(t, report, "dead-events", doctor.OK, "7.0 days to 90.0 days")
	exec(t, pool, "UPDATE postroom.held SET dead_at = now() - interval '8 d' WHERE handler = 'mail'")
	wantOne(t, examine(t, pool, nil, doctor.Config{}), "dead-events", doctor.Warning, "1 event is dead for longer", "the oldest for 8.0 days")
}
