package held_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/held"
)

// all puts an event of each state into held, for a handler and as an outgoing event.
func (d *rig) all() map[string]int64 {
	d.Helper()
	ids := make(map[string]int64)
	for _, state := range []string{"retrying", "due", "running", "abandoned", "dead"} {
		ids[state] = d.hold("billing", state, "", state)
	}
	d.hold("billing", "head", "k", "running")
	ids["waiting"] = d.hold("billing", "waiting", "k", "waiting")
	ids["out scheduled"] = d.hold(held.Outgoing, "out-scheduled", "", "scheduled")
	ids["out retrying"] = d.hold(held.Outgoing, "out-retrying", "o", "retrying")
	ids["out waiting"] = d.hold(held.Outgoing, "out-waiting", "o", "waiting")
	ids["out due"] = d.hold(held.Outgoing, "out-due", "", "due")
	ids["out dead"] = d.hold(held.Outgoing, "out-dead", "", "dead")
	return ids
}

func TestSelect(t *testing.T) {
	t.Parallel()
	d := newRig(t)
	ids := d.all()
	d.exec("UPDATE postroom.held SET type = 'order.paid', next_at = now() + interval '2 hours' WHERE event_id = 'retrying'")
	for name, tt := range map[string]struct {
		f    held.Filter
		want string
	}{
		"all":           {held.Filter{}, "due, abandoned, out-due, running, head, out-scheduled, out-retrying, retrying, waiting, out-waiting"},
		"a handler":     {held.Filter{Handler: "billing"}, "due, abandoned, running, head, retrying, waiting"},
		"outgoing":      {held.Filter{Handler: held.Outgoing}, "out-due, out-scheduled, out-retrying, out-waiting"},
		"some states":   {held.Filter{States: []held.State{held.Scheduled, held.Waiting}}, "out-scheduled, waiting, out-waiting"},
		"what runs":     {held.Filter{States: []held.State{held.Running}}, "out-due, running, head"},
		"a type":        {held.Filter{Type: "order.paid"}, "retrying"},
		"a key":         {held.Filter{Key: "k"}, "head, waiting"},
		"a class":       {held.Filter{Class: "error", Handler: "billing"}, "due, retrying"},
		"due since":     {held.Filter{DueSince: time.Now().Add(90 * time.Minute)}, "retrying"},
		"due until":     {held.Filter{DueUntil: time.Now()}, "due, abandoned, out-due"},
		"ids":           {held.Filter{IDs: []int64{ids["dead"], ids["due"]}}, "due, dead"},
		"ids and state": {held.Filter{IDs: []int64{ids["dead"], ids["due"]}, States: []held.State{held.Due}}, "due"},
		"none":          {held.Filter{Handler: "none"}, ""},
		"no ids":        {held.Filter{IDs: []int64{}}, ""},
	} {
		set, err := d.store.Select(t.Context(), tt.f, 0)
		if (err != nil) != (tt.want == "") || err != nil && !errors.Is(err, held.ErrNoMatch) {
			t.Errorf("%s: %v", name, err)
		}
		var names []string
		for _, id := range set.IDs {
			names = append(names, d.text("SELECT event_id FROM postroom.held WHERE id = $1", id))
		}
		var sum int64
		for _, n := range set.States {
			sum += n
		}
		slices.Sort(names)
		want := strings.Split(tt.want, ", ")
		first := want[0]
		slices.Sort(want)
		if strings.Join(names, ", ") != strings.Join(want, ", ") || sum != int64(len(names)) {
			t.Errorf("%s: %s, states %v; want %s", name, names, set.States, tt.want)
		}
		one, err := d.store.Select(t.Context(), tt.f, 1)
		if err == nil && (len(one.IDs) != 1 || d.text("SELECT event_id FROM postroom.held WHERE id = $1", one.IDs[0]) != first) {
			t.Errorf("%s: the first is %v, want %s", name, one.IDs, first)
		}
	}
	for _, f := range []held.Filter{{States: []held.State{held.Dead}}, {States: []held.State{"none"}}, {Type: "\xff"}} {
		if _, err := d.store.Select(t.Context(), f, 0); err == nil || errors.Is(err, held.ErrNoMatch) {
			t.Errorf("%+v: %v, want it to be refused", f, err)
		}
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	d := newRig(t)
	ids := d.all()
	set := d.sel(held.Filter{})
	set.IDs = append(set.IDs, ids["dead"], 4711)
	var told int64
	r, err := d.store.Retry(t.Context(), set, d.by, func(n int64) { told = n })
	d.wantResult(r, err, 3, map[held.State]int64{held.Due: 2, held.Running: 3, held.Waiting: 2, held.Dead: 1, held.Gone: 1})
	if told != 3 {
		t.Errorf("progress said %d, want 3", told)
	}
	for _, name := range []string{"retrying", "out scheduled", "out retrying"} {
		if got := d.dueIn(ids[name]); got != "0" {
			t.Errorf("%s is due in %s minutes, want now", name, got)
		}
	}
	d.want("attempts", "3", "SELECT attempts::text FROM postroom.held WHERE id = $1", ids["retrying"])
	d.want("time of the scheduled event", "0", "SELECT round(extract(epoch FROM now() - logged_at) / 60)::text FROM postroom.held WHERE id = $1", ids["out scheduled"])
	d.want("audit", "ann retry 3 ordered twice", "SELECT concat_ws(' ', actor, action, events, reason) FROM postroom.audit")

	one := d.hold("mail", "one", "", "retrying")
	r, err = d.store.Retry(t.Context(), held.Set{IDs: []int64{one}}, d.by, nil)
	d.wantResult(r, err, 1, nil)
	d.want("audit of one event", "retry mail /shop one", "SELECT concat_ws(' ', action, handler, source, event_id) FROM postroom.audit WHERE event_id IS NOT NULL")
	r, err = d.store.Retry(t.Context(), held.Set{IDs: []int64{one}}, d.by, nil)
	d.wantResult(r, err, 0, map[held.State]int64{held.Due: 1})
	d.want("audit of what changed something", "2", "SELECT count(*)::text FROM postroom.audit")
	if _, err := d.store.Retry(t.Context(), held.Set{IDs: []int64{one}}, postroom.Audit{}, nil); err == nil {
		t.Error("retried without an actor")
	}
}

func TestReschedule(t *testing.T) {
	t.Parallel()
	d := newRig(t)
	ids := d.all()
	set := d.sel(held.Filter{})
	r, err := d.store.RescheduleIn(t.Context(), set, 3*time.Hour, d.by, nil)
	d.wantResult(r, err, 5, map[held.State]int64{held.Running: 3, held.Waiting: 2})
	for _, name := range []string{"retrying", "due", "abandoned", "out scheduled", "out retrying"} {
		if got := d.dueIn(ids[name]); got != "180" {
			t.Errorf("%s is due in %s minutes, want 180", name, got)
		}
	}
	d.want("claim of the abandoned event", "none true", "SELECT coalesce(claimed_by, 'none') || ' ' || solitary FROM postroom.held WHERE id = $1", ids["abandoned"])
	d.want("isolation of the due event", "false", "SELECT solitary::text FROM postroom.held WHERE id = $1", ids["due"])
	// An event that was never published counts as logged at the time at which it is to be
	// published.
	d.want("time of the scheduled event", "180", "SELECT round(extract(epoch FROM logged_at - now()) / 60)::text FROM postroom.held WHERE id = $1", ids["out scheduled"])
	d.want("time of the refused event", "0", "SELECT round(extract(epoch FROM logged_at - now()) / 60)::text FROM postroom.held WHERE id = $1", ids["out retrying"])

	at := time.Now().Add(-time.Hour)
	r, err = d.store.Reschedule(t.Context(), held.Set{IDs: []int64{ids["retrying"]}}, at, d.by, nil)
	d.wantResult(r, err, 1, nil)
	if got := d.dueIn(ids["retrying"]); got != "0" {
		t.Errorf("due in %s minutes after it was rescheduled to the past, want now", got)
	}
	d.want("time in the audit", at.UTC().Format(time.RFC3339Nano), "SELECT details ->> 'at' FROM postroom.audit WHERE event_id = 'retrying'")
	if _, err := d.store.Reschedule(t.Context(), set, time.Time{}, d.by, nil); err == nil {
		t.Error("rescheduled to no time")
	}
}

// A process stalls until its claim has expired, and an operator reschedules the event. When the
// process continues, it has no effect.
func TestRescheduleEndsAFormerClaim(t *testing.T) {
	t.Parallel()
	d := newRig(t)
	in := d.inbox()
	began, resume := make(chan struct{}, 1), make(chan struct{})
	in.Handle(inbox.Subscription{Name: "h", Workers: 1}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		began <- struct{}{}
		<-resume
		return apply(ctx, tx, "h", ev)
	}))
	d.accept(in, "h", event(1))
	stop := d.run(in)
	devtest.Receive(t, 10*time.Second, "the handler to run", began)
	d.exec("UPDATE postroom.held SET next_at = now() - interval '1 ms', deaths = 9") // without them, this process would claim it again
	r, err := d.store.Reschedule(t.Context(), d.sel(held.Filter{}), time.Now().Add(24*time.Hour), d.by, nil)
	d.wantResult(r, err, 1, nil)
	close(resume)
	stop() // it waits for the handler
	d.want("effects", "0", "SELECT count(*)::text FROM effect")
	d.want("the rescheduled event", "true", "SELECT (next_at > now() + interval '23 hours')::text FROM postroom.held")
}

// An action changes the events that were chosen, and no others, for any number of them.
func TestActionChangesOnlyTheChosenEvents(t *testing.T) {
	t.Parallel()
	d := newRig(t)
	const many = 2500
	d.exec("INSERT INTO postroom.inbox (handler, dedupe_key) SELECT 'billing', '/shop ' || i FROM generate_series(1, $1::int) i", many)
	d.exec(`INSERT INTO postroom.held (handler, dedupe_key, next_at, class, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'billing', '/shop ' || i, now() + interval '1 hour', 'error', now(), '/shop', i::text, 'a', 'a', 'text/plain', '' FROM generate_series(1, $1::int) i`, many)
	set := d.sel(held.Filter{Handler: "billing"})
	late := d.hold("billing", "late", "", "retrying")
	var told []int64
	r, err := d.store.Retry(t.Context(), set, d.by, func(n int64) {
		told = append(told, n)
		d.exec("UPDATE postroom.held SET next_at = now() + interval '1 hour' WHERE id = $1", set.IDs[0]) // it matches again
	})
	d.wantResult(r, err, many, nil)
	if fmt.Sprint(told) != "[1000 2000 2500]" {
		t.Errorf("progress: %v", told)
	}
	if d.dueIn(late) != "60" || d.dueIn(set.IDs[0]) != "60" {
		t.Errorf("a retry also took events that matched the filter later: %s, %s", d.dueIn(late), d.dueIn(set.IDs[0]))
	}
	d.want("audit", "1000, 1000, 500", "SELECT string_agg(events::text, ', ' ORDER BY id) FROM postroom.audit")
}
