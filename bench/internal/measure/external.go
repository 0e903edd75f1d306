package measure

import (
	"context"

	"github.com/postroom/postroom/inbox"
)

// callers is the number of workers of an external handler. They wait for answers of other systems,
// and need no connection.
const callers = 256

// external runs an external handler on the backlog, with one step for each event: a call that
// takes no time.
func external(ctx context.Context, l *backlog) error {
	in := inbox.New(l.pool, l.nc, inbox.Config{Schema: l.schema, Logger: warnings(l.b.cfg.Logger)})
	sub := inbox.Subscription{Name: "bench", Stream: l.b.stream(), Types: []string{l.b.subject()}, Workers: callers}
	in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		_, err := attempt.Step(ctx, "call", func(_ context.Context, key string) ([]byte, error) { return []byte(key), nil })
		if err != nil {
			return err
		}
		return l.note(attempt.Event.Key)
	})
	return in.Run(ctx)
}
