package pglog_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/relay/broker"
)

const bulkPage = 1000 // events in a pass

// bulkRows is how many events one statement writes.
func bulkRows() int {
	if soak {
		return 1_000_000
	}
	return 50_000
}

// load writes n events in one statement of tx. It leaves out the rows for which condition is
// false.
func load(t *testing.T, tx pgx.Tx, n int, condition string) {
	t.Helper()
	_, err := tx.Exec(t.Context(), `
		INSERT INTO postroom.outbox (source, event_id, digest, type, subject, data)
		SELECT '/bulk', 'bulk' || i, decode(repeat('00', 16), 'hex'), 'a.b', 'a.b', '{}'
		FROM generate_series(1, $1::int) i WHERE `+condition, n)
	if err != nil {
		t.Fatal(err)
	}
}

// others write events, one in a transaction, until stop is called. stop returns how many they
// have committed.
func others(t *testing.T, pool *pgxpool.Pool) (stop func(), committed *atomic.Int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	committed = &atomic.Int64{}
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				ev := named(fmt.Sprintf("other%d-%d", w, i))
				err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, ev) })
				if err != nil {
					t.Error(err)
					return
				}
				committed.Add(1)
				pause(ctx, 2*time.Millisecond)
			}
		})
	}
	return func() { cancel(); writers.Wait() }, committed
}

// isBulk reports whether load wrote the event.
func isBulk(ev broker.Event) bool { return strings.HasPrefix(ev.ID, "bulk") }

// bulkReader publishes a bulk load that became visible late.
type bulkReader struct {
	*journal
	bulk    int // events of the load, published
	passes  int // from the first event of the load to its last
	largest int // octets of the state row's pending, as stored
	slowest time.Duration
}

// publish reads until all rows of the load were published. No newer event may come with them,
// except together with the last ones.
func (r *bulkReader) publish(t *testing.T, pool *pgxpool.Pool, term *pglog.Term, rows int) {
	t.Helper()
	for r.bulk < rows {
		begin := time.Now()
		_, _, page := read(t, term, bulkPage)
		record(t, term, r.add(t, page.Events)...)
		r.slowest = max(r.slowest, time.Since(begin))
		newer, before := 0, r.bulk
		for _, ev := range page.Events {
			if isBulk(ev) {
				r.bulk++
			} else {
				newer++
			}
		}
		if r.bulk == before {
			t.Fatalf("a pass found no event of the load, of which %d of %d are published", r.bulk, rows)
		}
		r.passes++
		if len(page.Events) > bulkPage {
			t.Errorf("a pass of at most %d returned %d of the load", bulkPage, len(page.Events))
		}
		if newer > 0 && r.bulk < rows {
			t.Errorf("%d newer events between those of the load, %d of which were published", newer, r.bulk)
		}
		var size int
		if err := pool.QueryRow(t.Context(), "SELECT pg_column_size(pending) FROM postroom.relay").Scan(&size); err != nil {
			t.Fatal(err)
		}
		r.largest = max(r.largest, size)
	}
}

// A load takes its seqs before other transactions write, and commits after the relay published
// their events. So all of its seqs are below high.
func TestBulkLoadThatCommitsLate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, condition string
		share           int // a load writes one of this many rows
		octets          int // the most bytes that pending may need for each written row
	}{
		{"without gaps is one range", "true", 1, 0},
		// Such gaps occur if ON CONFLICT refuses rows, or two loads run at once.
		{"with a gap behind every row is a range for each", "nextval('postroom.outbox_seq_seq') > 0", 20, 24},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			begin := time.Now()
			rows := bulkRows() / tt.share
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }() // no effect after the commit
			load(t, tx, rows, tt.condition)
			written := time.Since(begin)

			stop, committed := others(t, pool)
			defer stop()
			term := lead(t, pglog.New(pool))
			r := &bulkReader{journal: newJournal()}
			devtest.Eventually(t, time.Minute, "others are published while the load is open", func() bool {
				_, _, page := read(t, term, bulkPage)
				record(t, term, r.add(t, page.Events)...)
				return len(r.ids) > 100
			})
			commit(t, tx)
			from, others := time.Now(), committed.Load()
			r.publish(t, pool, term, rows)
			took, meanwhile := time.Since(from), committed.Load()-others
			if most := rows/bulkPage + 2; r.passes > most {
				t.Errorf("%d passes for %d rows, want at most %d", r.passes, rows, most)
			}
			if most := 256 + tt.octets*rows; r.largest > most {
				t.Errorf("pending took %d octets, want at most %d", r.largest, most)
			}
			devtest.Eventually(t, time.Minute, "newer events go on", func() bool {
				_, _, page := read(t, term, bulkPage)
				record(t, term, r.add(t, page.Events)...)
				return len(r.ids) > rows+int(others+meanwhile)
			})
			stop()
			r.drain(t, term, bulkPage)

			ids := logged(t, pool)
			r.lost(t, ids)
			r.ghosts(t, ids)
			r.doubled(t)
			t.Logf("%d rows written in %s, published in %s: %d passes, the slowest %s with its recording, pending up to %d octets; others wrote %d meanwhile",
				rows, written.Round(time.Millisecond), took.Round(time.Millisecond), r.passes, r.slowest.Round(time.Millisecond), r.largest, meanwhile)
		})
	}
}

// If a term ends in the middle of a load, the next one reads the rest.
func TestBulkLoadIsTakenOver(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }() // no effect after the commit
	const rows = 10_000
	load(t, tx, rows, "i % 7 > 0 OR nextval('postroom.outbox_seq_seq') > 0")
	write(t, pool, "newer0")
	j := newJournal()
	wantIDs(t, j.drain(t, lead(t, log), bulkPage), "newer0")
	commit(t, tx)
	write(t, pool, "newer1")
	for takeOvers := 0; len(j.ids) < rows+2; takeOvers++ {
		term := lead(t, log)
		for range 2 {
			_, _, page := read(t, term, bulkPage)
			record(t, term, j.add(t, page.Events)...)
		}
		if takeOvers > rows/bulkPage {
			t.Fatalf("%d of %d events after %d terms of 2 passes", len(j.ids), rows+2, takeOvers)
		}
	}
	ids := logged(t, pool)
	j.lost(t, ids)
	j.ghosts(t, ids)
	j.doubled(t)
	if last := j.ids[len(j.ids)-1]; last != "newer1" {
		t.Errorf("%s was last, want newer1", last)
	}
}
