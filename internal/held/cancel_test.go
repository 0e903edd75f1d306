package held_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
)

func TestCancel(t *testing.T) {
	t.Parallel()
	d := newRig(t)
	ids := d.all()
	set := d.sel(held.Filter{})
	set.IDs = append(set.IDs, ids["dead"])
	if _, err := d.store.Cancel(t.Context(), set, postroom.Audit{Actor: "ann"}, nil); err == nil {
		t.Error("cancelled for no reason")
	}
	r, err := d.store.Cancel(t.Context(), set, d.by, nil)
	d.wantResult(r, err, 6, map[held.State]int64{held.Running: 3, held.Waiting: 1, held.Dead: 1})
	d.want("archived", "abandoned -, due error, out-retrying error, out-scheduled -, retrying error, waiting -",
		"SELECT string_agg(event_id || ' ' || coalesce(class, '-'), ', ' ORDER BY event_id) FROM postroom.archive WHERE dead_at IS NULL")
	d.want("audit", "cancel 6 ordered twice", "SELECT concat_ws(' ', action, events, reason) FROM postroom.audit WHERE id = (SELECT min(audit) FROM postroom.archive)")
	d.want("held", "dead, head, out-dead, out-due, out-waiting, running", "SELECT string_agg(event_id, ', ' ORDER BY event_id) FROM postroom.held")
	if got := d.dueIn(ids["out waiting"]); got != "0" {
		t.Errorf("the event behind a cancelled one of its key is due in %s minutes, want now", got)
	}
	r, err = d.store.Cancel(t.Context(), set, d.by, nil)
	d.wantResult(r, err, 0, map[held.State]int64{held.Running: 4, held.Dead: 1, held.Gone: 6}) // the event that waited is due, so the relay may have it
	page, err := inspect.New(d.pool, nil, inspect.Config{}).Event(t.Context(), "", "retrying")
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	for _, m := range page.Timeline() {
		said += m.Where + ": " + m.Text + "\n"
	}
	if !strings.Contains(said, "billing: cancelled (audit ") {
		t.Errorf("the event's timeline says nothing of the cancellation:\n%s", said)
	}
}

// If an event of an ordered handler is cancelled, the events behind it in its key continue in their
// order.
func TestCancelLetsLaterEventsOfTheKeyGoOn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		head   string
		cancel []string
		due    string
	}{
		"the head":                 {"retrying", []string{"e1"}, "e2"},
		"the head and the next":    {"retrying", []string{"e1", "e2"}, "e3"},
		"one in the middle":        {"retrying", []string{"e2"}, "e1"},
		"one behind a dead head":   {"dead", []string{"e2"}, ""},
		"one behind a running one": {"running", []string{"e2"}, "e1"},
		"all":                      {"due", []string{"e1", "e2", "e3"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newRig(t)
			ids := map[string]int64{"e1": d.hold("billing", "e1", "k", tt.head), "e2": d.hold("billing", "e2", "k", "waiting"), "e3": d.hold("billing", "e3", "k", "waiting")}
			var set held.Set
			for _, id := range tt.cancel {
				set.IDs = append(set.IDs, ids[id])
			}
			r, err := d.store.Cancel(t.Context(), set, d.by, nil)
			d.wantResult(r, err, int64(len(tt.cancel)), nil)
			d.want("due", tt.due, "SELECT coalesce(string_agg(event_id, ', '), '') FROM postroom.held WHERE next_at IS NOT NULL")
		})
	}
}

// A cancelled event does not run if it comes again. If it is reopened, it is dead and can be
// replayed.
func TestCancelledEventDoesNotRunIfItComesAgain(t *testing.T) {
	t.Parallel()
	d := newRig(t)
	in := d.inbox()
	in.Handle(inbox.Subscription{Name: "billing", Workers: 1}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		return apply(ctx, tx, "billing", ev)
	}))
	d.accept(in, "billing", event(1))
	r, err := d.store.Cancel(t.Context(), d.sel(held.Filter{}), d.by, nil)
	d.wantResult(r, err, 1, nil)
	if got := d.accept(in, "billing", event(1)); got != inbox.Duplicate {
		t.Errorf("accepted again: %s, want a duplicate", got)
	}
	d.run(in)
	d.accept(in, "billing", event(2))
	devtest.Eventually(t, patience, "the other event to run", func() bool { return d.text("SELECT count(*)::text FROM effect") == "1" })
	d.want("effects", "e2", "SELECT string_agg(id, ', ') FROM effect")

	dead := deadletter.New(d.pool, deadletter.Config{})
	by := postroom.Audit{Actor: "ann"}
	if n, err := dead.Reopen(t.Context(), deadletter.Filter{EventID: "e1"}, deadletter.ChangeOptions{}, by); n != 1 || err != nil {
		t.Fatalf("reopened %d, %v", n, err)
	}
	replay, err := dead.CreateReplay(t.Context(), deadletter.Filter{Class: "cancelled"}, deadletter.ReplayOptions{}, by)
	if err != nil {
		t.Fatal(err)
	}
	if replay, err = dead.RunReplay(t.Context(), replay.ID, deadletter.RunOptions{}); err != nil || replay.Succeeded != 1 {
		t.Errorf("replayed: %+v, %v", replay, err)
	}
}

// If processes claim events while an operator cancels them, each event is either cancelled or runs:
// never both, and never neither. If an event can no longer be cancelled, the result says that it
// runs or is gone.
func TestEventIsCancelledOrRunsNeverBoth(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]func(in *inbox.Inbox){
		"transactional": func(in *inbox.Inbox) {
			in.Handle(inbox.Subscription{Name: "billing", Workers: 8}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				return apply(ctx, tx, "billing", ev)
			}))
		},
		"batches": func(in *inbox.Inbox) {
			in.Handle(inbox.Subscription{Name: "billing", Workers: 4, Batch: 10}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				return apply(ctx, tx, "billing", ev)
			}))
		},
		"fails at first": func(in *inbox.Inbox) {
			var mu sync.Mutex
			failed := make(map[string]bool)
			in.Handle(inbox.Subscription{Name: "billing", Workers: 8, Schedule: postroom.Backoff{time.Millisecond}, Attempts: 8}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				mu.Lock()
				first := !failed[ev.ID]
				failed[ev.ID] = true
				mu.Unlock()
				if first {
					return errors.New("not yet")
				}
				return apply(ctx, tx, "billing", ev)
			}))
		},
		"external": func(in *inbox.Inbox) {
			in.HandleExternal(inbox.Subscription{Name: "billing", Workers: 8}, func(ctx context.Context, a *inbox.Attempt) error {
				a.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return apply(ctx, tx, "billing", a.Event) })
				_, err := inbox.Step(ctx, a, "charge", func(context.Context, string) (struct{}, error) { return struct{}{}, nil })
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newRig(t)
			const events, rounds = 100, 4
			in, others := d.inbox(), []*inbox.Inbox{d.inbox(), d.inbox()}
			handle(in)
			for _, o := range others {
				handle(o)
				d.run(o)
			}
			var cancelled, busy int64
			random := devtest.Random(t, 0)
			for round := range rounds {
				for n := range events {
					d.accept(in, "billing", event(round*events+n))
				}
				set, err := d.store.Select(t.Context(), held.Filter{}, 0)
				if errors.Is(err, held.ErrNoMatch) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				random.Shuffle(len(set.IDs), func(i, j int) { set.IDs[i], set.IDs[j] = set.IDs[j], set.IDs[i] })
				var wg sync.WaitGroup
				var mu sync.Mutex
				for _, id := range set.IDs {
					wg.Go(func() {
						r, err := d.store.Cancel(t.Context(), held.Set{IDs: []int64{id}}, d.by, nil)
						if err != nil || r.Events+r.Unchanged[held.Running]+r.Unchanged[held.Gone] != 1 {
							t.Errorf("cancel: %+v, %v", r, err)
						}
						mu.Lock()
						cancelled, busy = cancelled+r.Events, busy+1-r.Events
						mu.Unlock()
					})
				}
				wg.Wait()
			}
			devtest.Eventually(t, patience, "nothing to be held", func() bool { return d.text("SELECT count(*)::text FROM postroom.held") == "0" })
			d.want("cancelled", fmt.Sprint(cancelled), "SELECT count(*)::text FROM postroom.archive")
			d.want("run, once each", fmt.Sprint(events*rounds-cancelled), "SELECT count(*)::text FROM effect")
			d.want("run or cancelled", fmt.Sprint(events*rounds), "SELECT count(*)::text FROM (SELECT id FROM effect UNION SELECT event_id FROM postroom.archive) x")
			t.Logf("%d cancelled, %d too late", cancelled, busy)
		})
	}
}
