package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
)

// contents returns a digest of every table, except tables that a running process writes to.
func (n *rig) contents() map[string]string {
	n.Helper()
	digests := map[string]string{}
	for _, table := range n.texts(`SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
		WHERE schemaname IN ('postroom', 'public') AND tablename NOT IN ('node', 'sweep', 'dedupe_window')`) {
		digests[table] = n.texts(fmt.Sprintf("SELECT count(*) || ' ' || coalesce(md5(string_agg(t::text, ',' ORDER BY t::text)), '') FROM %s t", table))[0]
	}
	return digests
}

// try tries all dead events, for as long as it takes.
func (n *rig) try(f deadletter.Filter, each int) map[string]deadletter.DryRun {
	n.Helper()
	trials, err := n.store.DryRun(n.Context(), f, deadletter.DryRunOptions{Each: each, Wait: patience})
	if err != nil {
		n.Fatal(err)
	}
	byEvent := map[string]deadletter.DryRun{}
	for _, trial := range trials {
		byEvent[trial.EventID] = trial
	}
	return byEvent
}

// patient is a database that records whether a statement has a deadline.
type patient struct {
	*pgxpool.Pool

	withDeadline atomic.Int32
}

func (p *patient) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if _, ok := ctx.Deadline(); ok {
		p.withDeadline.Add(1)
	}
	return p.Pool.Query(ctx, sql, args...)
}

// If a wait ends while a statement runs, it must not cancel the statement: pgx would close the
// connection, and then the request could not be removed.
func TestEndOfAWaitCancelsNoStatement(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("h", func(postroom.Event) error { return postroom.Permanent(errors.New("no")) }, postroom.Event{ID: "a", Source: "/shop", Type: "t"})
	db := &patient{Pool: n.pool}
	trials, err := deadletter.New(db, deadletter.Config{}).DryRun(context.WithoutCancel(n.Context()), deadletter.Filter{}, deadletter.DryRunOptions{Each: 1, Wait: time.Millisecond})
	if err != nil || len(trials) != 1 || trials[0].Verdict != deadletter.DryRunUnanswered {
		t.Errorf("Try = %+v, %v; want a dry run without an answer", trials, err)
	}
	if got := db.withDeadline.Load(); got != 0 {
		t.Errorf("%d statements had a deadline, want none", got)
	}
	if left := n.number("SELECT count(*) FROM postroom.dry_run"); left != 0 {
		t.Errorf("%d dry runs are left", left)
	}
}

// A dry run leaves nothing behind, whatever the handler does.
func TestDryRunLeavesNothing(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.exec("CREATE TABLE account (id text PRIMARY KEY, balance int)")
	n.exec("CREATE TABLE booking (account text REFERENCES account DEFERRABLE INITIALLY DEFERRED)")
	n.exec("INSERT INTO account VALUES ('a', 5), ('b', 7)")
	out := outbox.New(outbox.Config{Source: "/billing"})
	handlers := map[string]func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error{
		"passes": func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			if _, err := tx.Exec(ctx, "UPDATE account SET balance = balance - 1"); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "DELETE FROM account WHERE id = 'b'"); err != nil {
				return err
			}
			next := postroom.NewEvent("order.paid", "1")
			next.ID = "follows"
			if err := out.Write(ctx, tx, next); err != nil {
				return err
			}
			return apply(ctx, tx, "passes", ev)
		},
		"deferred": func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			_, err := tx.Exec(ctx, "INSERT INTO booking VALUES ('nobody')")
			return err
		},
		"fails":  func(context.Context, pgx.Tx, postroom.Event) error { return postroom.Permanent(errDeclined) },
		"panics": func(context.Context, pgx.Tx, postroom.Event) error { panic("no") },
		"exits":  func(context.Context, pgx.Tx, postroom.Event) error { runtime.Goexit(); return nil },
		"waits": func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			if err := apply(ctx, tx, "waits", ev); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		},
		"ignores": func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil
		},
		"commits": func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			if err := apply(ctx, tx, "commits", ev); err != nil {
				return err
			}
			if err := tx.Commit(ctx); err != nil {
				return fmt.Errorf("commit: %w", err)
			}
			return nil
		},
		"hangs": nil, // set below
	}
	hang := make(chan struct{})
	defer close(hang)
	handlers["hangs"] = func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		err := apply(ctx, tx, "hangs", ev)
		<-hang
		return err
	}
	for name := range handlers {
		ev := event(name)
		n.die(name, declined, ev)
	}
	var runs atomic.Int32
	in := n.inbox()
	for name, handle := range handlers {
		s := sub(name)
		s.Timeout = 3 * time.Second
		in.Handle(s, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
			runs.Add(1)
			return handle(ctx, tx, ev)
		}))
	}
	n.run(in)
	n.eventuallyRegistered(1)
	before := n.contents()
	trials := n.try(deadletter.Filter{}, 5)
	if after := n.contents(); !maps.Equal(after, before) {
		t.Errorf("tables before: %v\nafter: %v", before, after)
	}
	n.want("dry runs left", 0, "SELECT count(*) FROM postroom.dry_run")
	for name, want := range map[string]struct {
		verdict     deadletter.DryRunVerdict
		class, text string
	}{
		"passes":   {deadletter.DryRunPasses, "", ""},
		"deferred": {deadletter.DryRunFails, "23503", "booking"},
		"fails":    {deadletter.DryRunFails, "permanent", "declined"},
		"panics":   {deadletter.DryRunFails, "panic", "no"},
		"exits":    {deadletter.DryRunFails, "panic", "Goexit"},
		"waits":    {deadletter.DryRunFails, "timeout", "in time"},
		"hangs":    {deadletter.DryRunFails, "timeout", "abandoned"},
		"ignores":  {deadletter.DryRunFails, "error", "did not return its error"},
		"commits":  {deadletter.DryRunFails, "error", "ended by the inbox"},
	} {
		got := trials[name]
		if got.Verdict != want.verdict || got.Class != want.class || !strings.Contains(got.Text, want.text) || got.PreviousClass != "error" || got.Handler != name || got.Took <= 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	want := []deadletter.TableChange{
		{Kind: "event", Name: "order.paid", Inserted: 1},
		{Kind: "table", Name: "public.account", Updated: 2, Deleted: 1},
		{Kind: "table", Name: "public.effect", Inserted: 1},
	}
	if got := trials["passes"].Changes; !slices.Equal(got, want) {
		t.Errorf("changes: %+v, want %+v", got, want)
	}
	if got := int(runs.Load()); got != len(handlers) {
		t.Errorf("%d runs, want one for each of %d", got, len(handlers))
	}
}

// eventuallyKnown waits until processes are known.
func (n *rig) eventuallyRegistered(count int64) {
	n.Helper()
	devtest.Eventually(n.T, patience, "the processes to be known", func() bool { return n.number("SELECT count(*) FROM postroom.node") == count })
}

// An event whose handler committed is in no dry run, which would repeat its effects. The preview counts
// it.
func TestDryRunLeavesOutWhatItCouldNotRollBack(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.exec("CREATE TABLE kept (id text)")
	in := n.inbox()
	in.Handle(sub("commits"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		_, err := tx.Exec(ctx, "INSERT INTO kept VALUES ('"+ev.ID+"'); COMMIT", pgx.QueryExecModeSimpleProtocol)
		return err
	}))
	n.run(in)
	n.accept(in, "commits", event("e"))
	devtest.Eventually(t, patience, "the dead event", func() bool {
		return n.number("SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL AND class = 'transaction'") == 1
	})
	for range 3 {
		if got := n.try(deadletter.Filter{}, 5)["e"]; got.Verdict != deadletter.DryRunCommits {
			t.Errorf("dry run: %+v", got)
		}
	}
	n.want("effects", 1, "SELECT count(*) FROM kept")
	groups, _, err := n.store.Preview(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{})
	if err != nil || len(groups) != 1 || groups[0].Committed != 1 {
		t.Errorf("preview: %+v, %v", groups, err)
	}
}

// A dry run reports its own changes, and not those of earlier transactions on its connection.
func TestDryRunReportsOnlyItsOwnChanges(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.exec("CREATE TABLE quiet (id text)")
	n.die("quiet", declined, event("e1"))
	in := n.inbox()
	in.Handle(sub("quiet"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		_, err := tx.Exec(ctx, "INSERT INTO quiet VALUES ($1)", ev.ID)
		return err
	}))
	s := sub("busy")
	s.Workers = 6
	in.Handle(s, newScript().handler("busy"))
	n.run(in)
	want := []deadletter.TableChange{{Kind: "table", Name: "public.quiet", Inserted: 1}}
	for i := range 10 {
		for j := range 20 {
			n.accept(in, "busy", event(fmt.Sprintf("b%d-%d", i, j)))
		}
		if got := n.try(deadletter.Filter{}, 1)["e1"]; got.Verdict != deadletter.DryRunPasses || !slices.Equal(got.Changes, want) {
			t.Fatalf("trial: %+v, want the changes %+v", got, want)
		}
	}
}

// A dry run does not run an event of an external handler, one that may end its process, or one
// whose handler no process has.
func TestDryRunSkipsEventsThatItMustNotRun(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	v := newVendor()
	v.fault("mail", errRejected)
	stop := n.external(v)
	n.dies(event("external"), "permanent")
	stop()
	n.die("suspect", declined, event("suspect"))
	n.exec("UPDATE postroom.held SET solitary = true WHERE event_id = 'suspect'")
	n.die("nobody", declined, event("nobody"))
	n.die("raw", declined, event("raw"))
	n.exec("UPDATE postroom.held SET raw_headers = convert_to(E'NATS/1.0\r\nce-specversion: 1.0\r\nce-id: a\r\nCe-Id: b\r\n\r\n', 'UTF8') WHERE event_id = 'raw'")
	n.external(v)
	in := n.inbox()
	for _, name := range []string{"suspect", "raw"} {
		in.Handle(sub(name), postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
			t.Errorf("%s was run", name)
			return nil
		}))
	}
	n.run(in)
	calls := len(v.calls)
	before := n.contents()
	trials, err := n.store.DryRun(t.Context(), deadletter.Filter{}, deadletter.DryRunOptions{Each: 1, Wait: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]deadletter.DryRunVerdict{}
	for _, trial := range trials {
		verdicts[trial.EventID] = trial.Verdict
		if trial.EventID == "external" && (len(trial.Steps) != 1 || trial.Steps[0].Name != "charge" || trial.Steps[0].DoneAt.IsZero()) {
			t.Errorf("steps: %+v", trial.Steps)
		}
	}
	want := map[string]deadletter.DryRunVerdict{
		"external": deadletter.DryRunExternal, "suspect": deadletter.DryRunIsolated, "nobody": deadletter.DryRunUnanswered, "raw": deadletter.DryRunFails,
	}
	if !maps.Equal(verdicts, want) {
		t.Errorf("verdicts: %v, want %v", verdicts, want)
	}
	if len(v.calls) != calls {
		t.Errorf("calls: %v", v.calls)
	}
	if after := n.contents(); !maps.Equal(after, before) {
		t.Errorf("tables before: %v\nafter: %v", before, after)
	}

	forecasts, _, err := n.store.Preview(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range forecasts {
		forecasts[i].Type = ""
	}
	wanted := []deadletter.PreviewGroup{
		{Handler: "mail", Events: 1, StepsDone: 1, HasProcess: true},
		{Handler: "nobody", Events: 1},
		{Handler: "raw", Events: 1, HasProcess: true},
		{Handler: "suspect", Events: 1, Isolated: 1, HasProcess: true},
	}
	if !slices.Equal(forecasts, wanted) {
		t.Errorf("Preview = %+v, want %+v", forecasts, wanted)
	}
}

// A dry run tries the given number of events of each cause, those that died first, even if these
// are more than a process takes at a time.
func TestDryRunTakesSomeEventsOfEachCause(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(300, 2, 4)
	var runs atomic.Int32
	in := n.inbox()
	for _, name := range []string{"h0", "h1"} {
		in.Handle(sub(name), postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error {
			runs.Add(1)
			return nil
		}))
	}
	n.run(in)
	trials := n.try(deadletter.Filter{}, 9)
	if len(trials) != 36 || runs.Load() != 36 {
		t.Errorf("%d trials and %d runs, want 36", len(trials), runs.Load())
	}
	for event, trial := range trials {
		if trial.Verdict != deadletter.DryRunPasses {
			t.Errorf("%s: %+v", event, trial)
		}
	}
	for i := 265; i <= 300; i++ {
		if _, tried := trials[fmt.Sprint("e", i)]; !tried {
			t.Errorf("e%d, one of the first to die, was not tried", i)
		}
	}
	if none, err := n.store.DryRun(t.Context(), deadletter.Filter{Handler: "none"}, deadletter.DryRunOptions{Each: 9, Wait: patience}); err != nil || len(none) != 0 {
		t.Errorf("Try of none = %v, %v", none, err)
	}
}

// Preview counts what a replay would do.
func TestPreview(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(100, 2, 1)
	n.replay(deadletter.Filter{Handler: "h0"}, deadletter.ReplayOptions{Limit: 30})
	n.exec("UPDATE postroom.held SET chain = event_id, pos = id WHERE event_id IN ('e2', 'e4')")
	n.exec(`INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('h0', 'behind')`)
	n.exec(`INSERT INTO postroom.held (handler, dedupe_key, chain, pos, logged_at, source, event_id, type, subject, content_type, data)
		VALUES ('h0', 'behind', 'e2', 1000, now(), '/shop', 'behind', 'order.placed', 'order.placed', 'text/plain', '')`)
	n.exec(`INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key, done_at) VALUES
		('h1', '/shop e1', 'a', 0, 'k', now()), ('h1', '/shop e1', 'b', 0, 'k', NULL), ('h1', '/shop e3', 'a', 0, 'k', now())`)
	got, _, err := n.store.Preview(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{})
	want := []deadletter.PreviewGroup{
		{Handler: "h0", Type: "order.placed", Events: 20, InReplay: 30, KeysWaiting: 1},
		{Handler: "h1", Type: "order.placed", Events: 50, StepsDone: 2, StepsOpen: 1},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Preview = %+v, %v; want %+v", got, err, want)
	}
	got, _, err = n.store.Preview(t.Context(), deadletter.Filter{Handler: "h1"}, deadletter.ReplayOptions{Limit: 7})
	if err != nil || len(got) != 1 || got[0].Events != 7 {
		t.Errorf("Preview of 7 = %+v, %v", got, err)
	}
	o := deadletter.ReplayOptions{Limit: 6} // the first to die are part of the replay
	got, _, err = n.store.Preview(t.Context(), deadletter.Filter{Handler: "h0"}, o)
	if job := n.replay(deadletter.Filter{Handler: "h0"}, o); err != nil || len(got) != 1 || got[0].Events != 6 || got[0].InReplay != 30 || job.Events != 6 {
		t.Errorf("Preview of 6 = %+v, %v; the replay has %d", got, err, job.Events)
	}
	trials, err := n.store.DryRun(t.Context(), deadletter.Filter{Handler: "h0"}, deadletter.DryRunOptions{Limit: o.Limit, Each: 9, Wait: time.Millisecond})
	if err != nil || len(trials) != 6 {
		t.Errorf("DryRun of 6 = %+v, %v", trials, err)
	}
	for _, trial := range trials {
		n.want("replays that have an event that is tried", 0, "SELECT count(*) FROM postroom.replay_event WHERE held = $1", trial.ID)
	}
	for _, bad := range []deadletter.ReplayOptions{{Rate: -1}, {Rate: math.NaN()}, {Rate: math.Inf(1)}, {StopAt: new(2.0)}, {StopAt: new(math.NaN())}} {
		if _, _, err := n.store.Preview(t.Context(), deadletter.Filter{}, bad); err == nil || errors.Is(err, deadletter.ErrNoMatch) {
			t.Errorf("Preview with %+v = %v", bad, err)
		}
	}
}

// A filter that Choose or Preview returned selects the events that matched, and no others.
func TestChosenEvents(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(6, 1, 1) // e6 died first
	these, count, err := n.store.Choose(t.Context(), deadletter.Filter{Handler: "h0"}, 2)
	if err != nil || count != 2 || these.IsZero() {
		t.Fatalf("Choose = %d, %v", count, err)
	}
	groups, those, err := n.store.Preview(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{Limit: 3})
	if err != nil || len(groups) != 1 || groups[0].Events != 3 {
		t.Fatalf("Preview = %+v, %v", groups, err)
	}
	n.exec("DELETE FROM postroom.held WHERE event_id = 'e6'")
	if letters, _, err := n.store.List(t.Context(), these, postroom.Page{}); err != nil || len(letters) != 1 || letters[0].EventID != "e5" {
		t.Errorf("of e5 and e6, that has left: %+v, %v", letters, err)
	}
	if job := n.replay(those, deadletter.ReplayOptions{}); job.Events != 2 || !job.Filter.IsZero() {
		t.Errorf("the replay has %d events, and the filter %+v; want e4 and e5, and the filter of the operator", job.Events, job.Filter)
	}
	n.want("others in the replay", 0, "SELECT count(*) FROM postroom.replay_event WHERE event_id NOT IN ('e4', 'e5')")
	n.discarded(these, 1)
	n.want("the filter in the audit", 1, `SELECT count(*) FROM postroom.audit WHERE action = 'discard' AND details -> 'filter' = '{"handler": "h0"}'`)

	none, count, err := n.store.Choose(t.Context(), deadletter.Filter{Handler: "h9"}, 0)
	if err != nil || count != 0 {
		t.Errorf("Choose of none = %d, %v", count, err)
	}
	if _, err := n.store.Discard(t.Context(), none, deadletter.ChangeOptions{}, n.by); !errors.Is(err, deadletter.ErrNoMatch) {
		t.Errorf("Discard of none = %v", err)
	}
	if _, _, err := n.store.Choose(t.Context(), deadletter.Filter{Cause: "x"}, -1); err == nil {
		t.Error("Choose takes a cause that is none")
	}
}

// A replay of discarded events is refused, and so are its preview and its dry run: they would tell
// about dead events.
func TestDiscardedEventsAreNotReplayed(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("billing", declined, event("e1"))
	f := deadletter.Filter{Discarded: true}
	_, _, preview := n.store.Preview(t.Context(), f, deadletter.ReplayOptions{})
	_, dryRun := n.store.DryRun(t.Context(), f, deadletter.DryRunOptions{Each: 1, Wait: time.Millisecond})
	_, replay := n.store.CreateReplay(t.Context(), f, deadletter.ReplayOptions{}, n.by)
	for what, err := range map[string]error{"preview": preview, "dry run": dryRun, "replay": replay} {
		if err == nil || !strings.Contains(err.Error(), "reopen discarded events") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
