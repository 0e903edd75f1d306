package inbox

import (
	"context"
	"slices"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

// LookOften makes an inbox check its consumers, and record its floors, every d.
func LookOften(in *Inbox, d time.Duration) { in.lookEvery, in.floorEvery = d, d }

// PauseOverridingProbes returns a Pause whose first probe, and whose further ones, come after other
// times than a second and up to a minute.
func PauseOverridingProbes(first, most time.Duration) Pause {
	return Pause{probe: first, maxProbe: most}
}

// Register registers the process of an inbox that is not running.
func Register(ctx context.Context, in *Inbox) error { return in.node.Beat(ctx) }

// TrustsFrom returns the time since which the process relies on the rows of a handler.
func TrustsFrom(in *Inbox, handler string) time.Time {
	return in.node.TrustsFrom(in.byName(handler).window)
}

// SweepOverridingDueAt registers the process, and then removes all expired inbox rows, in steps of the given
// number of pages. It returns how many rows it removed.
func SweepOverridingDueAt(ctx context.Context, in *Inbox) (removed int64, err error) {
	if err := in.node.Beat(ctx); err != nil {
		return 0, err
	}
	s := in.sweeper()
	for range 1000 {
		if _, err := in.pool.Exec(ctx, "UPDATE postroom.sweep SET due_at = now()"); err != nil {
			return removed, err
		}
		n, err := s.Step(ctx)
		if err != nil {
			return removed, err
		}
		removed += n
		var page int64
		if err := in.pool.QueryRow(ctx, "SELECT next_page FROM postroom.sweep").Scan(&page); err != nil || page == 0 {
			return removed, err
		}
	}
	return removed, nil
}

// Pattern returns the regular expression of subjects.
func Pattern(of []string) *string {
	_, pattern := delivery.Selection{Subjects: of}.Wished()
	return pattern
}

// Match reports whether a subject matches one of the patterns.
func Match(of []string, subject string) bool {
	return delivery.Selection{Subjects: of}.Takes(postroom.Event{Subject: subject})
}

// Bounded shortens a dedupe key.
func Bounded(key string) string { return delivery.Bounded(key) }

// LoseAnswer makes an inbox that is not running believe that the answer to one of its claims
// was lost. It returns the name under which the inbox claims.
func LoseAnswer(in *Inbox) string {
	in.runner.Doubt()
	return in.node.Name()
}

// RawHeaders returns headers as they are kept.
func RawHeaders(header map[string][]string) []byte { return delivery.RawHeaders(header) }

// ParseHeaders reads what RawHeaders returned.
func ParseHeaders(raw []byte) map[string][]string { return delivery.ParseHeaders(raw) }

// GiveBackOrphans gives back the events that a process claimed without knowing.
func GiveBackOrphans(ctx context.Context, in *Inbox, process string, handlers []string, known []int64) error {
	return ledger.Claims{DB: in.db}.Orphans(ctx, process, handlers, func(id, _ int64) bool { return slices.Contains(known, id) })
}
