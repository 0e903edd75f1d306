package deadletter_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/deadletter"
)

// afterCommit is called after each COMMIT.
type afterCommit func()

func (afterCommit) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (f afterCommit) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if data.CommandTag.String() == "COMMIT" {
		f()
	}
}

// If the context ends right after a replay was created, the error comes with the id of the replay.
// Without the id, an operator who tries again would get a replay without the events.
func TestReplayTellsItsIDWithAnError(t *testing.T) {
	t.Parallel()
	for name, replay := range map[string]func(*rig, *deadletter.Store, context.Context) (deadletter.Replay, error){
		"Replay": func(n *rig, s *deadletter.Store, ctx context.Context) (deadletter.Replay, error) {
			return s.Replay(ctx, deadletter.Filter{All: true}, deadletter.ReplayOptions{}, n.by)
		},
		"CreateReplay": func(n *rig, s *deadletter.Store, ctx context.Context) (deadletter.Replay, error) {
			return s.CreateReplay(ctx, deadletter.Filter{All: true}, deadletter.ReplayOptions{}, n.by)
		},
	} {
		n := newRig(t)
		n.die("billing", declined, events(3)...)
		ctx, cancel := context.WithCancel(t.Context())
		cfg := n.pool.Config()
		cfg.ConnConfig.Tracer = afterCommit(cancel)
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		job, err := replay(n, deadletter.New(pool, deadletter.Config{}), ctx)
		pool.Close()
		n.want("replays", 1, "SELECT count(*) FROM postroom.replay WHERE id = $1", job.ID)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s = %v, want the end of the context", name, err)
		}
	}
}
