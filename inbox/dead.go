package inbox

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/invoke"
	"github.com/postroom/postroom/inbox/internal/ledger"
)

// Letter is an event that becomes dead, for [Config.OnDead].
type Letter struct {
	Handler  string
	Event    postroom.Event // if the message is not an event, only ID, Subject, Data and LoggedAt are set
	Attempts int            // the number of attempts that were made; 0 if the handler never ran
	Class    string         // the class of the failure, for instance "permanent" or "timeout"
	Error    string         // the failure's text, shortened
}

// tells reports whether Config.OnDead must be called for an event that is held as h says.
func (in *core) tells(h delivery.Holding) bool {
	return in.cfg.OnDead != nil && h.After == nil && !h.IsDiscarded() && !h.Untold
}

// tell calls Config.OnDead in the transaction in which the event becomes dead.
func (in *core) tell(ctx context.Context, tx invoke.Transaction, handler string, t delivery.Task, h delivery.Holding) error {
	l := Letter{Handler: handler, Event: t.Event, Attempts: h.Attempts, Class: h.Failure.Class, Error: h.Failure.Text}
	invoker := invoke.New(ledger.WritePatience, 1, nil)
	defer invoker.Close()
	if err := invoker.Run(ctx, tx, func(ctx context.Context, tx pgx.Tx) error { return in.cfg.OnDead(ctx, tx, l) }); err != nil {
		return &delivery.DeathError{Err: err}
	}
	return nil
}

// deaths calls Config.OnDead for a handler's events.
type deaths struct{ *loop }

// within calls the function write in a transaction, and then Config.OnDead if the function says
// that the event became dead.
func (c deaths) within(ctx context.Context, t delivery.Task, as delivery.Holding, write func(tx *ledger.Tx) (died bool, err error)) error {
	return c.ledger.Within(ctx, func(tx *ledger.Tx) error {
		if died, err := write(tx); err != nil || !died {
			return err
		}
		//guard:a-death-that-cannot-be-told-is-none = func() error { _ = @; return nil }()
		return c.inbox.tell(ctx, tx, c.sub.Name, t, as)
	})
}

// store holds an event that is not handled now, and returns the event's fate.
func (c deaths) store(ctx context.Context, o ledger.Owed) (fate delivery.Fate, err error) {
	if !c.inbox.tells(o.H) {
		fates, err := c.inbox.db.Store(ctx, o)
		if err != nil {
			return "", delivery.Written(err)
		}
		return fates[0], nil
	}
	id := ""
	err = c.within(ctx, o.D.Task, o.H, func(tx *ledger.Tx) (bool, error) {
		id = tx.ID
		fate, err = c.ledger.StoreIn(ctx, tx, o)
		return fate == delivery.FateHeld, err
	})
	if delivery.InDoubt(err) {
		o.D.Doubts = append(o.D.Doubts, delivery.Doubt{ID: id, Held: &o.H})
	}
	return fate, err
}

// note records a failed attempt at a held event. The result noted is that of [ledger.Handler.Fail].
func (c deaths) note(ctx context.Context, t delivery.Task, f ledger.Failed) (noted bool, err error) {
	if !c.inbox.tells(f.Holding) {
		return c.ledger.Fail(ctx, f)
	}
	err = c.within(ctx, t, f.Holding, func(tx *ledger.Tx) (died bool, err error) {
		died, noted, err = c.ledger.FailAlone(ctx, tx, f)
		return died, err
	})
	return noted, err
}

// untold returns how an event is held if OnDead failed for it. It returns false if the
// event must not be held: then its delivery stays in the stream, or its claim is given back.
func untold(ctx context.Context, log *slog.Logger, t delivery.Task, as delivery.Holding, err error) (delivery.Holding, bool) {
	log.ErrorContext(ctx, "OnDead failed, the event does not become dead now", "event_id", t.Event.ID, "dedupe_key", t.Key, "class", as.Failure.Class, "error", err)
	return as.WithoutDeath()
}
