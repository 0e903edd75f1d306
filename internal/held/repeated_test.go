package held_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/postroomtest"
)

// An operator acts on held events, and the connection breaks at any statement: before it, or after
// the server has carried it out. An act whose commit got no answer returns its number all the same.
func TestActsWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	by := postroom.Audit{Actor: "ann", Reason: "ordered twice"}
	var look *pgxpool.Pool
	var phase int
	var counts []int64
	postroomtest.Crash(t, postroomtest.Scenario{
		Setup: func(ctx context.Context, pool *pgxpool.Pool) error {
			look, phase, counts = pool, 0, nil
			_, err := pool.Exec(ctx, `
				WITH decided AS (INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'h', '/shop e' || i FROM generate_series(1, 3) i)
				INSERT INTO postroom.held (handler, dedupe_key, next_at, attempts, logged_at, source, event_id, type, subject, content_type, data)
				SELECT 'h', '/shop e' || i, now() + interval '1 h', 0, now(), '/shop', 'e' || i, 'a', 'a', 'text/plain', '' FROM generate_series(1, 3) i`)
			return err
		},
		Run: func(ctx context.Context, pool *pgxpool.Pool) error {
			// The server may not have noticed yet that a session was cut, which has locked the events.
			devtest.Eventually(t, time.Minute, "no transaction to be open", func() bool {
				var open int
				err := look.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'").Scan(&open)
				return err == nil && open == 0
			})
			s := held.NewStore(pool, "postroom")
			for ; phase < 2; phase++ {
				set, err := s.Select(ctx, held.Filter{Handler: "h"}, 0)
				if err != nil && !errors.Is(err, held.ErrNoMatch) {
					return err
				}
				act := s.Cancel
				if phase == 0 {
					act = func(ctx context.Context, set held.Set, by postroom.Audit, progress func(int64)) (held.Result, error) {
						return s.Reschedule(ctx, set, time.Now().Add(2*time.Hour), by, progress)
					}
				}
				done, err := act(ctx, set, by, nil)
				if err != nil {
					return err
				}
				counts = append(counts, done.Events)
			}
			return nil
		},
	}, func(ctx context.Context, pool *pgxpool.Pool) error {
		var audited string
		err := pool.QueryRow(ctx, "SELECT string_agg(action || ' ' || events, ', ' ORDER BY id) FROM postroom.audit").Scan(&audited)
		if got, want := fmt.Sprint(counts, " ", audited), "[3 3] reschedule 3, cancel 3"; err == nil && got != want {
			err = fmt.Errorf("%s, want %s", got, want)
		}
		return err
	})
}
