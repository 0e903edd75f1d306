package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/postroomtest"
)

// An operator acts on dead events, and the connection breaks at any statement: before it, or after
// the server has carried it out. If it was the commit, the act knows that it took effect: it returns
// its number and is not done again.
func TestActsWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	by := postroom.Audit{Actor: "ann", Reason: "the vendor is back"}
	var look *pgxpool.Pool
	var phase int
	var counts []string // what the acts returned
	var edited, replay int64
	acts := []func(ctx context.Context, s *deadletter.Store) (string, error){
		func(ctx context.Context, s *deadletter.Store) (string, error) {
			n, err := s.Discard(ctx, deadletter.Filter{All: true}, deadletter.ChangeOptions{Limit: 1}, by)
			return fmt.Sprint("discarded ", n), err
		},
		func(ctx context.Context, s *deadletter.Store) (string, error) {
			r, err := s.Edit(ctx, edited, deadletter.Edit{Data: []byte(`{"n":0}`)}, by)
			return fmt.Sprint("revision ", r.Revision), err
		},
		func(ctx context.Context, s *deadletter.Store) (string, error) {
			_, err := s.CreateReplay(ctx, deadletter.Filter{All: true}, deadletter.ReplayOptions{}, by)
			if errors.Is(err, deadletter.ErrNoMatch) { // it was made, but could not be read
				err = nil
			}
			if err == nil {
				err = look.QueryRow(ctx, "SELECT max(id) FROM postroom.replay").Scan(&replay)
			}
			return "a replay", err
		},
		func(ctx context.Context, s *deadletter.Store) (string, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			j, err := s.RunReplay(ctx, replay, deadletter.RunOptions{Progress: func(deadletter.Replay) { // what is released takes effect
				_, _ = look.Exec(ctx, "DELETE FROM postroom.held WHERE dead_at IS NULL")
			}})
			return fmt.Sprintf("%d of %d succeeded", j.Succeeded, j.Events), err
		},
	}
	postroomtest.Crash(t, postroomtest.Scenario{
		Setup: func(_ context.Context, pool *pgxpool.Pool) error {
			look, phase, counts = pool, 0, nil
			(&rig{T: t, pool: pool}).seed(3, 1, 1)
			return pool.QueryRow(t.Context(), "SELECT min(id) FROM postroom.held").Scan(&edited)
		},
		Run: func(ctx context.Context, pool *pgxpool.Pool) error {
			s := deadletter.New(pool, deadletter.Config{})
			for ; phase < len(acts); phase++ {
				said, err := acts[phase](ctx, s)
				if err != nil {
					return err
				}
				counts = append(counts, said)
			}
			return nil
		},
	}, func(ctx context.Context, pool *pgxpool.Pool) error {
		want := "[discarded 1 revision 1 a replay 2 of 2 succeeded]"
		if got := fmt.Sprint(counts); got != want {
			return fmt.Errorf("%s, want %s", got, want)
		}
		want = "discard 1, edit 1, replay 2"
		var got string
		err := pool.QueryRow(ctx, "SELECT string_agg(action || ' ' || events, ', ' ORDER BY action) FROM postroom.audit").Scan(&got)
		if err == nil && got != want {
			err = fmt.Errorf("audit: %s, want %s", got, want)
		}
		return err
	})
}
