package gate

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// Watcher logs and reports a handler's pauses, and gives back the attempts that events lost before
// a pause.
type Watcher struct {
	Gate    *Gate
	Handler string
	Log     *slog.Logger
	Wake    func()                                                         // called when the gate has changed or a probe is due, because more events may run then
	Report  func(ctx context.Context) error                                // called when the handler paused because of failures, or resumed
	Warn    func(ctx context.Context, what string, err error, args ...any) // logs an error with advice

	// GiveBack gives attempts back to events of a handler, and returns the events that
	// got them.
	GiveBack func(ctx context.Context, handler string, events []string, attempts []int) ([]string, error)
}

// Run watches the gate until ctx ends.
func (w Watcher) Run(ctx context.Context) {
	var was State
	probe := time.NewTimer(0)
	defer probe.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-probe.C:
		case <-w.Gate.Changes():
			now := w.Gate.State()
			w.tell(ctx, was, now)
			if was.Paused != now.Paused {
				if err := w.Report(ctx); err != nil && ctx.Err() == nil {
					w.Log.DebugContext(ctx, "pause not reported, the next sign of life reports it", "error", err)
				}
			}
			was = now
		}
		w.Wake()
		if was.Paused {
			probe.Reset(max(w.Gate.Due(), time.Second))
		}
	}
}

// tell logs that the handler paused or resumed.
func (w Watcher) tell(ctx context.Context, was, now State) {
	switch {
	case now.Paused && !was.Paused:
		w.Log.ErrorContext(ctx, "handler paused: it fails for nearly all events",
			"tried", now.Tried, "failed", now.Failed, "error_class", now.Cause.Class, "error", now.Cause.Text)
		w.giveBack(ctx)
	case now.Operator && !was.Operator:
		w.Log.WarnContext(ctx, "handler paused by an operator")
	case was.Operator && !now.Operator:
		w.Log.InfoContext(ctx, "handler resumed by an operator, or at the end of its pause")
	case was.Paused && !now.Paused:
		w.Log.InfoContext(ctx, "handler resumed: an event was handled", "paused_for", time.Since(was.Since).Round(time.Second))
	}
}

// giveBack gives attempts back to the events that failed more than once before the pause.
// Running events get their attempts back when their run has ended.
func (w Watcher) giveBack(ctx context.Context) {
	var events []string
	var attempts []int
	for event, n := range w.Gate.Back() {
		events, attempts = append(events, event), append(attempts, n)
	}
	for some := range slices.Chunk(events, 1000) {
		given, err := w.GiveBack(ctx, w.Handler, some, attempts[:len(some)])
		if err != nil {
			w.Warn(ctx, "attempts not given back to events that failed before the pause", err, "handler", w.Handler)
			return
		}
		attempts = attempts[len(some):]
		w.Gate.GaveBack(given)
	}
}
