package upkeep

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postroom/postroom/inbox/internal/delivery"
)

// database is a list of processes whose clock is ahead of this process's clock.
type database struct{ ahead time.Duration }

func (db *database) Beat(context.Context, uuid.UUID, delivery.Sign) (delivery.Beat, error) {
	return delivery.Beat{At: time.Now().Add(db.ahead)}, nil
}

func (*database) Leave(context.Context, uuid.UUID) error { return nil }

func (*database) Unknown(context.Context, []string) ([]delivery.OrphanHandler, error) {
	return nil, nil
}

// A clock that is 40 days ahead for one sign of life makes no event too old.
func TestAClockThatIsAheadForAMomentMakesNoEventTooOld(t *testing.T) {
	t.Parallel()
	db := &database{ahead: -3 * time.Hour} // clocks may differ
	n := NewNode(NodeConfig{Processes: db, Windows: func() []delivery.Window { return nil }, Paused: func() string { return "{}" }})
	w := delivery.Window{Handler: "h", Keep: 30 * 24 * time.Hour, Age: 29 * 24 * time.Hour}
	for i, tt := range []struct{ shown, want time.Duration }{
		{-3 * time.Hour, -3 * time.Hour}, {40 * 24 * time.Hour, -3 * time.Hour}, {-3 * time.Hour, -3 * time.Hour}, {-4 * time.Hour, -4 * time.Hour},
	} {
		db.ahead = tt.shown
		if err := n.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
		if off := time.Until(n.TrustsFrom(w).Add(w.Age)) - tt.want; off.Abs() > time.Minute {
			t.Errorf("sign %d: the node's clock is %s off", i, off)
		}
	}
}
