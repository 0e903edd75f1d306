package pglog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/relay/broker"
)

// lead begins a term. At the test's end it abandons the term if that is still alive.
func lead(t *testing.T, log *pglog.Log) *pglog.Term {
	t.Helper()
	term, err := pglog.Lead(t.Context(), log, "test", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = term.Abandon() })
	return term
}

func TestTermFindsRowsThatBecomeVisibleLate(t *testing.T) {
	t.Parallel()
	t.Run("a transaction that was open in the previous pass", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		early := openWith(t, pool, "early")
		write(t, pool, "b", "c")
		term := lead(t, pglog.New(pool))
		ids, _, _ := read(t, term, 10)
		wantIDs(t, ids, "b", "c")
		commit(t, early)
		write(t, pool, "d")
		ids, _, page := read(t, term, 10)
		wantIDs(t, ids, "early", "d")
		if page.Late != 1 {
			t.Errorf("Late = %d, want 1", page.Late)
		}
		ids, _, _ = read(t, term, 10)
		wantIDs(t, ids)
	})

	t.Run("a transaction that began later with a seq it had taken before", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		var seq int64
		if err := pool.QueryRow(t.Context(), "SELECT nextval('postroom.outbox_seq_seq')").Scan(&seq); err != nil {
			t.Fatal(err)
		}
		write(t, pool, "b")
		term := lead(t, pglog.New(pool))
		ids, _, _ := read(t, term, 10)
		wantIDs(t, ids, "b")
		mustExec(t, pool, `INSERT INTO postroom.outbox (seq, digest, source, event_id, type, subject, data)
			OVERRIDING SYSTEM VALUE VALUES ($1, decode(repeat('00', 16), 'hex'), '/shop', 'slow', 'a.b', 'a.b', '')`, seq)
		ids, _, _ = read(t, term, 10)
		wantIDs(t, ids, "slow")
	})

	t.Run("more of them than a page: they wait for no event and hold newer rows back", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		bulk := openWith(t, pool, "bulk0")
		for i := 1; i < 25; i++ {
			if err := shop.Write(t.Context(), bulk, named(fmt.Sprint("bulk", i))); err != nil {
				t.Fatal(err)
			}
		}
		write(t, pool, "b")
		term := lead(t, pglog.New(pool))
		ids, _, _ := read(t, term, 10)
		wantIDs(t, ids, "b")
		commit(t, bulk)
		write(t, pool, "c")

		var all []string
		for range 4 {
			ids, _, page := read(t, term, 10)
			if len(page.Events) > 10 {
				t.Errorf("a pass of at most 10 returned %d", len(page.Events))
			}
			all = append(all, ids...)
		}
		var want []string
		for i := range 25 {
			want = append(want, fmt.Sprint("bulk", i))
		}
		wantIDs(t, all, append(want, "c")...)
	})
}

// Read uses the memory that the caller gives, if it is large enough. Nothing of the previous page
// is left in it.
func TestTermReadsIntoTheCallersMemory(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	term := lead(t, pglog.New(pool))
	memory := make([]broker.Event, 0, 2)
	for _, pass := range []struct {
		write, want []string
		inPlace     bool
	}{
		{[]string{"a", "b"}, []string{"a", "b"}, true},
		{[]string{"c"}, []string{"c"}, true},
		{[]string{"d", "e", "f"}, []string{"d", "e", "f"}, false},
		{nil, nil, false},
	} {
		write(t, pool, pass.write...)
		page, err := term.Read(t.Context(), 10, memory)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, ev := range page.Events {
			ids = append(ids, ev.ID)
		}
		wantIDs(t, ids, pass.want...)
		if inPlace := len(page.Events) > 0 && &page.Events[0] == &memory[:1][0]; inPlace != pass.inPlace {
			t.Errorf("page of %v lies in the caller's memory: %t, want %t", ids, inPlace, pass.inPlace)
		}
	}
}

func TestTermBeginsWhereTheLastOneRecorded(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	late := openWith(t, pool, "late")
	write(t, pool, "a", "b", "c", "d")
	term := lead(t, log)
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs[0], seqs[2]) // b and d are in flight
	commit(t, late)

	term = lead(t, log)
	ids, _, _ := read(t, term, 10)
	wantIDs(t, ids, "late", "b") // not published yet, in the order of their seqs
	ids, seqs, _ = read(t, term, 10)
	wantIDs(t, ids, "d") // above the recorded high
	record(t, term, seqs...)
}

func TestTermReportsOwedRowsThatAreGone(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	write(t, pool, "a", "b", "c")
	term := lead(t, log)
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs[2]) // a and b are not published
	mustExec(t, pool, "DELETE FROM postroom.outbox WHERE event_id = 'a'")

	term = lead(t, log)
	ids, seqs, page := read(t, term, 10)
	wantIDs(t, ids, "b")
	if page.Missing != 1 {
		t.Errorf("Missing = %d, want 1", page.Missing)
	}
	record(t, term, seqs...)
	var pending string
	if err := pool.QueryRow(t.Context(), "SELECT pending::text FROM postroom.relay").Scan(&pending); err != nil {
		t.Fatal(err)
	}
	if pending != "{}" {
		t.Errorf("pending = %s after all is published, want {}", pending)
	}
}

func TestTermReturnsEventsWhole(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	at := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC)
	want := postroom.Event{
		ID: "one", Type: "order.placed", Subject: "eu.order.placed", Key: "Müller & Söhne", Time: at,
		ContentType: "text/plain", Data: []byte{0, 1, 255}, Headers: map[string]string{"x-tenant": "a b", "quote": `"`},
		CorrelationID: "process 1", CausationID: "cause",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=b",
	}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, want) })
	if err != nil {
		t.Fatal(err)
	}
	_, _, page := read(t, lead(t, pglog.New(pool)), 10)
	got := page.Events[0].Event
	if since := time.Since(got.LoggedAt); since < 0 || since > time.Minute {
		t.Errorf("LoggedAt is %s ago", since)
	}
	got.LoggedAt, want.Source = time.Time{}, "/shop"
	if !got.Time.Equal(at) {
		t.Errorf("Time = %s, want %s", got.Time, at)
	}
	got.Time = at
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("read  %s\nwrote %s", g, w)
	}
}

func TestLease(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	first := lead(t, log)
	if _, err := log.Lead(t.Context(), "other", time.Minute); !errors.Is(err, eventlog.ErrLeaseHeld) {
		t.Errorf("Lead while another leads = %v, want ErrLeaseHeld", err)
	}

	again := lead(t, log) // the same owner, after it lost its connection
	if err := first.Record(t.Context(), eventlog.Progress{}); !errors.Is(err, eventlog.ErrLeaseLost) {
		t.Errorf("Record in a former term = %v, want ErrLeaseLost", err)
	}
	write(t, pool, "a")
	_, seqs, _ := read(t, first, 10)
	if err := first.Record(t.Context(), eventlog.Progress{Published: seqs}); !errors.Is(err, eventlog.ErrLeaseLost) {
		t.Errorf("Record of an event in a former term = %v, want ErrLeaseLost", err)
	}
	if err := first.Release(t.Context(), eventlog.Progress{}); !errors.Is(err, eventlog.ErrLeaseLost) {
		t.Errorf("Release of a former term = %v, want ErrLeaseLost", err)
	}
	ids, _, _ := read(t, again, 10)
	wantIDs(t, ids, "a")

	if err := again.Release(t.Context(), eventlog.Progress{}); err != nil {
		t.Errorf("Release = %v", err)
	}
	other, err := pglog.Lead(t.Context(), log, "other", time.Minute)
	if err != nil {
		t.Fatalf("Lead after a release = %v", err)
	}
	mustExec(t, pool, "UPDATE postroom.relay SET expires_at = clock_timestamp() - interval '1 ms'")
	third := lead(t, log)
	if err := other.Record(t.Context(), eventlog.Progress{}); !errors.Is(err, eventlog.ErrLeaseLost) {
		t.Errorf("Record after the lease ran out and was taken = %v, want ErrLeaseLost", err)
	}
	_, epoch := third.Token()
	if _, before := other.Token(); epoch <= before {
		t.Errorf("epoch %d follows %d: it must rise", epoch, before)
	}
}

func TestLeadAdoptsARestoredLog(t *testing.T) {
	t.Parallel()
	t.Run("into another cluster", func(t *testing.T) {
		t.Parallel()
		leadAdopts(t, "cluster + 1")
	})
	// A physical copy of a server into which logical replication copied the rows.
	t.Run("into a server with the same system identifier", func(t *testing.T) {
		t.Parallel()
		leadAdopts(t, "cluster")
	})
}

// leadAdopts leads a log that was moved here, with the given value of the column cluster.
func leadAdopts(t *testing.T, cluster string) {
	t.Helper()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	open := openWith(t, pool, "owed")
	write(t, pool, "published")
	term := lead(t, log)
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)
	commit(t, open) // visible late, and the dump was taken before a relay read it
	write(t, pool, "newer")
	// The log has transaction ids of another cluster, far ahead of the ids of this cluster.
	mustExec(t, pool, `ALTER TABLE postroom.outbox DISABLE TRIGGER ALL;
		UPDATE postroom.outbox SET xid = (xid::text::bigint + 1000000)::text::xid8;
		UPDATE postroom.relay SET cluster = `+cluster+`, timeline = 9,
			snap = (SELECT format('%s:%s:%s', pg_snapshot_xmin(snap)::text::bigint + 1000000, pg_snapshot_xmax(snap)::text::bigint + 1000000,
				(SELECT string_agg((x::text::bigint + 1000000)::text, ',') FROM pg_snapshot_xip(snap) x)))::pg_snapshot`)

	mustExec(t, pool, `INSERT INTO postroom.relay_checkpoint (streams, high, floor, snap, pending) SELECT '{"SHOP": {"seq": 1, "id": "/shop#published"}}', high, floor, snap, pending FROM postroom.relay`)

	term = lead(t, log)
	if marks, err := log.Checkpoints(t.Context(), "SHOP"); err != nil || len(marks) > 0 {
		t.Errorf("checkpoints %v, %v: a comparison would not find the event that is late", marks, err)
	}
	var here bool
	if err := pool.QueryRow(t.Context(), "SELECT r.timeline = c.timeline_id AND r.cluster = s.system_identifier FROM postroom.relay r, pg_control_checkpoint() c, pg_control_system() s").Scan(&here); err != nil || !here {
		t.Errorf("the position is of this server = %t, %v", here, err)
	}
	var floor, newest int64
	if err := pool.QueryRow(t.Context(), "SELECT floor, (SELECT max(seq) FROM postroom.outbox) FROM postroom.relay").Scan(&floor, &newest); err != nil || floor != newest {
		t.Errorf("floor = %d, %v; want %d: the ids of all rows so far mean nothing here", floor, err, newest)
	}
	ids, seqs, _ := read(t, term, 10)
	wantIDs(t, ids, "owed")
	record(t, term, seqs...)
	ids, seqs, _ = read(t, term, 10)
	wantIDs(t, ids, "newer")
	record(t, term, seqs...)
	write(t, pool, "written-here")
	ids, seqs, _ = read(t, term, 10)
	wantIDs(t, ids, "written-here")
	record(t, term, seqs...)
	ids, _, _ = read(t, lead(t, log), 10) // adopts nothing again
	wantIDs(t, ids)
}

// An old row may have the transaction id of a transaction that is open here. When that ends, the old
// row is not late.
func TestLeadForgetsTheIDsOfAServerThatIsAhead(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	write(t, pool, "published")
	mustExec(t, pool, "ALTER TABLE postroom.outbox DISABLE TRIGGER ALL")
	open := openWith(t, pool, "open")
	var id string
	if err := open.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text").Scan(&id); err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, `UPDATE postroom.outbox SET xid = '`+id+`';
		UPDATE postroom.relay SET high = (SELECT max(seq) FROM postroom.outbox), snap = '4000000000:4000000000:'`)

	term := lead(t, log)
	ids, _, _ := read(t, term, 10)
	wantIDs(t, ids)
	commit(t, open)
	ids, _, _ = read(t, term, 10)
	wantIDs(t, ids, "open")
}

// A relay of an older version led after the move. So the snapshot is of this server, but rows have
// transaction ids that this server has not reached. Transactions of this server may be open.
func TestLeadFindsRowsOfAServerThatIsAhead(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	write(t, pool, "ahead")
	mustExec(t, pool, `ALTER TABLE postroom.outbox DISABLE TRIGGER ALL;
		UPDATE postroom.outbox SET xid = (xid::text::bigint + 1000000)::text::xid8;
		ALTER TABLE postroom.outbox ENABLE TRIGGER ALL`)
	open := openWith(t, pool, "open")
	write(t, pool, "published")
	mustExec(t, pool, "UPDATE postroom.relay SET high = (SELECT max(seq) FROM postroom.outbox), snap = pg_current_snapshot()")

	term := lead(t, log)
	ids, seqs, _ := read(t, term, 10)
	wantIDs(t, ids, "ahead")
	record(t, term, seqs...)
	term = lead(t, log)
	ids, _, _ = read(t, term, 10)
	wantIDs(t, ids)
	commit(t, open)
	ids, seqs, _ = read(t, term, 10)
	wantIDs(t, ids, "open")
	record(t, term, seqs...)
	ids, _, _ = read(t, lead(t, log), 10)
	wantIDs(t, ids)
}

func TestLeadRefusesASequenceThatWouldLoseEvents(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, sql string
		want      error
	}{
		{"truncated with restart identity", "TRUNCATE postroom.outbox RESTART IDENTITY", pglog.ErrSequenceBehind},
		{"set back to the last seq", "SELECT setval('postroom.outbox_seq_seq', 3, false)", pglog.ErrSequenceBehind},
		{"cache", "ALTER SEQUENCE postroom.outbox_seq_seq CACHE 10", pglog.ErrSequenceOptions},
		{"increment", "ALTER SEQUENCE postroom.outbox_seq_seq INCREMENT 2", pglog.ErrSequenceOptions},
		{"cycle", "ALTER SEQUENCE postroom.outbox_seq_seq CYCLE", pglog.ErrSequenceOptions},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			log := pglog.New(pool)
			write(t, pool, "a", "b", "c")
			term := lead(t, log)
			_, seqs, _ := read(t, term, 10)
			if err := term.Release(t.Context(), eventlog.Progress{Published: seqs}); err != nil {
				t.Fatal(err)
			}
			mustExec(t, pool, tt.sql)
			_, err := log.Lead(t.Context(), "test", time.Minute)
			if !errors.Is(err, tt.want) || !errors.Is(err, postroom.ErrUnrecoverable) {
				t.Errorf("Lead = %v, want %v, refused", err, tt.want)
			}
			if err := log.Check(t.Context()); !errors.Is(err, tt.want) {
				t.Errorf("Check = %v, want %v", err, tt.want)
			}
			var held bool
			if err := pool.QueryRow(t.Context(), "SELECT expires_at > clock_timestamp() FROM postroom.relay").Scan(&held); err != nil || held {
				t.Errorf("lease held = %t, %v; a refused term gives it back", held, err)
			}
		})
	}
}

func TestLogInAnotherSchema(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	if err := pglog.New(pool).WithSchema("no such; schema").Check(t.Context()); !errors.Is(err, postroom.ErrUnrecoverable) {
		t.Errorf("Check with an invalid name = %v, want a refusal", err)
	}
	if err := pglog.New(pool).WithSchema("elsewhere").Check(t.Context()); err == nil || !strings.Contains(err.Error(), "migrate up") {
		t.Errorf("Check of a schema that does not exist = %v, want what to do", err)
	}
}

// If a connection is gone, the term ends with an error, whichever call notices it.
func TestTermEndsWithoutItsConnections(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "a")
	term := lead(t, pglog.New(pool))
	read(t, term, 10)
	mustExec(t, pool, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'postroom relay'")
	for range 3 {
		if _, err := term.Read(t.Context(), 10, nil); err == nil {
			t.Error("Read succeeded without its connection")
		}
		if _, err := term.HeldKeys(t.Context()); err == nil {
			t.Error("HeldKeys succeeded without its connection")
		}
		if _, _, err := term.Prune(t.Context(), time.Hour); err == nil {
			t.Error("Prune succeeded without its connection")
		}
		if err := term.Record(t.Context(), eventlog.Progress{Held: []eventlog.Deferral{{Seq: 1, Failure: dead()}}}); err == nil {
			t.Error("Record succeeded without its connection")
		}
	}
	if err := term.Release(t.Context(), eventlog.Progress{}); err != nil {
		t.Errorf("Release = %v; there is nothing to say on a closed connection", err)
	}
}
