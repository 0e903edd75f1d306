package measure

import (
	"context"

	"github.com/postroom/postroom/inbox"
)

// callers is the number of workers of an external handler. It can be large: a worker needs no
// connection to the database while it waits for another system.
const callers = 256

// external runs an external handler on the backlog. For each event the handler has one step, a call
// that takes no time.
func external(ctx context.Context, l *backlog) error {
	in := inbox.New(l.pool, l.nc, inbox.Config{Schema: l.schema, Logger: warnings(l.b.cfg.Logger)})
	sub := inbox.Subscription{Name: "bench", Stream: l.b.stream(), Types: []string{l.b.subject()}, Workers: callers}
	in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		_, err := inbox.Step(ctx, attempt, "call", func(_ context.Context, key string) (string, error) { return key, nil })
		if err != nil {
			return err
		}
		return l.note(attempt.Event.Key)
	})
	return in.Run(ctx)
}
