package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/inbox/internal/preflight"
	"github.com/postroom/postroom/inbox/internal/share"
	"github.com/postroom/postroom/internal/sameschema"
	"github.com/postroom/postroom/schema"
)

// Check reports whether the inbox can start. It checks the Config, the subscriptions, the intakes, the
// size of the pool, the schema's version and the streams. A person must correct an error that matches
// postroom.ErrUnrecoverable. Any other error is an outage, and Run waits until the outage ends. But
// the stream of one handler does not stop the others: Run begins without it, and logs that, unless the
// handler has never read a stream. If another process gives a handler a different DedupeWindow, Check
// logs a warning. This difference is not an error, because the longer DedupeWindow counts.
func (in *Inbox) Check(ctx context.Context) error {
	return in.check(ctx, (*preflight.Inbox).Check)
}

// check makes the checks of Check. The parameter set makes those of the set-up.
func (in *Inbox) check(ctx context.Context, set func(*preflight.Inbox, context.Context) error) error {
	if err := in.checkSettings(); err != nil {
		return fmt.Errorf("inbox: %w", postroom.Unrecoverable(err))
	}
	_, name := in.Tables()
	//guard:an-inbox-tells-its-schema do _, _ = name, sameschema.Of
	ctx = sameschema.Of(ctx, name)
	//guard:an-inbox-checks-its-intakes 0 = error(nil)
	if err := in.checkIntakes(ctx); err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	if err := schema.Require(ctx, in.pool, in.cfg.Schema); err != nil {
		return fmt.Errorf("inbox: %w", in.advise(err))
	}
	if err := set(in.preflight(), ctx); err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	return nil
}

// preflight returns the part of the inbox that checks the database and the broker.
func (in *Inbox) preflight() *preflight.Inbox {
	p := &preflight.Inbox{
		Conn: in.nc, Database: ledger.Upkeep{DB: in.db}, Log: in.cfg.Logger, Advise: in.advise,
	}
	for _, c := range in.loops {
		p.Handlers = append(p.Handlers, preflight.Handler{
			Name: c.sub.Name, Stream: c.sub.Stream, Types: c.sub.Types, Filter: c.sub.filter(), Order: orderNames[c.sub.Order], Ordered: c.isOrdered(), Window: c.window, Log: c.log, Runs: c.handler.apply,
		})
	}
	return p
}

// checkSettings makes the checks that need no server.
func (in *Inbox) checkSettings() error {
	if in.err != nil {
		return in.err
	}
	if len(in.acceptor.Handlers) == 0 {
		return errors.New("no handler is registered; call Handle before Run")
	}
	if err := in.preflight().CheckConnection(); err != nil {
		return err
	}
	return share.Check(in.needs(), in.pool.Config().MaxConns)
}

// needs returns how many workers and connections each handler needs, and whether it reads a stream.
func (in *Inbox) needs() []share.Handler {
	all := make([]share.Handler, len(in.loops))
	for i, c := range in.loops {
		all[i] = share.Handler{Workers: c.sub.Workers, Connections: c.connections(), Leases: c.leases(), Stream: c.sub.Stream != ""}
	}
	return all
}

// Lag is the number of events that a handler still has to handle.
type Lag struct {
	Handler string

	// Pending is the number of messages of the handler's stream that are not decided. For
	// an ordered handler, all messages that were not read yet may count as one.
	Pending int64

	// Retrying is the number of held events that are or will be due. Waiting is the number
	// of events that wait behind an earlier event of their key. Dead is the number of
	// events that wait for an operator. Each of the three is counted up to 10,000.
	Retrying, Waiting, Dead int64
}

// Lag returns how many events each handler still has to handle. It asks the database and the
// broker. Use it in tests that wait until all events are handled, and to choose the number of
// processes. It returns an error if a handler reads a stream and Run has not begun. If there is an
// ordered handler, Lag also fails in a process that does not read that handler's stream.
func (in *Inbox) Lag(ctx context.Context) ([]Lag, error) {
	pending := make(map[string]int64)
	for _, c := range in.loops {
		var err error
		if pending[c.sub.Name], err = c.pending.Count(ctx); err != nil {
			return nil, fmt.Errorf("inbox: handler %s: %w", c.sub.Name, in.advise(err))
		}
	}
	counted, err := ledger.Upkeep{DB: in.db}.Lag(ctx, pending) // ask the database last: an event that the inbox holds after the broker's answer must be counted too
	if err != nil {
		return nil, err
	}
	lags := make([]Lag, len(counted))
	for i, c := range counted {
		lags[i] = Lag(c)
	}
	return lags, nil
}
