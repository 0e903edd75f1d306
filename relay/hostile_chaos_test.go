package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// chaosPublisher stores events in memory, and refuses some, loses some answers, and answers in any
// order.
type chaosPublisher struct {
	sound

	mu     sync.Mutex
	rng    *rand.Rand
	calm   bool
	copies map[int64]int
	first  map[string][]int64 // by key: the first copies, in their order
	total  int
}

func (p *chaosPublisher) store(m *broker.Message) {
	p.total++
	p.copies[m.Seq]++
	if p.copies[m.Seq] == 1 {
		p.first[m.OrderKey()] = append(p.first[m.OrderKey()], m.Seq)
	}
}

func (p *chaosPublisher) outcome(m *broker.Message) broker.Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.rng.IntN(1000)
	switch {
	case p.calm || n >= 30:
		p.store(m)
		return broker.Outcome{Class: broker.Stored, Stream: "S"}
	case n < 10:
		p.store(m)
		return broker.Outcome{Class: broker.Unknown, Err: errors.New("no answer")}
	case n < 15:
		return broker.Outcome{Class: broker.Unknown, Err: errors.New("no answer")}
	case n < 20:
		return broker.Outcome{Class: broker.Refused, Stream: "S", Err: errors.New("refused")}
	case n < 25:
		return broker.Outcome{Class: broker.Unavailable, Stream: "S", Err: errors.New("unavailable")}
	}
	return broker.Outcome{Class: broker.Permanent, Stream: "S", Err: errors.New("never")}
}

func (p *chaosPublisher) Run(ctx context.Context, batches <-chan []*broker.Message, report func(*broker.Message, broker.Outcome)) error {
	var answers sync.WaitGroup
	defer answers.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case batch := <-batches:
			batch = slices.Clone(batch)
			p.mu.Lock()
			if !p.calm {
				p.rng.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
			}
			wait := time.Duration(p.rng.IntN(2000)) * time.Microsecond
			p.mu.Unlock()
			answers.Go(func() {
				time.Sleep(wait)
				for _, m := range batch {
					report(m, p.outcome(m))
				}
			})
		}
	}
}

// Hot keys, late loads, scheduled events, refused ones, replays, and broken connections at any time:
// each event is published, and those of a key in their order.
func TestNothingIsLostOrOutOfOrderInChaos(t *testing.T) {
	if os.Getenv("POSTROOM_SOAK") != "1" {
		t.Skip("it takes a minute or two: POSTROOM_SOAK=1 runs it")
	}
	const busy = 15 * time.Second
	pool := devtest.Pool(t)
	pub := &chaosPublisher{rng: devtest.Random(t, 1), copies: map[int64]int{}, first: map[string][]int64{}}
	r := relay.New(pool, pub, relay.Config{MaxUnpublished: 2000, Lease: 2 * time.Second, IdlePoll: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()

	writing, end := context.WithTimeout(t.Context(), busy)
	defer end()
	var others sync.WaitGroup
	every := func(d time.Duration, ctx context.Context, f func()) {
		others.Go(func() {
			for ctx.Err() == nil {
				f()
				time.Sleep(d)
			}
		})
	}
	exec := func(sql string, args ...any) int64 {
		tag, err := pool.Exec(t.Context(), sql, args...)
		if err != nil && t.Context().Err() == nil {
			t.Errorf("%s: %v", sql, err)
		}
		return tag.RowsAffected()
	}
	const insert = `INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data, key)
		SELECT decode(repeat('00', 16), 'hex'), '/shop', $1 || '-' || n, 'a', 'a', '', $2 FROM generate_series(1, $3::int) n`
	for w := range 4 {
		rng := devtest.Random(t, 3+w)
		n := 0
		every(time.Millisecond, writing, func() {
			n++
			key := fmt.Sprint("k", rng.IntN(20))
			many := 1 + rng.IntN(5)
			switch rng.IntN(6) {
			case 0, 1:
				key, many = "hot", 5+rng.IntN(20)
			}
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(hashtext($1))", key); err != nil {
					return err
				}
				if _, err := tx.Exec(t.Context(), insert, fmt.Sprint(w, "-", n), key, many); err != nil {
					return err
				}
				if rng.IntN(10) == 0 {
					time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if rng.IntN(10) == 0 {
				exec(`INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data, key, not_before)
					SELECT decode(repeat('00', 16), 'hex'), '/shop', $1 || '-s' || n, 'a', 'a', '', $2, now() + n * interval '20 ms' FROM generate_series(1, 30) n`, fmt.Sprint(w, "-", n), key)
			}
		})
	}
	// A load that commits late, with a gap behind each row. Each of its keys has many events.
	loads := 0
	every(3*time.Second, writing, func() {
		loads++
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `INSERT INTO postroom.outbox (digest, source, event_id, type, subject, data, key)
				SELECT decode(repeat('00', 16), 'hex'), '/shop', 'load-' || $1 || '-' || n, 'a', 'a', '', CASE WHEN n % 3 > 0 THEN 'load-' || $1 || '-' || n % 50 END
				FROM generate_series(1, 6000) n WHERE nextval('postroom.outbox_seq_seq') > 0`, fmt.Sprint(loads))
			time.Sleep(time.Second)
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	every(200*time.Millisecond, ctx, func() {
		if ctx.Err() == nil {
			exec(`UPDATE postroom.held h SET dead_at = NULL, next_at = now(), replays = replays + 1, attempts = 0
				WHERE handler = 'outbox' AND dead_at IS NOT NULL AND (chain IS NULL OR pos = (SELECT min(pos) FROM postroom.held WHERE handler = 'outbox' AND chain = h.chain))`)
			exec("UPDATE postroom.held SET next_at = now() WHERE handler = 'outbox' AND next_at > now() AND class IS NOT NULL")
		}
	})
	chaos := devtest.Random(t, 2)
	caught, put, terminated := 0, 0, int64(0)
	every(20*time.Millisecond, writing, func() {
		var catchesUp bool
		var ranges int
		_ = pool.QueryRow(t.Context(), "SELECT catch_up_snap IS NOT NULL, (SELECT count(*) FROM unnest(pending)) FROM postroom.relay").Scan(&catchesUp, &ranges)
		if catchesUp {
			caught++
		}
		put = max(put, ranges)
		if n := chaos.IntN(20); n == 0 || catchesUp && n < 8 {
			terminated += exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'postroom relay' AND random() < 0.5")
		}
	})
	<-writing.Done()
	pub.mu.Lock()
	pub.calm = true
	pub.mu.Unlock()
	var left string
	for limit := time.Now().Add(devtest.Patience(t, 90*time.Second)); time.Now().Before(limit); time.Sleep(time.Second) {
		rows, _ := pool.Query(t.Context(), "SELECT seq, coalesce(key, ''), not_before IS NOT NULL FROM postroom.outbox ORDER BY seq")
		type row struct {
			Seq   int64
			Key   string
			Later bool
		}
		all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
		if err != nil {
			t.Fatal(err)
		}
		pub.mu.Lock()
		missing := 0
		want := map[string][]int64{}
		for _, r := range all {
			if pub.copies[r.Seq] == 0 {
				missing++
			}
			if r.Key != "" && !r.Later {
				want[r.Key] = append(want[r.Key], r.Seq)
			}
		}
		left = fmt.Sprintf("%d of %d events are not published", missing, len(all))
		if missing == 0 {
			left = ""
			later := map[int64]bool{}
			for _, r := range all {
				later[r.Seq] = r.Later
			}
			for key, seqs := range want {
				got := slices.DeleteFunc(slices.Clone(pub.first[key]), func(seq int64) bool { return later[seq] })
				for i := range got {
					if i > 0 && got[i] < got[i-1] {
						t.Errorf("key %s: event %d came after %d, place %d of %d", key, got[i], got[i-1], i, len(seqs))
						break
					}
				}
			}
			t.Logf("%d events, %d copies, %d connections ended, %d times seen catching up, at most %d ranges pending", len(all), pub.total, terminated, caught, put)
		}
		pub.mu.Unlock()
		if left == "" {
			break
		}
	}
	if left != "" {
		t.Error(left)
		var state string
		_ = pool.QueryRow(t.Context(), "SELECT row(high, snap, left(pending::text, 300), catch_up_snap, catch_up_passed, (SELECT count(*) FROM postroom.held), (SELECT count(*) FROM postroom.held WHERE next_at <= now()), (SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL))::text FROM postroom.relay").Scan(&state)
		t.Log(state)
		t.Logf("%+v", r.Health())
	}
	if terminated == 0 {
		t.Error("inconclusive: no connection was ended")
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	others.Wait()
}
