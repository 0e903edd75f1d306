package pglog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
)

// repeat runs transactions that write a few of the ids below known. Most of these are in the
// log by then, and some are new. Some transactions roll back.
func repeat(ctx context.Context, pool *pgxpool.Pool, known int, rng *rand.Rand) error {
	for ctx.Err() == nil {
		err := pgx.BeginFunc(context.WithoutCancel(ctx), pool, func(tx pgx.Tx) error {
			var ids []string
			for range 1 + rng.IntN(5) {
				ids = append(ids, fmt.Sprintf("known%04d", rng.IntN(known)))
			}
			if rng.IntN(20) == 0 {
				ids = append(ids, postroom.NewEvent("order.placed", nil).ID)
			}
			slices.Sort(ids) // two that write the same ids do not wait for each other
			var events []postroom.Event
			for _, id := range slices.Compact(ids) {
				events = append(events, named(id))
			}
			for range 1 + rng.IntN(3) {
				if err := shop.Write(context.WithoutCancel(ctx), tx, events...); err != nil {
					return err
				}
			}
			if rng.IntN(3) == 0 {
				return errOnPurpose
			}
			return nil
		})
		if err != nil && !errors.Is(err, errOnPurpose) {
			return err
		}
	}
	return nil
}

// A repeated id takes a seq and leaves no row.
func TestRepeatedIDsLeaveGapsAndNoEvents(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	const writers, limit = 8, 5
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var producers sync.WaitGroup
	for w := range writers {
		rng := devtest.Random(t, w)
		producers.Go(func() {
			if err := repeat(ctx, pool, 400, rng); err != nil {
				t.Error(err)
			}
		})
	}
	want := 10_000
	if soak {
		want = 500_000
	}
	j := newJournal()
	term := lead(t, log)
	var lastSeq int
	devtest.Eventually(t, 10*time.Minute, "enough seqs were handed out", func() bool {
		_, _, page := read(t, term, limit)
		record(t, term, j.add(t, page.Events)...)
		if err := pool.QueryRow(t.Context(), "SELECT last_value FROM postroom.outbox_seq_seq").Scan(&lastSeq); err != nil {
			t.Fatal(err)
		}
		return lastSeq > want
	})
	stop()
	producers.Wait()
	j.drain(t, term, limit)

	// A gap of many pages, then one event.
	again := make([]string, 200*limit)
	for i := range again {
		again[i] = j.ids[0]
	}
	write(t, pool, again...)
	write(t, pool, "after-the-gap")
	wantIDs(t, j.drain(t, term, limit), "after-the-gap")
	wantIDs(t, j.drain(t, lead(t, log), limit))

	ids := logged(t, pool)
	j.lost(t, ids)
	j.ghosts(t, ids)
	j.doubled(t)
	t.Logf("%d seqs for %d events", lastSeq, len(ids))
	if lastSeq < 3*len(ids) {
		t.Error("inconclusive: too few seqs were left without an event")
	}
}
