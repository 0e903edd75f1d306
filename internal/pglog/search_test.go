package pglog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
)

// Both ways of searching find the rows that became visible between two snapshots, as PostgreSQL's
// own functions tell it. The steps have any width, and transactions commit between them.
func TestSearchFindsRowsThatBecameVisible(t *testing.T) {
	t.Parallel()
	for _, bySeq := range []bool{false, true} {
		t.Run(fmt.Sprint("by seq ", bySeq), func(t *testing.T) {
			t.Parallel()
			h := &history{T: t, pool: poolOf(t, 12), rng: devtest.Random(t, 0)}
			found := 0
			for range 12 {
				h.proceed(10)
				h.open = append(h.open, openWith(t, h.pool, h.id()))
				write(t, h.pool, h.id())
				var high int64
				var snap string
				err := h.pool.QueryRow(t.Context(), "SELECT coalesce(max(seq), 0), pg_current_snapshot()::text FROM postroom.outbox").Scan(&high, &snap)
				if err != nil {
					t.Fatal(err)
				}
				floor := h.rng.Int64N(max(high/2, 1))
				h.proceed(h.rng.IntN(20))
				for len(h.open) > 6 {
					h.end(0)
				}
				found += h.search(high, floor, snap, bySeq)
			}
			if found == 0 {
				t.Error("inconclusive: nothing was late")
			}
		})
	}
}

// history writes events in transactions that are open at once, and ends them in any
// order.
type history struct {
	*testing.T
	pool *pgxpool.Pool
	rng  *rand.Rand
	open []pgx.Tx
	n    int
}

func (h *history) id() string { h.n++; return fmt.Sprint("e", h.n) }

func (h *history) proceed(steps int) {
	for range steps {
		switch n := h.rng.IntN(5); {
		case n == 0 && len(h.open) < 8:
			h.open = append(h.open, openWith(h.T, h.pool, h.id()))
		case n <= 2 && len(h.open) > 0:
			h.end(h.rng.IntN(len(h.open)))
		case n == 3 && len(h.open) > 0:
			if err := shop.Write(h.Context(), h.open[h.rng.IntN(len(h.open))], named(h.id())); err != nil {
				h.Fatal(err)
			}
		default:
			write(h.T, h.pool, h.id())
		}
	}
}

// end commits a transaction, or rolls it back.
func (h *history) end(i int) {
	end := h.open[i].Commit
	if h.rng.IntN(4) == 0 {
		end = h.open[i].Rollback
	}
	if err := end(h.Context()); err != nil {
		h.Fatal(err)
	}
	h.open = slices.Delete(h.open, i, i+1)
}

// search compares the result of one search with PostgreSQL's answer, and returns how many rows were
// late.
func (h *history) search(high, floor int64, snap string, bySeq bool) int {
	h.Helper()
	s, err := pglog.NewSearch(h.Context(), h.pool, high, floor, snap, bySeq)
	if err != nil {
		h.Fatal(err)
	}
	var want string
	var n int
	defined := `SELECT coalesce(range_agg(int8range(seq, seq, '[]')), '{}')::text, count(*) FROM postroom.outbox
		WHERE seq <= $1 AND seq > $2 AND NOT pg_visible_in_snapshot(xid, $3) AND pg_visible_in_snapshot(xid, $4)`
	if err := h.pool.QueryRow(h.Context(), defined, high, floor, snap, s.Now()).Scan(&want, &n); err != nil {
		h.Fatal(err)
	}
	s.AtMost(1 + h.rng.Int64N(3))
	for more := true; more; h.proceed(2) {
		if more, err = s.Step(h.Context(), h.rng.Float64()); err != nil {
			h.Fatal(err)
		}
	}
	var same bool
	if err := h.pool.QueryRow(h.Context(), "SELECT $1::int8multirange = $2::int8multirange", s.Late(), want).Scan(&same); err != nil || !same {
		h.Errorf("high %d, floor %d, from %s to %s: found %s, want %s (%v)", high, floor, snap, s.Now(), s.Late(), want, err)
	}
	return n
}

// After an outage during which much was committed, a relay searches in steps. When a step's
// time is over, it keeps the rows that it found. It reads the late rows before the newer ones.
func TestTermSearchesInStepsAfterAnOutage(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	late := openWith(t, pool, "late")
	write(t, pool, "a", "b")
	term := lead(t, log)
	_, seqs, _ := read(t, term, 10)
	record(t, term, seqs...)
	if err := term.Abandon(); err != nil {
		t.Fatal(err)
	}
	commit(t, late)
	write(t, pool, numbered("new", 30)...)

	term = lead(t, log)
	term.SearchAlways()
	calls := 0
	for {
		term.SearchFor(0, 7) // no time: each call takes no more than one step
		ids, _, page := read(t, term, 100)
		if !page.More {
			wantIDs(t, ids, "late")
			if page.Late != 1 {
				t.Errorf("Late = %d, want 1", page.Late)
			}
			break
		}
		wantIDs(t, ids)
		if calls++; calls > 100 {
			t.Fatal("the search does not end: it keeps nothing")
		}
	}
	if calls < 3 {
		t.Errorf("inconclusive: the search took %d steps", calls)
	}
	ids, _, _ := read(t, term, 100)
	wantIDs(t, ids, numbered("new", 30)...)
}

// If a step fails, the next one is narrower, also in the next term. If a step is quick, the
// next one is wider.
func TestSearchTriesLessAfterATimeout(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log, first, _ := published(t, pool, 30)
	if err := first.Abandon(); err != nil {
		t.Fatal(err)
	}
	write(t, pool, numbered("new", 5)...)
	for _, width := range []int64{1 << 20, 1 << 18} {
		term := lead(t, log)
		term.SearchAlways()
		term.SearchFor(0, 1)
		if _, _, page := read(t, term, 10); !page.More {
			t.Fatal("inconclusive: the search was over at once")
		}
		term.SearchFor(0, width)
		ctx, cancel := context.WithDeadline(t.Context(), time.Now()) // it has passed
		defer cancel()
		if _, err := term.Read(ctx, 10, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Read = %v, want %v", err, context.DeadlineExceeded)
		}
		if now := log.SearchWidth(); now != width/4 {
			t.Errorf("after a timeout a step looks at %d, want %d", now, width/4)
		}
		if err := term.Abandon(); err != nil {
			t.Fatal(err)
		}
	}
	before := log.SearchWidth()
	term := lead(t, log)
	devtest.Eventually(t, time.Minute, "a step that is quick, after which a step looks at more", func() bool {
		term.SearchAlways()
		read(t, term, 10)
		return log.SearchWidth() > before
	})
}
