package claims

import (
	"context"
	"time"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/sleep"
)

// Renewer renews the claims of external handlers, which may run for longer than a
// claim lasts. It implements postroom.Runner.
type Renewer struct{ *Runner }

// Run renews claims until ctx has ended and no claim needs a renewal any more. It returns at the
// latest when Config.Drain has passed since the end of ctx.
func (r Renewer) Run(ctx context.Context) error {
	life, cancel := delivery.NewLifetime(ctx, r.cfg.Drain)
	defer cancel()
	for next := time.Now(); !life.IsOver(); {
		claims := r.renewable()
		if life.IsStopping() && len(claims) == 0 {
			return nil
		}
		if !time.Now().Before(next) {
			next = time.Now().Add(r.cfg.Renewal / 3)
			if err := r.renew(life.Work, claims); err != nil && !life.IsOver() {
				r.cfg.Warn(life.Take, "claims not renewed, other processes may take over", err)
			}
		}
		if !life.IsStopping() {
			sleep.For(life.Take, time.Until(next))
		} else {
			sleep.For(life.Work, 20*time.Millisecond) // so that a stop does not wait for the next renewal
		}
	}
	return nil
}

// renewable returns the claims that have to be renewed.
func (r Renewer) renewable() []*Claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	var claims []*Claim
	for _, cl := range r.known {
		if cl.queue.Renewed && !cl.IsLost() {
			claims = append(claims, cl)
		}
	}
	return claims
}

// renew renews claims. If another process has one now, renew tells the event's run.
func (r Renewer) renew(ctx context.Context, claims []*Claim) error {
	if len(claims) == 0 {
		return nil
	}
	ids, epochs := make([]int64, len(claims)), make([]int64, len(claims))
	lost := make(map[int64]*Claim, len(claims))
	for i, cl := range claims {
		ids[i], epochs[i], lost[cl.ID] = cl.ID, cl.Epoch, cl
	}
	kept, err := r.cfg.Ledger.Renew(ctx, ids, epochs, r.cfg.Renewal)
	if err != nil {
		return err
	}
	for _, id := range kept {
		delete(lost, id)
	}
	for _, cl := range lost {
		cl.Lose() // has no effect if the event has just been settled
	}
	return nil
}
