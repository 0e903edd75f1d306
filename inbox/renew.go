package inbox

import (
	"context"
	"time"

	"github.com/postroom/postroom/inbox/internal/ledger"
)

// renewer renews the claims of external handlers, which may run for longer than a
// claim lasts. It implements postroom.Runner.
type renewer struct{ inbox *Inbox }

// Run renews until ctx ended and nothing is claimed any more.
func (r *renewer) Run(ctx context.Context) error {
	work, cancel := r.inbox.drain(ctx)
	defer cancel()
	for next := time.Now(); work.Err() == nil; {
		claims := r.inbox.runner.renewable()
		if ctx.Err() != nil && len(claims) == 0 {
			return nil
		}
		if !time.Now().Before(next) {
			next = time.Now().Add(r.inbox.cfg.AckWait / 3)
			if err := r.renew(work, claims); err != nil && work.Err() == nil {
				r.inbox.lines.Warn(ctx, r.inbox.cfg.Logger, "claims could not be renewed; others may take over", r.inbox.advise(err))
			}
		}
		if ctx.Err() == nil {
			sleep(ctx, time.Until(next))
		} else {
			sleep(work, 20*time.Millisecond) // a stop does not wait for the next renewal
		}
	}
	return nil
}

// renew renews claims. A handler whose claim is another's now is told so.
func (r *renewer) renew(ctx context.Context, claims []*claim) error {
	if len(claims) == 0 {
		return nil
	}
	ids, epochs := make([]int64, len(claims)), make([]int64, len(claims))
	lost := make(map[int64]*claim, len(claims))
	for i, cl := range claims {
		ids[i], epochs[i], lost[cl.ID] = cl.ID, cl.Epoch, cl
	}
	ctx, cancel := context.WithTimeout(ctx, ledger.WritePatience)
	defer cancel()
	kept, err := r.inbox.db.Renew(ctx, ids, epochs, r.inbox.cfg.AckWait)
	if err != nil {
		return err
	}
	for _, id := range kept {
		delete(lost, id)
	}
	for _, cl := range lost {
		cl.lose() // where it has just been settled, nobody listens any more
	}
	return nil
}
