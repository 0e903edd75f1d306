package pglog_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/devtest/logtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/relay/broker"
)

// The most rows that a statement of a term may write or return, and the most bytes that it may get.
// See budget.go. A pass returns up to a page of three kinds.
const (
	mostRows  = 1000
	mostBytes = 256 << 10
)

var moreRows = map[string]int64{
	"pass": 3*bulkPage + 2, "held_ahead": 10_000, "held_keys": 10_000, "unlocked": 2 * bulkPage, "still_due": 2 * bulkPage,
	"republish_page": bulkPage + 1,
}

// statementTracer notes how many rows and bytes each statement of pglog had at most.
type statementTracer struct {
	names map[string]string // by their texts

	mu    sync.Mutex
	rows  map[string]int64
	bytes map[string]int
	total map[string]int // bytes, together
}

func newStatementTracer() *statementTracer {
	s := &statementTracer{names: map[string]string{}, rows: map[string]int64{}, bytes: map[string]int{}, total: map[string]int{}}
	for _, name := range statementNames() {
		s.names[pglog.SQL(name)] = name
	}
	return s
}

// statementNames returns the names of the statements of pglog.
func statementNames() (names []string) {
	files, _ := os.ReadDir("sql")
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".sql"))
	}
	return names
}

func (s *statementTracer) note(sql string, args []any, rows int64) {
	name, ok := s.names[sql]
	if !ok {
		return
	}
	bytes := 0
	for _, arg := range args {
		if text, ok := arg.(*string); ok && text != nil {
			arg = *text
		}
		bytes += len(fmt.Sprint(arg))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[name], s.bytes[name] = max(s.rows[name], rows), max(s.bytes[name], bytes)
	s.total[name] += bytes
}

// startedKey is the key of the statement in the context of its trace.
type startedKey struct{}

func (s *statementTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, startedKey{}, data)
}

func (s *statementTracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if q, ok := ctx.Value(startedKey{}).(pgx.TraceQueryStartData); ok {
		s.note(q.SQL, q.Args, data.CommandTag.RowsAffected())
	}
}

func (s *statementTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (s *statementTracer) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	s.note(data.SQL, data.Args, data.CommandTag.RowsAffected())
}

func (s *statementTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// check fails the test if a statement was larger than it may be.
func (s *statementTracer) check(t *testing.T) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(s.rows)) {
		if most := max(moreRows[name], mostRows); s.rows[name] > most {
			t.Errorf("%s: %d rows at once, want at most %d", name, s.rows[name], most)
		}
		if s.bytes[name] > mostBytes {
			t.Errorf("%s: %d bytes at once, want at most %d", name, s.bytes[name], mostBytes)
		}
	}
}

// tracedPool returns a pool whose statements, and those of terms, the tracer sees.
func tracedPool(t *testing.T) (*pgxpool.Pool, *statementTracer) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(devtest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	tracer := newStatementTracer()
	cfg.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, tracer
}

// insertMany writes n events in one transaction. The columns that set names have other values.
func insertMany(t *testing.T, pool *pgxpool.Pool, prefix string, n int, set string, values string) {
	t.Helper()
	mustExec(t, pool, fmt.Sprintf(`INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data%s)
		SELECT decode(repeat('00', 16), 'hex'), '/shop', '%s' || n, 'a.b', 'a.b', '{}'%s FROM generate_series(1, %d) n`, set, prefix, values, n))
}

// readUntilEmpty reads until there is nothing, and returns the events.
func readUntilEmpty(t *testing.T, term eventlog.Term) (all []broker.Event) {
	t.Helper()
	for {
		_, _, page := read(t, term, bulkPage)
		all = append(all, slices.Clone(page.Events)...)
		if len(page.Events) == 0 && !page.More && page.Scheduled == 0 {
			return all
		}
	}
}

func seqsOfEvents(events []broker.Event) (seqs []int64) {
	for _, ev := range events {
		seqs = append(seqs, ev.Seq)
	}
	return seqs
}

// everySecond returns every second of the seqs, which are then ranges of their own.
func everySecond(seqs []int64) (some []int64) {
	for i := 0; i < len(seqs); i += 2 {
		some = append(some, seqs[i])
	}
	return some
}

// Each statement of a term is limited in rows and bytes, whatever a log has to offer: thousands of
// scheduled events in one transaction, thousands of late rows each of which is a range of its own,
// large bodies behind a refused event, thousands of events that a broker lost.
func TestStatementsOfATermAreBounded(t *testing.T) {
	t.Parallel()
	pool, tracer := tracedPool(t)
	log := pglog.New(pool)

	// Scheduled events, many and large ones.
	insertMany(t, pool, "later", 2500, ", not_before", ", now() + interval '1 day'")
	insertMany(t, pool, "large", 12, ", not_before, headers", `, now() + interval '1 day', '{"a": "b"}'`)
	mustExec(t, pool, "UPDATE postroom.outbox SET data = convert_to(repeat('x', 900000), 'UTF8') WHERE event_id LIKE 'large%'")
	term := lead(t, log)
	if events := readUntilEmpty(t, term); len(events) != 0 {
		t.Errorf("%d scheduled events are published now", len(events))
	}
	logtest.RecordAll(t, term, eventlog.Progress{})

	// They become due, and are published.
	mustExec(t, pool, "UPDATE postroom.held SET next_at = clock_timestamp() - interval '1 s'")
	due := readUntilEmpty(t, term)
	at := broker.StreamPosition{Stream: "SHOP", Created: time.Unix(7, 0), Seq: 1, MessageID: "m"}
	if err := term.Record(t.Context(), eventlog.Progress{Published: seqsOfEvents(due), Positions: []broker.StreamPosition{at}}); err != nil {
		t.Fatal(err)
	}
	if _, left := term.Unrecorded(); left < len(due)-mostRows {
		t.Errorf("one recording removes %d events from held, want at most %d", len(due)-left, mostRows)
	}
	logtest.RecordAll(t, term, eventlog.Progress{})

	// A refused event, with many behind it, which are read and refused again. One cannot be held.
	insertMany(t, pool, "behind", 2500, ", key", ", 'k'")
	mustExec(t, pool, refuseEvil)
	insertMany(t, pool, "evil", 1, "", "")
	logtest.RecordAll(t, term, eventlog.Progress{Held: deferrals(refusal(1), readUntilEmpty(t, term)...)})
	overrideNextAtOfDue(t, pool)
	again := readUntilEmpty(t, term)
	logtest.RecordAll(t, term, eventlog.Progress{Held: []eventlog.Deferral{{Seq: again[0].Seq, Key: "k", Failure: refusal(2)}}, Returned: seqsOfEvents(again[1:])})
	if _, err := term.HeldKeys(t.Context()); err != nil {
		t.Fatal(err)
	}

	// A load that commits late, with another one between its rows.
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // no effect after the commit
	load(t, tx, 8000, "nextval('postroom.outbox_seq_seq') > 0")
	write(t, pool, "newer")
	logtest.RecordAll(t, term, eventlog.Progress{Published: seqsOfEvents(readUntilEmpty(t, term))})
	commit(t, tx)
	var published []int64
	for len(published) < 8000 {
		_, seqs, page := read(t, term, bulkPage)
		if len(seqs) == 0 && !page.More {
			t.Fatalf("%d of the late rows were read", len(published))
		}
		published = append(published, seqs...)
		logtest.RecordAll(t, term, eventlog.Progress{Published: seqs})
		if len(published) == 3000 { // another leader goes on
			if err := term.Abandon(); err != nil {
				t.Fatal(err)
			}
			term = lead(t, log)
		}
	}

	// The broker loses every second event of these, and more whose order is lost.
	slices.Sort(published)
	lost := everySecond(published)
	insertMany(t, pool, "behind-key", 12_000, "", "")
	more := seqsOfEvents(readUntilEmpty(t, term))
	logtest.RecordAll(t, term, eventlog.Progress{Published: more})
	logtest.RecordAll(t, term, eventlog.Progress{Lost: lost, LostBehindKey: everySecond(more)})
	found := readUntilEmpty(t, term)
	if len(found) != len(lost) {
		t.Errorf("%d lost events are read again, want %d", len(found), len(lost))
	}
	logtest.RecordAll(t, term, eventlog.Progress{Published: seqsOfEvents(found)})
	if err := term.Abandon(); err != nil {
		t.Fatal(err)
	}
	term = lead(t, log)
	term.SearchAlways()
	readUntilEmpty(t, term)
	repeated := 0
	for range 100 {
		page, err := term.ReadRepublish(t.Context(), bulkPage)
		if err != nil {
			t.Fatal(err)
		}
		repeated += len(page.Events)
		publishAgain(t, term, page.Events...)
		if page.ID == 0 && repeated == 6000 {
			break
		}
	}
	if repeated != 6000 {
		t.Errorf("%d events are republished, want the 6000 whose order is lost", repeated)
	}
	republished, _, err := republishesOf(log).Republishes(t.Context(), postroom.Page{Limit: 10})
	if err != nil || len(republished) != 2 || slices.ContainsFunc(republished, func(r operator.Republish) bool { return r.State != operator.RepublishDone }) {
		t.Errorf("%d republishes, %v; want two that are done", len(republished), err)
	}

	// The rest of a term.
	if _, _, err := term.Prune(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := term.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	blocked, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	waitsForARow(t, pool, func() { _ = term.Record(blocked, eventlog.Progress{Published: []int64{1}}) })
	if err := lead(t, log).Release(t.Context(), eventlog.Progress{}); err != nil {
		t.Fatal(err)
	}

	tracer.check(t)
	ofTerms := regexp.MustCompile(`(?m)^-- Called +by (?:[^.]|\.[^\n])*\bTerm\.(?:[^.]|\.[^\n])*`)
	for _, name := range statementNames() {
		if _, ran := tracer.rows[name]; !ran && ofTerms.MatchString(pglog.SQL(name)) && name != "late_by_seq" { // see TestSearchFindsRowsThatBecameVisible
			t.Errorf("%s: a term uses it, and this test does not know whether it is bounded", name)
		}
	}
	t.Logf("rows %v", tracer.rows)
	t.Logf("bytes %v", tracer.bytes)
}

// waitsForARow calls a function while another transaction has locked the row of the relay.
func waitsForARow(t *testing.T, pool *pgxpool.Pool, f func()) (pid uint32) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM postroom.relay FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	f()
	return tx.Conn().PgConn().PID()
}

// If a recording does not end in time, its error says what it has, and for which process it waits.
func TestARecordingThatWaitsSaysForWhomAndWhatItHas(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	insertMany(t, pool, "later", 7, ", not_before", ", now() + interval '1 day'")
	term := lead(t, pglog.New(pool))
	readUntilEmpty(t, term)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var err error
	pid := waitsForARow(t, pool, func() { err = term.Record(ctx, eventlog.Progress{}) })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Record = %v, want %v", err, context.DeadlineExceeded)
	}
	for _, want := range []string{"7 scheduled events to hold", "14 bytes of events", "waited for a lock of process " + fmt.Sprint(pid), "idle in transaction"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}

// Thousands of scheduled events are held in portions. Events that come behind them are published
// and recorded meanwhile: after a crash no one is published again, and none is forgotten.
func TestScheduledEventsAreHeldInPortions(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	const n = 3*mostRows - 1
	insertMany(t, pool, "later", n, ", not_before", ", now() + interval '1 day'")
	write(t, pool, "now")
	term := lead(t, log)
	events := readUntilEmpty(t, term)
	if len(events) != 1 || events[0].ID != "now" {
		t.Fatalf("read %d events, want the one behind the scheduled ones", len(events))
	}
	if err := term.Record(t.Context(), eventlog.Progress{Published: seqsOfEvents(events)}); err != nil {
		t.Fatal(err)
	}
	held, other := term.Unrecorded()
	if got := len(heldIDs(t, pool)); got != mostRows || held != 0 || other != n-mostRows {
		t.Errorf("one recording holds %d events, and %d and %d are left, want %d, 0 and %d", got, held, other, mostRows, n-mostRows)
	}
	if err := term.Abandon(); err != nil {
		t.Fatal(err)
	}

	term = lead(t, log)
	if again := readUntilEmpty(t, term); len(again) > 0 {
		t.Errorf("%d events are published again", len(again))
	}
	logtest.RecordAll(t, term, eventlog.Progress{})
	if got := len(heldIDs(t, pool)); got != n {
		t.Errorf("%d events are held, want %d", got, n)
	}
}

// While a scheduled event out of two waits for a recording, the reader reads only a limited number
// ahead. It goes on when they are held.
func TestScheduledEventsAmongOthersAreReadAheadToALimit(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	const n = 24_000
	insertMany(t, pool, "e", n, ", not_before", ", CASE WHEN n % 2 = 0 THEN now() + interval '1 day' END")
	term := lead(t, pglog.New(pool))
	first := len(readUntilEmpty(t, term))
	if first >= n/2 {
		t.Errorf("%d events were read while the scheduled ones among them wait", first)
	}
	for left := n/2 - first; left > 0; {
		logtest.RecordAll(t, term, eventlog.Progress{})
		more := len(readUntilEmpty(t, term))
		if more == 0 {
			t.Fatalf("%d events are left, and none is read", left)
		}
		left -= more
	}
	logtest.RecordAll(t, term, eventlog.Progress{})
	if got := len(heldIDs(t, pool)); got != n/2 {
		t.Errorf("%d events are held, want %d", got, n/2)
	}
}

// Bodies behind a refused event are held in portions of a few megabytes. The key keeps its order
// after a crash between two of them.
func TestLargeEventsAreHeldInPortions(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	commitLarge(t, pool, "k")
	term := lead(t, log)
	_, events := readBounded(t, term)
	if err := term.Record(t.Context(), eventlog.Progress{Held: deferrals(refusal(1), events...)}); err != nil {
		t.Fatal(err)
	}
	const portion = 4 << 20 / postroom.MaxData
	held, other := term.Unrecorded()
	if got := len(heldIDs(t, pool)); got != portion || held != len(large)-portion || other != 0 {
		t.Errorf("one recording holds %d events, and %d and %d are left, want %d, %d and 0", got, held, other, portion, len(large)-portion)
	}
	if err := term.Abandon(); err != nil {
		t.Fatal(err)
	}

	term = lead(t, log)
	keys, err := term.HeldKeys(t.Context())
	if err != nil || !slices.Equal(keys, []string{"k"}) {
		t.Errorf("held keys %v, %v, want k", keys, err)
	}
	_, events = readBoundedRest(t, term)
	var behind []eventlog.Deferral
	for _, ev := range events {
		behind = append(behind, eventlog.Deferral{Seq: ev.Seq, Key: "k"})
	}
	if err := term.Release(t.Context(), eventlog.Progress{Held: behind}); err != nil { // all of them, in several recordings
		t.Fatal(err)
	}
	wantIDs(t, heldIDs(t, pool), large...)
}

// Events that were put back keep their sizes: if their key is refused, each recording holds a few.
func TestLargeEventsThatWerePutBackAreHeldInPortions(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	commitLarge(t, pool, "k")
	term := lead(t, pglog.New(pool))
	_, events := readBounded(t, term)
	term.PutBack(seqsOfEvents(events))
	if err := term.Record(t.Context(), eventlog.Progress{Held: deferrals(refusal(1), events...)}); err != nil {
		t.Fatal(err)
	}
	held, _ := term.Unrecorded()
	if got, want := len(heldIDs(t, pool)), 4<<20/postroom.MaxData; got != want || held != len(large)-want {
		t.Errorf("one recording holds %d events, and %d are left, want %d and %d", got, held, want, len(large)-want)
	}
}

// readBoundedRest reads until there are no more events.
func readBoundedRest(t *testing.T, term eventlog.Term) (ids []string, events []broker.Event) {
	t.Helper()
	for {
		found, _, page := read(t, term, 1000)
		ids, events = append(ids, found...), append(events, slices.Clone(page.Events)...)
		if !page.More {
			return ids, events
		}
	}
}

// lateLoad is a load of n rows with a gap behind each row, which commits after a newer event was
// published.
func lateLoad(t *testing.T, pool *pgxpool.Pool, log *pglog.Log, n int) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // no effect after the commit
	load(t, tx, n, "nextval('postroom.outbox_seq_seq') > 0")
	write(t, pool, "newer")
	term := lead(t, log)
	logtest.RecordAll(t, term, eventlog.Progress{Published: seqsOfEvents(readUntilEmpty(t, term))})
	if err := term.Release(t.Context(), eventlog.Progress{}); err != nil {
		t.Fatal(err)
	}
	commit(t, tx)
}

// Two loads at once leave late rows that are ranges of their own. What recordings write then grows
// with the number of rows, and not with its square. Leaders take over from each other: each event is
// published once, except those whose results were not recorded.
func TestALongBacklogIsNotWrittenAgainAndAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		then func(t *testing.T, pool *pgxpool.Pool) // between two terms
	}{
		{"another leader takes over", func(*testing.T, *pgxpool.Pool) {}},
		{"the log is restored", func(t *testing.T, pool *pgxpool.Pool) {
			mustExec(t, pool, "UPDATE postroom.relay SET cluster = cluster + 1")
		}},
		{"the complete backlog was recorded", func(t *testing.T, pool *pgxpool.Pool) { // as by adopt.sql
			mustExec(t, pool, `UPDATE postroom.relay AS r SET snap = catch_up_snap, catch_up_snap = NULL, catch_up_passed = 0, catch_up_open = '{}',
				pending = catch_up_open + (SELECT range_agg(int8range(seq, seq, '[]')) FROM postroom.outbox WHERE source = '/bulk' AND seq > r.catch_up_passed)
				WHERE catch_up_snap IS NOT NULL`)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool, tracer := tracedPool(t)
			log := pglog.New(pool)
			const rows = 12_000
			lateLoad(t, pool, log, rows)
			write(t, pool, "newest")
			clear(tracer.total)
			j := newJournal()
			unrecorded := map[string]bool{}
			terms := 0
			for ; len(j.ids) < rows+1+len(unrecorded); terms++ {
				term := lead(t, log)
				for range 3 {
					ids, seqs, page := read(t, term, bulkPage)
					j.add(t, page.Events)
					few := max(len(seqs)-3, 0)
					logtest.RecordAll(t, term, eventlog.Progress{Published: seqs[:few]})
					for _, id := range ids[few:] {
						unrecorded[id] = true
					}
				}
				if err := term.Abandon(); err != nil {
					t.Fatal(err)
				}
				if terms > rows/bulkPage {
					t.Fatalf("%d of %d events after %d terms", len(j.ids), rows, terms)
				}
				tt.then(t, pool)
			}
			counts := map[string]int{}
			for _, id := range j.ids {
				counts[id]++
			}
			for id, n := range counts {
				if n > 1 && !unrecorded[id] {
					t.Errorf("%s was published %d times, and its result was recorded", id, n)
				}
			}
			if counts["newest"] == 0 || len(counts) != rows+1 {
				t.Errorf("%d events were published, want %d", len(counts), rows+1)
			}
			tracer.check(t)
			// A range takes about 15 bytes.
			if most := 15 * rows * 2; tracer.total["record"] > most {
				t.Errorf("the recordings had %d bytes together, want at most %d", tracer.total["record"], most)
			}
		})
	}
}

// Events that a broker lost are read again in pages, and recordings do not list them all. Until the
// last of them was read, the recorded positions of the streams stay as they were: if the leader
// crashes, the next one finds the loss again.
func TestManyLostEventsAreNotListed(t *testing.T) {
	t.Parallel()
	pool, tracer := tracedPool(t)
	log := pglog.New(pool)
	insertMany(t, pool, "e", 10_000, "", "")
	term := lead(t, log)
	seqs := seqsOfEvents(readUntilEmpty(t, term))
	old := broker.StreamPosition{Stream: "SHOP", Created: time.Unix(7, 0), Seq: 10_000, MessageID: "old"}
	logtest.RecordAll(t, term, eventlog.Progress{Published: seqs, Positions: []broker.StreamPosition{old}})

	lost := everySecond(seqs)
	cut := old
	cut.Seq, cut.MessageID = 1, "cut"
	wantPosition := func(want string) {
		t.Helper()
		at, err := log.Positions(t.Context())
		if err != nil || len(at) != 1 || at[0].MessageID != want {
			t.Errorf("positions %+v, %v; want %s", at, err, want)
		}
	}
	record := func(p eventlog.Progress) {
		t.Helper()
		if err := term.Record(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	record(eventlog.Progress{Lost: lost, Positions: []broker.StreamPosition{cut}})
	wantPosition("old")
	var again []int64
	for range 2 {
		_, some, _ := read(t, term, bulkPage)
		again = append(again, some...)
		record(eventlog.Progress{Published: some})
		wantPosition("old")
	}
	if err := term.Abandon(); err != nil {
		t.Fatal(err)
	}

	term = lead(t, log)
	for _, ev := range readUntilEmpty(t, term) { // what was on its way, or read from the list
		again = append(again, ev.Seq)
		record(eventlog.Progress{Published: []int64{ev.Seq}})
	}
	rest := slices.DeleteFunc(slices.Clone(lost), func(seq int64) bool { return slices.Contains(again, seq) })
	if len(rest) == 0 {
		t.Fatal("inconclusive: all events were read again")
	}
	record(eventlog.Progress{Lost: rest, Positions: []broker.StreamPosition{cut}}) // it has compared the stream again
	write(t, pool, "newer")
	for len(again) <= len(lost) {
		ids, some, _ := read(t, term, bulkPage)
		if len(some) == 0 {
			t.Fatalf("%d of %d lost events were read again", len(again), len(lost))
		}
		if slices.Contains(ids, "newer") && len(again)+len(some) <= len(lost) {
			t.Error("a newer event comes before lost ones")
		}
		again = append(again, some...)
		record(eventlog.Progress{Published: some})
	}
	wantPosition("cut")
	slices.Sort(again)
	if !slices.Equal(again[:len(lost)], lost) {
		t.Errorf("%d events were read again, want each lost one once", len(again)-1)
	}
	tracer.check(t)
}

// A page ends when the headers of its events have reached the size of a page, also if the table has
// them in a compressed form, or as a number of a few bytes and many digits.
func TestAPageIsBoundedByItsHeaders(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"compressed": "repeat('x', 30000)", "not compressed": "(SELECT string_agg(md5(n::text || i::text), '') FROM generate_series(1, 900) i)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			const n = 400
			insertMany(t, pool, "e", n, ", headers", ", jsonb_build_object('h', "+value+")")
			term := lead(t, pglog.New(pool))
			total := 0
			for pages := 1; total < n; pages++ {
				_, seqs, page := read(t, term, 1000)
				bytes := 0
				for i := range page.Events {
					bytes += page.Events[i].Size()
				}
				if total += len(seqs); bytes > eventlog.PageBytes+2*postroom.MaxHeaderBytes || !page.More && total < n || pages > 10 {
					t.Fatalf("page %d has %d bytes, and says that there is more: %t; %d of %d events are read", pages, bytes, page.More, total, n)
				}
			}
		})
	}
}

// The lists of what is held are read in parts, and completely.
func TestLongListsOfHeldEvents(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	const n = 10_002
	insertMany(t, pool, "e", n, "", "")
	mustExec(t, pool, `INSERT INTO postroom.held (handler, pos, chain, next_at, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'outbox', seq, 'k' || seq, now() + interval '1 h', now(), source, event_id, type, subject, 'text/plain', '' FROM postroom.outbox WHERE seq > 1`)
	term := lead(t, pglog.New(pool))
	keys, err := term.HeldKeys(t.Context())
	if slices.Sort(keys); err != nil || len(slices.Compact(keys)) != n-1 {
		t.Errorf("%d keys, %v, want %d", len(keys), err, n-1)
	}
	if events := readUntilEmpty(t, term); len(events) != 1 {
		t.Errorf("%d events are read from the log, want the one that is not held", len(events))
	}
}

// The last held event of a key says so, and only that one.
func TestTheLastHeldEventOfAKeySaysSo(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	writeKeyed(t, pool, "k", "a", "b", "c")
	writeKeyed(t, pool, "other", "x")
	writeKeyed(t, pool, "", "free")
	insertMany(t, pool, "many", 150, ", key", ", 'many'")
	term := lead(t, pglog.New(pool))
	hold(t, term, refusal(1), readUntilEmpty(t, term)...)
	overrideNextAtOfDue(t, pool)
	last := map[string]bool{}
	_, _, page := read(t, term, bulkPage)
	if len(page.Events) != 155 {
		t.Errorf("a pass has %d of the 155 events that are due", len(page.Events))
	}
	for _, ev := range page.Events {
		if ev.Key != "many" {
			last[ev.ID] = ev.LastHeld
		} else if want := ev.ID == "many150"; ev.LastHeld != want {
			t.Errorf("%s is the last held event of its key: %t, want %t", ev.ID, ev.LastHeld, want)
		}
	}
	if want := map[string]bool{"a": false, "b": false, "c": true, "x": true, "free": false}; !maps.Equal(last, want) {
		t.Errorf("last held events %v, want %v", last, want)
	}
}

// A checkpoint is made when enough events were published from held, even if ten seconds have not
// passed: recordings write its list again and again.
func TestCheckpointsListFewEventsFromHeld(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	const n = 10*mostRows + 500
	insertMany(t, pool, "later", n, ", not_before", ", now() + interval '1 day'")
	write(t, pool, "now")
	term := lead(t, pglog.New(pool))
	at := broker.StreamPosition{Stream: "SHOP", Created: time.Unix(7, 0), Seq: 1, MessageID: "m"}
	logtest.RecordAll(t, term, eventlog.Progress{Published: seqsOfEvents(readUntilEmpty(t, term)), Positions: []broker.StreamPosition{at}})
	mustExec(t, pool, "UPDATE postroom.held SET next_at = clock_timestamp() - interval '1 s'")
	for left := n; left > 0; {
		_, seqs, _ := read(t, term, bulkPage)
		if len(seqs) == 0 {
			t.Fatalf("%d events are left", left)
		}
		left -= len(seqs)
		logtest.RecordAll(t, term, eventlog.Progress{Published: seqs})
	}
	noted := column[int64](t, pool, "SELECT (SELECT coalesce(sum(upper(p) - lower(p)), 0) FROM unnest(published_held) p)::bigint FROM postroom.relay_checkpoint ORDER BY id")
	if len(noted) != 2 || noted[0]+noted[1] != n || noted[0] > 10*mostRows {
		t.Errorf("the checkpoints list %v events, want two with at most %d", noted, 10*mostRows)
	}
}

// While a relay catches up, it makes no checkpoint: a checkpoint with the state from which it
// catches up would say of events that they come after the positions, and they come before.
func TestNoCheckpointWhileARelayCatchesUp(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	const rows = 4000
	lateLoad(t, pool, log, rows)
	term := lead(t, log)
	at := broker.StreamPosition{Stream: "SHOP", Created: time.Unix(7, 0), Seq: 1, MessageID: "m"}
	for published := 0; published < rows; {
		_, seqs, _ := read(t, term, bulkPage)
		if len(seqs) == 0 {
			t.Fatalf("%d of %d events are published", published, rows)
		}
		published += len(seqs)
		term.CheckpointNow()
		logtest.RecordAll(t, term, eventlog.Progress{Published: seqs, Positions: []broker.StreamPosition{at}})
		catchesUp := column[bool](t, pool, "SELECT catch_up_snap IS NOT NULL FROM postroom.relay")[0]
		made := column[int64](t, pool, "SELECT count(*) FROM postroom.relay_checkpoint")[0]
		if catchesUp == (published == rows) || (made > 0) == catchesUp {
			t.Errorf("%d of %d are published: it catches up %t, and there are %d checkpoints", published, rows, catchesUp, made)
		}
	}
}

// The relay has no room for some events, and puts them back into the log. They stay pending, and
// later events are recorded as published meanwhile. It reads them again when it has room, and the next
// leader reads those that it did not publish.
func TestEventsThatWerePutBack(t *testing.T) {
	t.Parallel()
	pool, tracer := tracedPool(t)
	log := pglog.New(pool)
	const n = 12_000
	insertMany(t, pool, "e", n, ", key", ", CASE WHEN n > 1000 AND n % 2 = 0 OR n <= 500 THEN 'hot' END")
	term := lead(t, log)
	var back, others []int64
	for _, ev := range readUntilEmpty(t, term) {
		if ev.Key == "hot" {
			back = append(back, ev.Seq)
		} else {
			others = append(others, ev.Seq)
		}
	}
	term.PutBack(back[:500]) // one range
	term.PutBack(back[500:]) // too many ranges to be listed
	logtest.RecordAll(t, term, eventlog.Progress{Published: others})
	// 2,000 of those that were put back, and 500 others.
	if ranges := column[int64](t, pool, "SELECT (SELECT count(*) FROM unnest(pending)) FROM postroom.relay")[0]; ranges > 2500 {
		t.Errorf("the recording lists %d ranges", ranges)
	}
	if again := readUntilEmpty(t, term); len(again) > 0 {
		t.Errorf("Read returns %d events that were put back", len(again))
	}
	mustExec(t, pool, "DELETE FROM postroom.outbox WHERE seq = $1", back[3])
	logtest.RecordAll(t, term, eventlog.Progress{Held: []eventlog.Deferral{{Seq: back[5], Key: "hot"}, {Seq: back[501], Key: "hot"}}})
	for _, part := range [][]int64{back[:100], back[500:600]} {
		page, through, err := term.ReadAgain(t.Context(), part)
		want := slices.DeleteFunc(slices.Clone(part), func(seq int64) bool { return seq == back[3] || seq == back[5] || seq == back[501] })
		missing := int64(0)
		if part[0] == back[0] {
			missing = 1
		}
		if got := seqsOfEvents(page.Events); err != nil || through != part[99] || page.Missing != missing || !slices.Equal(got, want) {
			t.Errorf("read again %d events through %d, %d missing, %v; want %d", len(got), through, page.Missing, err, len(want))
		}
		logtest.RecordAll(t, term, eventlog.Progress{Published: seqsOfEvents(page.Events)})
	}
	if err := term.Abandon(); err != nil {
		t.Fatal(err)
	}

	rest := slices.DeleteFunc(readUntilEmpty(t, lead(t, log)), func(ev broker.Event) bool { return ev.Held })
	got := seqsOfEvents(rest)
	slices.Sort(got)
	for _, seq := range append(slices.Clone(back[100:500]), back[600:]...) {
		if _, found := slices.BinarySearch(got, seq); !found {
			t.Fatalf("event %d was put back and not published, and the next leader does not read it", seq)
		}
	}
	if got[0] != back[100] {
		t.Errorf("the next leader begins with %d, want %d", got[0], back[100])
	}
	tracer.check(t)
}
