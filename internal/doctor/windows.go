package doctor

import (
	"context"
	"time"
)

// A process is a living process that runs handlers.
type process struct {
	Name     string
	Handlers []string
	Windows  []float64 // for how many seconds each handler needs its inbox rows
	Ages     []float64 // for each handler, the greatest age, in seconds, of an event that it runs
}

// defaultWindow is the default of inbox.Config.DedupeWindow.
const defaultWindow = 30 * 24 * time.Hour

// A span is the shortest and the longest of several durations.
type span struct{ least, most time.Duration }

func (s *span) add(d time.Duration) {
	if s.most == 0 || d < s.least {
		s.least = d
	}
	s.most = max(s.most, d)
}

func (s span) String() string {
	if s.least == s.most {
		return duration(s.least)
	}
	return duration(s.least) + " to " + duration(s.most)
}

// windows returns two spans of the living processes: kept is how long they keep inbox rows of their
// handlers, and trusted is how long they rely on the rows: they run no older event.
func (e *examination) windows(ctx context.Context) (kept, trusted span, err error) {
	nodes, err := e.loadProcesses(ctx)
	for _, n := range nodes {
		for i := range n.Handlers {
			kept.add(seconds(n.Windows[i]))
			trusted.add(seconds(n.Ages[i]))
		}
	}
	if kept.most == 0 {
		kept.add(defaultWindow)
		trusted.add(defaultWindow / 30 * 29)
	}
	return kept, trusted, err
}

func checkWindows(ctx context.Context, e *examination) error {
	nodes, err := e.loadProcesses(ctx)
	if err != nil {
		return err
	}
	const remedy = "give all processes of this handler the same DedupeWindow (inbox.Subscription or inbox.Config)"
	type demand struct {
		by   string
		kept float64
		told bool
	}
	handlers, had := make(map[string]*demand), len(e.findings)
	for _, n := range nodes {
		faulty := false
		for i, handler := range n.Handlers {
			kept, trusted := n.Windows[i], n.Ages[i]
			if trusted > kept*0.99 && !faulty { // one finding for each process is enough
				faulty = true
				e.fault(n.Name, remedy, "a process relies on inbox rows of %s for %s and keeps them for %s: an event whose age is between these two times can be applied again",
					handler, duration(seconds(trusted)), duration(seconds(kept)))
			}
			switch first := handlers[handler]; {
			case first == nil:
				handlers[handler] = &demand{by: n.Name, kept: kept}
			case first.kept != kept && !first.told: // one finding for each handler is enough
				first.told = true
				e.warn(handler, remedy, "process %s keeps its inbox rows for %s, and process %s for %s: the longer time counts",
					n.Name, duration(seconds(kept)), first.by, duration(seconds(first.kept)))
			}
		}
	}
	if len(handlers) == 0 {
		e.ok("", "no process runs handlers")
		return nil
	}
	kept, trusted, err := e.windows(ctx)
	if err == nil && len(e.findings) == had {
		e.ok("", "the inbox rows of %s are kept for %s and relied on for %s", countOf(len(handlers), "handler"), kept, trusted)
	}
	return err
}
