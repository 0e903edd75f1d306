package pglog_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/relay/broker"
)

// large are the ids of events that are as large as events can be: three pages of them.
var large = []string{"l00", "l01", "l02", "l03", "l04", "l05", "l06", "l07", "l08", "l09", "l10", "l11", "l12"}

// writeLarge writes them in a transaction.
func writeLarge(t *testing.T, tx pgx.Tx, key string) {
	t.Helper()
	data := []byte(strings.Repeat("x", postroom.MaxData))
	for _, id := range large {
		if err := shop.Write(t.Context(), tx, postroom.Event{ID: id, Type: "order.placed", Key: key, ContentType: "text/plain", Data: data}); err != nil {
			t.Fatal(err)
		}
	}
}

func commitLarge(t *testing.T, pool *pgxpool.Pool, key string) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		writeLarge(t, tx, key)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wantBounded checks that a page is not larger than allowed. It also checks that the page is full,
// unless it may be short.
func wantBounded(t *testing.T, events []broker.Event, short bool) {
	t.Helper()
	bytes := 0
	for _, ev := range events {
		bytes += len(ev.Data)
	}
	if bytes >= eventlog.PageBytes+postroom.MaxData || !short && bytes < eventlog.PageBytes {
		t.Errorf("%d events have %d bytes, want about %d", len(events), bytes, eventlog.PageBytes)
	}
}

// readBounded reads until there are no more events, and returns the ids. Each page may have 1,000
// events, as if the events before were small.
func readBounded(t *testing.T, term *pglog.Term) (ids []string, events []broker.Event) {
	t.Helper()
	for pages := 1; ; pages++ {
		found, _, page := read(t, term, 1000)
		wantBounded(t, page.Events, !page.More)
		if page.Missing != 0 {
			t.Errorf("%d events are said to be missing", page.Missing)
		}
		ids, events = append(ids, found...), append(events, slices.Clone(page.Events)...)
		if !page.More {
			if pages != 3 {
				t.Errorf("%d pages, want 3", pages)
			}
			return ids, events
		}
	}
}

// wantLateBounded checks that a pass bounds the bytes of the late rows that it reads: the rows
// up to high that were not visible in snap. If they are too many, they are read again in
// pages.
func wantLateBounded(t *testing.T, pool *pgxpool.Pool, high int64, snap string) {
	t.Helper()
	var bytes int
	sql := strings.TrimSuffix(strings.TrimSpace(pglog.SQL("pass")), ";")
	err := pool.QueryRow(t.Context(), "SELECT sum(octet_length(data)) FROM ("+sql+") pass WHERE part = 1", high, 0, snap, 1000, []int64{}, "-infinity").Scan(&bytes)
	if err != nil {
		t.Fatal(err)
	}
	if bytes < eventlog.PageBytes || bytes >= eventlog.PageBytes+postroom.MaxData {
		t.Errorf("a pass reads %d bytes of late events, want about %d", bytes, eventlog.PageBytes)
	}
}

// Large events do not fill the memory. Each part of a page ends when its data has reached the
// size of a page, and the rest comes with the next page.
func TestAPageIsBoundedByItsBytes(t *testing.T) {
	t.Parallel()

	t.Run("new events", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		small := letters(100)
		write(t, pool, small...)
		commitLarge(t, pool, "")
		ids, events := readBounded(t, lead(t, pglog.New(pool)))
		wantIDs(t, ids, append(small, large...)...)
		if n := len(events[100].Data); n != postroom.MaxData {
			t.Errorf("the first large one has %d bytes", n)
		}
	})

	t.Run("late events", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }() // no effect after the commit
		writeLarge(t, tx, "")
		write(t, pool, "b")
		term := lead(t, pglog.New(pool))
		ids, seqs, _ := read(t, term, 1000)
		wantIDs(t, ids, "b")
		record(t, term, seqs...)
		var snap string
		if err := pool.QueryRow(t.Context(), "SELECT pg_current_snapshot()::text").Scan(&snap); err != nil {
			t.Fatal(err)
		}
		commit(t, tx)
		wantLateBounded(t, pool, seqs[0], snap)
		ids, events := readBounded(t, term)
		wantIDs(t, ids, large...)

		// The next leader must publish the events that were not published.
		record(t, term, events[4].Seq)
		_ = term.Abandon()
		ids, _ = readBounded(t, lead(t, pglog.New(pool)))
		wantIDs(t, ids, slices.Delete(slices.Clone(large), 4, 5)...)
	})

	t.Run("held events", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		commitLarge(t, pool, "")
		term := lead(t, pglog.New(pool))
		_, events := readBounded(t, term)
		hold(t, term, refusal(1), events...)
		overrideNextAtOfDue(t, pool)
		ids, _ := readBounded(t, term)
		wantIDs(t, ids, large...)
	})

	t.Run("held events of a key", func(t *testing.T) {
		t.Parallel()
		pool := devtest.Pool(t)
		commitLarge(t, pool, "k")
		term := lead(t, pglog.New(pool))
		_, events := readBounded(t, term)
		hold(t, term, refusal(1), events...)
		overrideNextAtOfDue(t, pool)
		var ids []string
		for len(ids) < len(large) {
			more, seqs, page := read(t, term, 1000)
			wantBounded(t, page.Events, slices.Contains(more, large[12]))
			if len(more) == 0 {
				t.Fatalf("no page follows %v", ids)
			}
			ids = append(ids, more...)
			record(t, term, seqs...) // the next of the key is due then
		}
		wantIDs(t, ids, large...)
	})

	t.Run("events of a republish", func(t *testing.T) {
		t.Parallel()
		small := letters(100)
		pool, log, term := publishedLog(t, small...)
		commitLarge(t, pool, "")
		_, events := readBounded(t, term)
		hold(t, term, dead(), events[6]) // it is skipped
		var seqs []int64
		for _, ev := range slices.Delete(slices.Clone(events), 6, 7) {
			seqs = append(seqs, ev.Seq)
		}
		record(t, term, seqs...)
		r := startRepublish(t, log, operator.RepublishRequest{All: true})
		var ids []string
		for {
			more, page := again(t, term, 1000)
			if !page.Advanced {
				break
			}
			short := slices.Contains(more, large[12]) || slices.Contains(more, large[7]) // the last page, and the page from which an event was skipped
			wantBounded(t, page.Events, short)
			ids = append(ids, more...)
			publishAgain(t, term, page.Events...)
		}
		wantIDs(t, ids, append(small, slices.Delete(slices.Clone(large), 6, 7)...)...)
		wantRepublish(t, log, r.ID, operator.RepublishDone, 112, 1, 0)
	})
}
