package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// followed publishes event a-00000. Its first attempt fails, so it is held. Its second attempt
// publishes a-00001, waits until a-00001 is held behind a-00000, and calls the function then. The
// function second handles a-00001.
func (b *bench) followed(sub inbox.Subscription, cfg inbox.Config, then, second postroom.HandlerFunc) {
	b.Helper()
	entered, resume, runs := make(chan struct{}), make(chan struct{}), 0
	b.in = inbox.New(b.pool, b.nc, cfg)
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID != "a-00000" {
			return second(ctx, tx, ev)
		}
		if runs++; runs == 1 {
			return errFails
		}
		close(entered)
		<-resume
		return then(ctx, tx, ev)
	}))
	b.publishKey("a", 0)
	b.run()
	<-entered
	b.publishKey("a", 1)
	b.eventuallyStates(sub.Name, map[string]string{"a-00000": "claimed", "a-00001": "waiting"})
	close(resume)
}

// The statement that settles an event claims the next event of the key. The claim's time counts
// from that statement, and not from the begin of the transaction, in which the handler has run.
func TestClaimOnTheNextEventOfAKeyLastsAsLongAsOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.ordered("o", inbox.HoldKey)
	sub.Timeout = 30 * time.Second
	var ran, ends time.Time
	b.followed(sub, b.config(),
		func(ctx context.Context, tx pgx.Tx, _ postroom.Event) error {
			return tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&ran)
		},
		func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			if err := b.pool.QueryRow(ctx, "SELECT next_at FROM postroom.held WHERE event_id = 'a-00001' AND claimed_by IS NOT NULL").Scan(&ends); err != nil {
				return err
			}
			return effect("o").Handle(ctx, tx, ev)
		})
	b.eventually("the second event's effect", func() bool { return b.made("o", "a-00001") == 1 && b.heldCount("o") == 0 })
	if got, want := ends.Sub(ran), sub.Timeout+10*time.Second; got < want {
		t.Errorf("the claim ends %s after the first handler's end, want at least %s", got, want)
	}
}

// Another process has the first event of a key, and perhaps has recorded that it is dead. A process
// that had the event before lets no later event of the key run.
func TestAStalledOwnerLetsNoLaterEventRun(t *testing.T) {
	t.Parallel()
	const died = "epoch = epoch + 1, attempts = attempts + 1, next_at = NULL, dead_at = now(), class = 'permanent', claimed_by = NULL"
	const claimed = "epoch = epoch + 1, attempts = attempts + 1, next_at = now() + interval '1 h', claimed_by = 'other'"
	for name, is := range map[string]struct {
		order  inbox.Order
		fails  error
		set    string
		state  string
		onDead bool
	}{
		"discarded, and dead":              {inbox.HoldKey, postroom.Discard("of no use"), died, "dead", false},
		"discarded, and claimed":           {inbox.HoldKey, postroom.Discard("of no use"), claimed, "claimed", false},
		"skipped, and claimed":             {inbox.SkipKey, postroom.Permanent(errFails), claimed, "claimed", false},
		"skipped with OnDead, and claimed": {inbox.SkipKey, postroom.Permanent(errFails), claimed, "claimed", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			cfg := b.recordDeaths(0)
			if !is.onDead {
				cfg.OnDead = nil
			}
			b.followed(b.ordered("o", is.order), *cfg,
				func(ctx context.Context, _ pgx.Tx, _ postroom.Event) error {
					if _, err := b.pool.Exec(ctx, "UPDATE postroom.held SET "+is.set+" WHERE event_id = 'a-00000'"); err != nil {
						return err
					}
					return is.fails
				},
				effect("o").Handle)
			b.eventually("the loss to be counted", func() bool { return b.count(lostClaims) == 1 })
			b.eventuallyStates("o", map[string]string{"a-00000": is.state, "a-00001": "waiting"})
			if n := b.made("o", "%"); n > 0 || len(b.deaths()) > 0 {
				t.Errorf("%d effects and the deaths %v, want none", n, b.deaths())
			}
		})
	}
}
