package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/internal/reconcile"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// lossyShop is a shop with handlers of each kind, whose broker loses messages that it
// acknowledged.
type lossyShop struct {
	*shop

	broker    *devstack.NATS
	relay     *relay.Relay
	stopKinds func()
}

// kinds are the handlers that note their effects in the table deed.
var kinds = []string{"batched", "external", "ordered"}

func openLossyShop(t *testing.T, atomic bool) *lossyShop {
	t.Helper()
	f := openLossyShopWithoutRelay(t, atomic)
	f.startRelayHere(relay.Config{Atomic: atomic})
	return f
}

// startRelayHere starts a relay in this process.
func (f *lossyShop) startRelayHere(cfg relay.Config) {
	f.relay = relay.New(f.pool, natsjs.NewPublisher(f.nc), cfg)
	f.background(func(ctx context.Context) {
		if err := f.relay.Run(ctx); err != nil {
			f.Errorf("Run = %v: a loss is no reason to return", err)
		}
	})
}

func openLossyShopWithoutRelay(t *testing.T, atomic bool) *lossyShop {
	t.Helper()
	broker := devtest.OwnNATS(t)
	nc, err := nats.Connect(broker.URL(), natsjs.ConnectOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if atomic {
		devtest.NeedsNATS(t, nc, 12)
	}
	f := &lossyShop{shop: openShopWith(t, nc, jetstream.StreamConfig{AllowAtomicPublish: atomic}), broker: broker}
	f.exec("CREATE TABLE deed (id bigserial, kind text NOT NULL, event text NOT NULL, account int NOT NULL, n int NOT NULL)")
	f.exec("CREATE INDEX ON deed (event)")
	f.stopKinds = f.startKinds()
	return f
}

// startKinds starts the handlers, and returns a function that stops them.
func (f *lossyShop) startKinds() (stop func()) {
	in := inbox.New(f.pool, f.nc, inbox.Config{AckWait: 5 * time.Second})
	types := []string{f.stream + ".changed"}
	in.Handle(inbox.Subscription{Name: "batched", Stream: f.stream, Types: types, Workers: 2, Batch: 50}, doHandler("batched"))
	in.Handle(inbox.Subscription{Name: "ordered", Stream: f.stream, Types: types, Workers: 4, Order: inbox.HoldKey}, doHandler("ordered"))
	in.HandleExternal(inbox.Subscription{Name: "external", Stream: f.stream, Types: types, Workers: 4}, func(ctx context.Context, attempt *inbox.Attempt) error {
		var c change
		if err := json.Unmarshal(attempt.Event.Data, &c); err != nil {
			return err
		}
		id := attempt.Event.ID
		attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return do(ctx, tx, "external", id, c) })
		return nil
	})
	return f.background(func(ctx context.Context) {
		if err := in.Run(ctx); err != nil {
			f.Errorf("inbox: %v", err)
		}
	})
}

func doHandler(kind string) postroom.Handler {
	return postroom.JSON(func(ctx context.Context, tx pgx.Tx, ev postroom.Event, c change) error {
		return do(ctx, tx, kind, ev.ID, c)
	})
}

func do(ctx context.Context, tx pgx.Tx, kind, id string, c change) error {
	_, err := tx.Exec(ctx, "INSERT INTO deed (kind, event, account, n) VALUES ($1, $2, $3, $4)", kind, id, c.Account, c.N)
	return err
}

// whileStopped stops the broker, changes its storage, and starts it again. It returns when the
// test's own connection is back.
func (f *lossyShop) whileStopped(do func() error) {
	f.Helper()
	f.broker.Stop()
	if err := errors.Join(do(), f.broker.Restart(context.WithoutCancel(f.Context()))); err != nil {
		f.Fatal(err)
	}
	devtest.Answers(f, f.nc)
}

// cut removes the end of the file with the broker's newest messages, and the index that would
// show that they are missing.
func (f *lossyShop) cut() error {
	var blocks []string
	err := filepath.WalkDir(f.broker.Dir(), func(path string, _ fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !strings.Contains(path, f.stream):
			return nil
		case filepath.Base(path) == "index.db":
			return os.Remove(path)
		case filepath.Ext(path) == ".blk":
			blocks = append(blocks, path)
		}
		return nil
	})
	if err != nil || len(blocks) == 0 {
		return cmp.Or(err, errors.New("the stream has no file"))
	}
	slices.SortFunc(blocks, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	last := blocks[len(blocks)-1]
	info, err := os.Stat(last)
	if err != nil {
		return err
	}
	return os.Truncate(last, info.Size()*2/3)
}

// lost waits until the relay has noticed another loss, and recorded what to publish again.
func (f *lossyShop) lost(want broker.Verdict) relay.Loss {
	f.Helper()
	var loss relay.Loss
	devtest.Eventually(f.T, time.Minute, "the relay to repair a loss", func() bool {
		for _, loss = range f.relay.Health().Losses {
			return !loss.RepairedAt.IsZero()
		}
		return false
	})
	if loss.Verdict != want || loss.Stream != f.stream {
		f.Errorf("the relay noticed %+v, want %s of %s", loss, want, f.stream)
	}
	if loss.Events == 0 {
		f.Error("inconclusive: the broker lost nothing")
	}
	f.Logf("lost and repaired: %d events, noted within %s", loss.Events, loss.RepairedAt.Sub(loss.FoundAt).Round(time.Millisecond))
	return loss
}

// waitUntilIdle waits until every event took effect once at every handler, or is held as late at the
// ordered one. It returns how many are late.
func (f *lossyShop) waitUntilIdle() (late int) {
	f.Helper()
	f.stopClients()
	devtest.Eventually(f.T, 2*time.Minute, "every event to be decided at every handler", func() bool {
		var undecided int
		err := f.pool.QueryRow(f.Context(), `SELECT count(*) FROM postroom.outbox o, unnest($1::text[]) AS k (kind)
			WHERE NOT EXISTS (SELECT FROM deed WHERE deed.kind = k.kind AND event = o.event_id)
			  AND NOT EXISTS (SELECT FROM postroom.held h WHERE h.handler = k.kind AND h.event_id = o.event_id AND h.class = 'late')`, kinds).Scan(&undecided)
		return err == nil && undecided == 0
	})
	f.shop.waitUntilIdle()
	f.none("EffectOnce", "SELECT kind || ' ' || event FROM deed GROUP BY kind, event HAVING count(*) > 1")
	f.none("KeyOrder", `SELECT 'change ' || n || ' of account ' || account FROM (
		SELECT account, n, max(n) OVER (PARTITION BY account ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
		FROM deed WHERE kind = 'ordered' AND account > 0) d WHERE n < before`)
	if err := f.pool.QueryRow(f.Context(), "SELECT count(*) FROM postroom.held WHERE class = 'late'").Scan(&late); err != nil {
		f.Fatal(err)
	}
	return late
}

// known returns the end of the stream in the relay's record.
func (f *lossyShop) known() (seq int) {
	f.Helper()
	err := f.pool.QueryRow(f.Context(), "SELECT coalesce((streams -> $1 ->> 'seq')::int, 0) FROM postroom.relay", f.stream).Scan(&seq)
	if err != nil {
		f.Fatal(err)
	}
	return seq
}

// end returns the end of the stream.
func (f *lossyShop) end() int {
	f.Helper()
	stream, _ := f.reader()
	return int(stream.CachedInfo().State.LastSeq) //nolint:gosec // a count
}

// hasStreamTime reports whether the relay has recorded when its stream was created. The relay asks
// for that time after the first acknowledgement. Before that, it mistakes a stream that was made
// again for a stream that lost its end.
func (f *lossyShop) hasStreamTime() (does bool) {
	f.Helper()
	err := f.pool.QueryRow(f.Context(), "SELECT coalesce((streams -> $1 ->> 'created')::timestamptz > '2000-01-01', false) FROM postroom.relay", f.stream).Scan(&does)
	if err != nil {
		f.Fatal(err)
	}
	return does
}

// none fails for each text that a query returns.
func (f *lossyShop) none(promise, sql string) {
	f.Helper()
	rows, _ := f.pool.Query(f.Context(), sql)
	broken, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		f.Fatal(err)
	}
	for _, what := range broken[:min(len(broken), 5)] {
		f.Errorf("%s: %s", promise, what)
	}
}

// remake deletes the stream, and makes it again.
func remake(f *lossyShop, _ string) {
	f.Helper()
	old, err := f.js.Stream(f.Context(), f.stream)
	if err != nil {
		f.Fatal(err)
	}
	cfg := old.CachedInfo().Config
	if err := errors.Join(f.js.DeleteStream(f.Context(), f.stream), natsjs.EnsureStream(f.Context(), f.nc, cfg)); err != nil {
		f.Fatal(err)
	}
}

// rollBack puts the storage back to a saved state.
func rollBack(f *lossyShop, saved string) {
	f.Helper()
	f.whileStopped(func() error {
		return errors.Join(os.RemoveAll(f.broker.Dir()), os.CopyFS(f.broker.Dir(), os.DirFS(saved)))
	})
}

// A broker loses messages that it acknowledged, while clients go on. The relay notices that
// before it publishes anything new, and publishes the missing events again. In the end all are
// there, in the order of their keys, and no handler has a second effect.
func TestRelayRepublishesWhatTheBrokerLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		atomic bool
		want   broker.Verdict
		forget func(f *lossyShop, saved string)
	}{
		{"its stream is deleted and made again", false, broker.Recreated, remake},
		{"its storage is an older copy", false, broker.LostTail, rollBack},
		{"its last messages are cut off", false, broker.LostTail, func(f *lossyShop, _ string) { f.whileStopped(f.cut) }},
		{"its stream is deleted and made again, in atomic batches", true, broker.Recreated, remake},
		{"its storage is an older copy, in atomic batches", true, broker.LostTail, rollBack},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := openLossyShop(t, tt.atomic)
			f.grow(100)
			saved := filepath.Join(t.TempDir(), "saved")
			f.whileStopped(func() error { return os.CopyFS(saved, os.DirFS(f.broker.Dir())) })
			end := f.end() // the record may be older than the copy
			f.grow(100)
			f.hurry(100)
			devtest.Eventually(t, time.Minute, "more to be recorded as published, and when the stream was made", func() bool {
				return f.known() > end+100 && f.hasStreamTime()
			})
			tt.forget(f, saved)
			f.lost(tt.want)
			f.grow(50)
			if late := f.waitUntilIdle(); late > 0 && tt.want == broker.LostTail {
				t.Errorf("%d events are late at the ordered handler: they were published again in their order", late)
			} else {
				t.Logf("%d events are late at the ordered handler", late)
			}
		})
	}
}

// Messages vanish from the middle of a stream; handlers have had some of them. A comparison
// beside live traffic finds exactly these. They are published again. Each takes effect once,
// or is late at the ordered handler.
func TestReconcileFindsVanishedMessages(t *testing.T) {
	t.Parallel()
	f := openLossyShop(t, false)
	f.grow(100)
	f.stopKinds()
	f.grow(50)
	f.hurry(150)
	devtest.Eventually(t, time.Minute, "the first to be recorded as published", func() bool { return f.known() > 40 })
	known := f.known()
	devtest.Eventually(t, time.Minute, "more to be recorded as published", func() bool { return f.known() > known+80 })
	stream, err := f.js.Stream(t.Context(), f.stream)
	if err != nil {
		t.Fatal(err)
	}
	gone := map[string]bool{}
	for seq := uint64(known) - 40; len(gone) < 40; seq += 3 { //nolint:gosec // a sequence
		m, err := stream.GetMsg(t.Context(), seq)
		if err == nil {
			err = stream.DeleteMsg(t.Context(), seq)
		}
		if err != nil {
			t.Fatal(err)
		}
		gone[m.Header.Get("ce-id")] = true
	}
	f.startKinds()
	log, store := pglog.New(f.pool), operator.New(f.pool, operator.Config{})
	compare := func() []int64 {
		t.Helper()
		found, err := reconcile.Compare(t.Context(), log, natsjs.NewPublisher(f.nc), reconcile.Config{})
		if err != nil || len(found) != 1 || found[0].Err != nil || found[0].Compared == 0 {
			t.Fatalf("Compare = %+v, %v", found, err)
		}
		return found[0].Missing
	}
	missing := compare()
	rows, _ := f.pool.Query(t.Context(), "SELECT event_id FROM postroom.outbox WHERE seq = ANY ($1)", missing)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(missing) != len(gone) || slices.ContainsFunc(ids, func(id string) bool { return !gone[id] }) {
		t.Errorf("%d events are missing, want the %d that were removed", len(missing), len(gone))
	}
	made, err := store.RepublishSeqs(t.Context(), missing, 500, postroom.Audit{Actor: "test", Reason: "removed"})
	if err != nil {
		t.Fatal(err)
	}
	if again := compare(); len(again) > 0 { // events that are on their way are not requested again
		t.Errorf("%d events are missing while they are published again", len(again))
	}
	devtest.Eventually(t, time.Minute, "the repair to end", func() bool {
		now, err := store.FindRepublish(t.Context(), made[len(made)-1].ID)
		return err == nil && now.State == operator.RepublishDone
	})
	if missing := compare(); len(missing) > 0 {
		t.Errorf("%d events are missing after the repair", len(missing))
	}
	f.stopClients()
	if late := f.waitUntilIdle(); late == 0 {
		t.Error("inconclusive: no event came too late for the ordered handler")
	} else {
		t.Logf("%d events are late at the ordered handler", late)
	}
}
