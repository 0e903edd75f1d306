package pglog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/devtest/logtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
)

// noise is an SQL expression for a body of n MB that the server cannot compress.
func noise(megabytes int) string {
	return fmt.Sprintf("(SELECT string_agg(sha256(int4send(n)), '') FROM generate_series(1, %d) n)", megabytes*1_000_000/32)
}

// insertChecked inserts a row as SQL does that says that it has checked it.
func insertChecked(t *testing.T, pool *pgxpool.Pool, id, data string) {
	t.Helper()
	mustExec(t, pool, fmt.Sprintf(`INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data, checked)
		VALUES ('', '/shop', '%s', 'a', 'a', %s, true)`, id, data))
}

// A row that is larger than one step of pruning leaves the log as the others do.
func TestABodyLargerThanAStepIsPruned(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "before")
	insertChecked(t, pool, "large", noise(5))
	write(t, pool, "after")
	term := lead(t, pglog.New(pool))
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)
	for range 5 {
		if _, _, err := term.Prune(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	wantLog(t, pool)
}

// Values that are too large for an event are not read. They go to the table held in bounded recordings.
func TestEnormousValuesAreHeldInPortions(t *testing.T) {
	t.Parallel()
	const rows = 40
	for name, tt := range map[string]struct {
		set  string
		rows int64 // at most, in one recording
	}{
		"bodies": {"data = " + noise(3), 1},
		"texts":  {"trace_state = repeat('x', 1000000)", 32},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			for n := range rows {
				insertChecked(t, pool, fmt.Sprint(n), "''")
			}
			mustExec(t, pool, "UPDATE postroom.outbox SET "+tt.set)
			term := lead(t, pglog.New(pool))
			var p eventlog.Progress
			for len(p.Held) < rows {
				_, seqs, _ := read(t, term, rows)
				for _, seq := range seqs {
					p.Held = append(p.Held, eventlog.Deferral{Seq: seq, Failure: &eventlog.Failure{Class: "invalid_event", Text: "x", Dead: true}})
				}
			}
			logtest.RecordAll(t, term, p)
			if most := column[int64](t, pool, "SELECT max(count) FROM (SELECT count(*) FROM postroom.held GROUP BY held_at) AS recording")[0]; most > tt.rows {
				t.Errorf("one recording wrote %d rows, want at most %d", most, tt.rows)
			}
			if n := column[int64](t, pool, "SELECT count(*) FROM postroom.held")[0]; n != rows {
				t.Errorf("%d events are held, want %d", n, rows)
			}
		})
	}
}

// A text that is too large for an event is not read: a row could have more than the relay has memory for,
// or than the server can return.
func TestEnormousTextsAreNotRead(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for _, name := range []string{"event_id", "source", "type", "subject", "key", "content_type", "correlation_id", "causation_id", "trace_parent", "trace_state"} {
		size := 5_000_000
		if name == "event_id" || name == "source" || name == "causation_id" { // they have indexes
			size = 100_000
		}
		insertChecked(t, pool, name, "''")
		mustExec(t, pool, fmt.Sprintf("UPDATE postroom.outbox SET %[1]s = repeat('x', %[2]d) WHERE event_id = '%[1]s'", name, size))
	}
	for _, tt := range []struct {
		name string
		args []any
	}{
		{"pass", []any{0, 0, "1:1:", 100, []int64{}, "-infinity"}},
		{"pass", []any{100, 0, "1:1:", 100, []int64{}, "-infinity"}}, // all rows are late
		{"pending", []any{[]int64{1}, []int64{100}}},
		{"published", []any{0, 100, "1:1:", 0, "{}", 100, 0, []int64{}, []int64{}, []string{}, 0, 0, "{}", "1:1:", 0, false}},
	} {
		rows, err := pool.Query(t.Context(), pglog.SQL(tt.name), tt.args...)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; rows.Next(); n++ {
			for i, value := range rows.RawValues() {
				if len(value) > 10_000 {
					t.Errorf("%s: column %s has %d bytes", tt.name, rows.FieldDescriptions()[i].Name, len(value))
				}
			}
		}
		if rows.Err() != nil || n < 10 {
			t.Fatalf("%s: %d rows, %v", tt.name, n, rows.Err())
		}
	}
}

// A publisher that a user wrote gives a failure a class of any length. The event has its other attempts.
func TestAFailureOfAnyClassIsHeld(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "a", "b")
	term := lead(t, pglog.New(pool))
	_, _, page := read(t, term, 10)
	for i, class := range []string{strings.Repeat("é", 40), "a\x00b\xff"} {
		hold(t, term, &eventlog.Failure{Class: class, Text: "x", Attempts: 1}, page.Events[i])
	}
	got := column[string](t, pool, "SELECT class || ' ' || (dead_at IS NULL) FROM postroom.held ORDER BY pos")
	if want := []string{strings.Repeat("é", 32) + " true", "a?b? true"}; !slices.Equal(got, want) {
		t.Errorf("held %q, want %q", got, want)
	}
}

// Of a body of any size, the table held gets as much as a recording can write within a lease, and as much
// as an operator can export.
func TestTheBodyOfAHeldEventIsBounded(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	insertChecked(t, pool, "large", noise(20))
	term := lead(t, pglog.New(pool))
	_, _, page := read(t, term, 10)
	hold(t, term, &eventlog.Failure{Class: "invalid_event", Text: "x", Dead: true}, page.Events...)
	got := column[string](t, pool, `SELECT octet_length(data) || ' ' || (data = (SELECT substring(o.data, 1, 16777216) FROM postroom.outbox o))
		|| ' ' || (convert_from(raw_headers, 'UTF8')::jsonb ->> 'body') FROM postroom.held`)
	if want := []string{"16777216 true 20000000 bytes, of which the first 16777216 are kept"}; !slices.Equal(got, want) {
		t.Errorf("held %q, want %q", got, want)
	}
}

// Operators can read what a producer writes and cancels, whatever its values are.
func TestWhatIsCancelledHasValuesThatCanBeRead(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	producer, role := devtest.RolePool(t, pool)
	mustExec(t, pool, fmt.Sprintf("SELECT postroom.grant_producer('%s')", role))
	texts := []string{"type", "subject", "key", "content_type", "correlation_id", "trace_parent", "trace_state"}
	large := strings.Repeat(", repeat('x', 1000000)", len(texts))
	mustExec(t, producer, `INSERT INTO postroom.outbox (digest, source, event_id, data, checked, occurred_at, not_before, `+strings.Join(texts, ", ")+`)
		VALUES ('', '/shop', 'large', `+noise(17)+`, true, 'infinity', 'infinity'`+large+`)`)
	mustExec(t, producer, "SELECT postroom.cancel('/shop', 'large')")
	for _, name := range texts {
		if name == "key" {
			name = "key"
		}
		if n := column[int64](t, pool, "SELECT octet_length("+name+")::bigint FROM postroom.archive")[0]; n > 1000 {
			t.Errorf("%s has %d bytes", name, n)
		}
	}
	if n := column[int64](t, pool, "SELECT count(*) FROM postroom.archive WHERE isfinite(logged_at) AND occurred_at IS NULL AND octet_length(data) = 16777216")[0]; n != 1 {
		t.Error("the archive has an infinite time, or a body of any size")
	}
}

// The relay adds to the seqs of a republish, and seqs near the largest number would stop it.
func TestARepublishHasSeqsThatTheRelayCanCount(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	mustExec(t, pool, "INSERT INTO postroom.republish (actor, kind, lo, hi, events, rate, digest, passed) VALUES ('x', 'range', 1, 1, 1, 1, 'x', 0)")
	for _, set := range []string{
		"passed = 9223372036854775807", "hi = 9223372036854775807", "hi = 9223372036854775807, passed = 9223372036854775807",
		"pending = '{[9223372036854775806,9223372036854775807)}'", "seqs = '{[1,2),[9223372036854775806,9223372036854775807)}'",
		"pending = '{[1,)}'", "seqs = '{(,2)}'",
	} {
		if _, err := pool.Exec(t.Context(), "UPDATE postroom.republish SET "+set); err == nil {
			t.Errorf("SET %s is accepted", set)
		}
	}
}

// The relay reads the rate of a republish as a JSON number, and JSON has no number for these rates.
func TestARepublishHasAFiniteRate(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for _, rate := range []string{"NaN", "Infinity"} {
		_, err := pool.Exec(t.Context(), "INSERT INTO postroom.republish (actor, kind, lo, hi, events, rate, digest, passed) VALUES ('x', 'range', 1, 1, 1, $1::text::float8, $1, 0)", rate)
		if err == nil || !strings.Contains(err.Error(), "republish_rate_check") {
			t.Errorf("a rate of %s: %v", rate, err)
		}
	}
}
