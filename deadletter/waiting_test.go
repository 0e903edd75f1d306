package deadletter_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/deadletter"
)

// statements counts what a connection sends.
type statements struct{ transactions, updates int }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(strings.ToLower(data.SQL), "begin") {
		s.transactions++
	}
	if strings.Contains(data.SQL, "UPDATE postroom.replay\n") {
		s.updates++
	}
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A replay that waits for its events makes about one step in a second, and most of these steps change
// no row. Before, it made 40 steps in a second, and each changed the row of the replay.
func TestAWaitingReplayMakesFewStatements(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(1, 1, 1) // no process runs its handler
	var sent statements
	cfg := n.pool.Config()
	cfg.MaxConns, cfg.ConnConfig.Tracer = 1, &sent
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store := deadletter.New(pool, deadletter.Config{})
	const waits = time.Minute
	var waited time.Duration
	steps := 0
	store.SetPause(func(_ context.Context, d time.Duration) bool {
		waited, steps = waited+d, steps+1
		return waited < waits
	})
	job, err := store.RunReplay(t.Context(), n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{}).ID, deadletter.RunOptions{})
	if err == nil || job.Open() != 1 {
		t.Fatalf("the replay does not wait: %+v, %v", job, err)
	}
	t.Logf("in %s: %d steps, %d transactions, %d updates", waited, steps, sent.transactions, sent.updates)
	if steps > 70 || sent.transactions > 2*steps {
		t.Errorf("%d steps and %d transactions in %s", steps, sent.transactions, waits)
	}
	if sent.updates < 1 || sent.updates > steps/3 { // a slow machine stores a step every five seconds
		t.Errorf("%d of %d steps changed the row of the replay", sent.updates, steps)
	}
}
