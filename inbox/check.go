package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/ledger"
	"github.com/postroom/postroom/inbox/internal/preflight"
	"github.com/postroom/postroom/inbox/internal/share"
	"github.com/postroom/postroom/schema"
)

// Check reports whether the inbox could start. It checks the Config, the subscriptions,
// the size of the pool, the schema's version and the streams. A person has to correct an
// error that matches postroom.ErrUnrecoverable. Any other error is an outage, which Run
// would wait out. If another process gives a handler a different DedupeWindow, Check logs
// a warning: that is no error, because the longer one counts.
func (in *Inbox) Check(ctx context.Context) error {
	if err := in.checkSettings(); err != nil {
		return fmt.Errorf("inbox: %w", postroom.Unrecoverable(err))
	}
	if err := schema.Require(ctx, in.pool, in.cfg.Schema); err != nil {
		return fmt.Errorf("inbox: %w", in.advise(err))
	}
	if err := in.preflight().Check(ctx); err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	return nil
}

// preflight returns the part that checks the database and the broker.
func (in *Inbox) preflight() *preflight.Inbox {
	p := &preflight.Inbox{
		Conn: in.nc, Database: ledger.Upkeep{DB: in.db}, Log: in.cfg.Logger, Advise: in.advise,
	}
	for _, c := range in.loops {
		p.Handlers = append(p.Handlers, preflight.Handler{
			Name: c.sub.Name, Stream: c.sub.Stream, Types: c.sub.Types, Filter: c.sub.filter(), Ordered: c.isOrdered(), Window: c.window, Log: c.log, Runs: c.handler.apply,
		})
	}
	return p
}

// checkSettings checks what needs no server.
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

// needs returns what the handlers need of the process.
func (in *Inbox) needs() []share.Handler {
	all := make([]share.Handler, len(in.loops))
	for i, c := range in.loops {
		all[i] = share.Handler{Workers: c.sub.Workers, Connections: c.connections(), Leases: c.leases(), Stream: c.sub.Stream != ""}
	}
	return all
}

// Lag is how much a handler has to do.
type Lag = delivery.Lag

// Lag returns how much each handler still has to do. It asks the database and the broker.
// Use it in tests that wait until all is done, and to scale processes. It fails before
// Run has begun. For an ordered handler it also fails in a process that does not read the
// stream for it.
func (in *Inbox) Lag(ctx context.Context) ([]Lag, error) {
	pending := make(map[string]int64)
	for _, c := range in.loops {
		var err error
		if pending[c.sub.Name], err = c.pending.Count(ctx); err != nil {
			return nil, fmt.Errorf("inbox: handler %s: %w", c.sub.Name, in.advise(err))
		}
	}
	return ledger.Upkeep{DB: in.db}.Lag(ctx, pending) // after the broker, because a message delivered in between may be held by now
}
