package pglog_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
)

// prunable is a row of the log in the model of retention.
type prunable struct {
	seq   int64
	xid   int
	hours int // of age
}

// left returns the seqs that remain when everything that may be pruned is removed. rows are sorted
// by seq.
func left(rows []prunable, high, floor, pendingFrom int64, visible func(xid int) bool, keepHours int) []int64 {
	n := 0
	for n < len(rows) {
		r := rows[n]
		if r.seq > high || r.seq >= pendingFrom || r.hours < keepHours || r.seq > floor && !visible(r.xid) {
			break
		}
		n++
	}
	seqs := make([]int64, 0, len(rows)-n)
	for _, r := range rows[n:] {
		seqs = append(seqs, r.seq)
	}
	return seqs
}

// Logs and states at random are pruned as the model says.
func TestPruneDoesAsItsModel(t *testing.T) {
	t.Parallel()
	rng := devtest.Random(t, 0)
	pool := devtest.Pool(t)
	mustExec(t, pool, "SELECT setval('postroom.outbox_seq_seq', 1000000000)")
	term := lead(t, pglog.New(pool))
	var bound [5]int // how often each rule was the one that stopped
	for round := 0; round < 40 || slices.Min(bound[:]) == 0 && round < 400; round++ {
		// Most rows are old and visible, so that each rule is sometimes the first that stops.
		rare := 1 + rng.IntN(3000)
		rows := make([]prunable, rng.IntN(1600))
		var seqs, xids, hours []int64
		last := int64(0)
		for i := range rows {
			last += 1 + rng.Int64N(3)
			if rng.IntN(300) == 0 {
				last += rng.Int64N(30_000)
			}
			rows[i] = prunable{seq: last, xid: 5 + rng.IntN(5), hours: 72 + rng.IntN(100)}
			if rng.IntN(rare) == 0 {
				rows[i].xid = 10 + rng.IntN(10)
			}
			if rng.IntN(rare) == 0 {
				rows[i].hours = rng.IntN(72)
			}
			seqs, xids, hours = append(seqs, last), append(xids, int64(rows[i].xid)), append(hours, int64(rows[i].hours))
		}
		near := func() int64 { // a seq of the log, or the one beside it
			if len(rows) == 0 {
				return 1
			}
			return max(1, rows[rng.IntN(len(rows))].seq-1+rng.Int64N(3))
		}
		high, floor := last, int64(0)
		if rng.IntN(2) == 0 {
			high = near()
		}
		if rng.IntN(2) == 0 {
			floor = near()
		}
		pendingFrom, pending := last+1, "{}"
		if rng.IntN(2) == 0 {
			pendingFrom = near()
			pending = fmt.Sprintf("{[%d,%d),[%d,%d)}", pendingFrom, pendingFrom+2, pendingFrom+5, pendingFrom+7)
		}
		visible := func(xid int) bool { return xid < 15 && xid != 12 && xid != 13 }

		mustExec(t, pool, "UPDATE postroom.relay SET floor = 0; TRUNCATE postroom.outbox") // otherwise it would end the term
		mustExec(t, pool, `INSERT INTO postroom.outbox (seq, xid, created_at, digest, source, event_id, type, subject, data)
			OVERRIDING SYSTEM VALUE
			SELECT seq, xid::text::xid8, clock_timestamp() - interval '30 min' - hours * interval '1 h',
				decode(repeat('00', 16), 'hex'), '/shop', seq::text, 'a.b', 'a.b', ''
			FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) r (seq, xid, hours) ORDER BY random()`, seqs, xids, hours)
		mustExec(t, pool, "UPDATE postroom.relay SET high = $1, floor = $2, snap = '12:15:12,13', pending = $3::text::int8multirange",
			high, floor, pending)
		term.PruneFromStart()
		steps := prune(t, term, 72*time.Hour)

		got, _ := pool.Query(t.Context(), "SELECT seq FROM postroom.outbox ORDER BY seq") // CollectRows reports the error
		remaining, err := pgx.CollectRows(got, pgx.RowTo[int64])
		if err != nil {
			t.Fatal(err)
		}
		want := left(rows, high, floor, pendingFrom, visible, 72)
		if !slices.Equal(remaining, want) {
			t.Fatalf("round %d: %d of %d rows remain, want %d (high %d, floor %d, pending %s)",
				round, len(remaining), len(rows), len(want), high, floor, pending)
		}
		if most := slices.Max(steps); most > 1000 {
			t.Errorf("round %d: a step removed %d", round, most)
		}
		for i, without := range [][]int64{
			left(rows, last, floor, pendingFrom, visible, 72),
			left(rows, high, 0, pendingFrom, visible, 72),
			left(rows, high, floor, last+1, visible, 72),
			left(rows, high, floor, pendingFrom, func(int) bool { return true }, 72),
			left(rows, high, floor, pendingFrom, visible, 0),
		} {
			if !slices.Equal(without, want) {
				bound[i]++
			}
		}
	}
	t.Logf("high decided %d rounds, floor %d, pending %d, the snapshot %d, age %d", bound[0], bound[1], bound[2], bound[3], bound[4])
	if slices.Min(bound[:]) == 0 {
		t.Error("inconclusive: not every rule decided a round")
	}
}
