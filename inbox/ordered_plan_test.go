package inbox_test

import (
	"fmt"
	"testing"
)

// Events that wait behind one key cost other events nothing, of that key or of another, even
// on connections whose plans were made while no event was held.
func TestOrderedPlansFromEmptyTablesStayFast(t *testing.T) {
	t.Parallel()
	p := newPlans(t)
	const holdParameters = `(text[], text[], bytea[], bool, bigint[], interval[], int[], bool[], text[], bytea[], text[], timestamptz[],
		text[], text[], text[], text[], text[], text[], text[], text[], timestamptz[], text[], text[], text[], bytea[], bytea[], text[], bool[], bigint[], bool[])`
	hold := func(key string, pos int) string {
		return fmt.Sprintf(`'{h}', '{new-%s-%d}', '{NULL}', true, '{%d}', '{0}', '{0}', '{f}', '{NULL}', '{NULL}', '{NULL}', '{now}',
			'{/s}', '{e}', '{a.b}', '{a.b}', '{%s}', '{text/plain}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{""}', '{NULL}', '{%s}', '{f}', '{0}', '{f}'`,
			key, pos, pos, key, key)
	}
	decide := func(key string, pos int) string {
		return fmt.Sprintf(`'h', 'd-%s', NULL, '1000', '%s', %d, 0`, key, key, pos)
	}
	statements := []struct {
		file, parameters, before string
		calls                    []string
		pages                    int // the most pages that one call may read
	}{
		{"decide_ordered", "(text, text, bytea, text, text, bigint, bigint)", "", []string{decide("k", 90000), decide("k", 1), decide("other", 7)}, 200},
		{"hold", holdParameters, "", []string{hold("k", 90000), hold("k", 1), hold("other", 7)}, 250},
		{"follow", "(text, text, bigint, text, interval, text, text, bigint)", p.text("plan"), []string{
			"'h', 'k', 10, 'p', '1 h', 'a.b', NULL, 1000", "'h', 'k', 25000, 'p', '1 h', 'a.b', NULL, 1000", "'h', 'k', 60000, NULL, '1 h', NULL, 'x', 1000",
		}, 100},
	}
	p.do("INSERT INTO postroom.subscription (handler, stream, stream_created) VALUES ('h', 'S', now())")
	for _, s := range statements {
		p.prepare(s.file, s.parameters, s.before, s.calls[0])
	}
	p.do(`INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h', n::text FROM generate_series(1, 50000) n`)
	p.do(`INSERT INTO postroom.held (handler, dedupe_key, chain, pos, dead_at, class, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'h', n::text, 'k', n + 5, CASE WHEN n = 1 THEN now() END, 'x', now(), '/shop', n::text, 'a.b', 'a.b', 'text/plain', '' FROM generate_series(1, 50000) n`)
	for _, then := range []string{"SELECT 1", "ANALYZE postroom.held, postroom.inbox"} { // and with plans made then
		p.do(then)
		for _, s := range statements {
			for _, call := range s.calls {
				p.wantPages(s.file, s.before, call, s.pages)
			}
		}
	}
}
