package deadletter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/inbox"
)

// vendor is another system. It charges, and mails.
type vendor struct {
	mu     sync.Mutex
	calls  []string         // <step> <body> of each call
	keys   map[string]int   // calls, by key
	faults map[string]error // by step; a step without a fault is answered
}

func newVendor() *vendor { return &vendor{keys: map[string]int{}, faults: map[string]error{}} }

func (v *vendor) fault(step string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults[step] = err
}

func (v *vendor) wantCalls(t *testing.T, want ...string) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	if !slices.Equal(v.calls, want) {
		t.Errorf("calls: %q, want %q", v.calls, want)
	}
}

// step is the function of a step.
func (v *vendor) step(name string, body []byte) func(context.Context, string) (string, error) {
	return func(_ context.Context, key string) (string, error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.calls = append(v.calls, name+" "+string(body))
		v.keys[key]++
		return "ref of " + name, v.faults[name]
	}
}

var (
	errRejected = postroom.NotApplied(postroom.Permanent(errors.New("no such address"))) // it did not happen
	errLost     = errors.New("the connection broke")                                     // the outcome is unknown
)

// external runs a handler that charges and then mails, and records both results.
func (n *rig) external(v *vendor) (stop func()) {
	n.Helper()
	in := n.inbox()
	in.HandleExternal(inbox.Subscription{Name: "mail", Workers: 2, Attempts: 1, Pause: inbox.Pause{Off: true}}, func(ctx context.Context, attempt *inbox.Attempt) error {
		var results []string
		for _, step := range []string{"charge", "mail"} {
			result, err := inbox.Step(ctx, attempt, step, v.step(step, attempt.Event.Data))
			if err != nil {
				return err
			}
			results = append(results, result)
		}
		attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error {
			ev := attempt.Event
			ev.Data = []byte(strings.Join(results, ", "))
			return apply(ctx, tx, "mail", ev)
		})
		return nil
	})
	return n.run(in)
}

// dies accepts an event for the external handler, and waits until the event is dead. It returns the
// event's id in held.
func (n *rig) dies(ev postroom.Event, class string) int64 {
	n.Helper()
	in := n.inbox()
	in.HandleExternal(inbox.Subscription{Name: "mail"}, func(context.Context, *inbox.Attempt) error { return nil })
	n.accept(in, "mail", ev)
	(&river{rig: n}).eventually("its death", func() bool {
		return n.number("SELECT count(*) FROM postroom.held WHERE dead_at IS NOT NULL AND class = $1", class) == 1
	})
	return n.number("SELECT id FROM postroom.held WHERE class = $1", class)
}

func (n *rig) show(id int64) deadletter.Details {
	n.Helper()
	w, err := n.store.Get(n.Context(), id)
	if err != nil {
		n.Fatal(err)
	}
	return w
}

// The result of a step is JSON. SQL can write anything. The details still encode.
func TestDetailsHaveTheResultsOfSteps(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	v := newVendor()
	v.fault("mail", errRejected)
	n.external(v)
	id := n.dies(event("e1"), "permanent")
	for _, tt := range []struct{ written, want string }{{`{"id": 1}`, `{"id":1}`}, {"null", "null"}, {"ch_1 \xff", `"ch_1 \ufffd"`}, {"", ""}} {
		n.exec("UPDATE postroom.receipt SET result = $1", []byte(tt.written))
		w := n.show(id)
		if _, err := json.Marshal(w); err != nil || len(w.Steps) != 1 {
			t.Fatalf("steps %+v: %v", w.Steps, err)
		}
		var got bytes.Buffer
		if len(w.Steps[0].Result) > 0 {
			if err := json.Compact(&got, w.Steps[0].Result); err != nil {
				t.Error(err)
			}
		}
		if got.String() != tt.want {
			t.Errorf("result %q of %q, want %q", got.String(), tt.written, tt.want)
		}
	}
}

// An event that was rejected at its second step is edited and replayed: the first step
// is not called again.
func TestEditOfAnExternalEvent(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	v := newVendor()
	v.fault("mail", errRejected)
	stop := n.external(v)
	ev := event("e1")
	ev.Data, ev.Headers = []byte(`{"to":"nobody"}`), map[string]string{"tenant": "a"}
	id := n.dies(ev, "permanent")
	w := n.show(id)
	if len(w.Steps) != 1 || w.Steps[0].Name != "charge" || w.Steps[0].DoneAt.IsZero() || string(w.Steps[0].Result) != `"ref of charge"` || len(w.Steps[0].Key) != 32 {
		t.Errorf("steps: %+v", w.Steps)
	}

	for name, change := range map[string]deadletter.Edit{
		"nothing": {}, "no JSON": {Data: []byte(`{"to":`)}, "a header that is ours": {Headers: map[string]string{"ce-id": "x"}},
	} {
		if _, err := n.store.Edit(t.Context(), id, change, n.by); err == nil {
			t.Errorf("edited: %s", name)
		}
	}
	edited, err := n.store.Edit(t.Context(), id, deadletter.Edit{Data: []byte(`{"to":"ann"}`)}, n.by)
	if err != nil || edited.Revision != 1 || !slices.Equal(edited.StepsDone, []string{"charge"}) {
		t.Fatalf("Edit = %+v, %v", edited, err)
	}
	before, now := 0, 1
	_, err = n.store.Edit(t.Context(), id, deadletter.Edit{Data: []byte(`{"to":"bob"}`), Revision: &before}, n.by)
	if !errors.Is(err, deadletter.ErrEdited) {
		t.Errorf("Edit of an event that was edited meanwhile = %v", err)
	}
	edited, err = n.store.Edit(t.Context(), id, deadletter.Edit{Headers: map[string]string{}, ContentType: "application/vnd.mail+json", Revision: &now}, n.by)
	if err != nil || edited.Revision != 2 {
		t.Fatalf("Edit = %+v, %v", edited, err)
	}
	w = n.show(id)
	if string(w.Data) != `{"to":"ann"}` || w.Revision != 2 || len(w.Headers) != 0 || w.ContentType != "application/vnd.mail+json" || w.State != deadletter.Dead {
		t.Errorf("edited: %+v", w)
	}
	if len(w.Revisions) != 2 || string(w.Revisions[0].Data) != `{"to":"nobody"}` || w.Revisions[0].Revision != 0 || w.Revisions[0].Headers["tenant"] != "a" ||
		w.Revisions[0].Actor != "ann" || w.Revisions[0].Reason != n.by.Reason || string(w.Revisions[1].Data) != `{"to":"ann"}` {
		t.Errorf("revisions: %+v", w.Revisions)
	}
	n.want("in the audit", 2, "SELECT count(*) FROM postroom.audit WHERE action = 'edit' AND actor = 'ann' AND event_id = 'e1' AND details -> 'steps_done' = '[\"charge\"]'")

	v.fault("mail", nil)
	if job := n.runReplay(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})); job.Succeeded != 1 {
		t.Errorf("replay: %+v", job)
	}
	v.wantCalls(t, `charge {"to":"nobody"}`, `mail {"to":"nobody"}`, `mail {"to":"ann"}`)
	n.want("the effect of both steps", 1, "SELECT count(*) FROM effect WHERE body = 'ref of charge, ref of mail'")
	stop()
	if _, err := n.store.Edit(t.Context(), id, deadletter.Edit{Data: []byte("1")}, n.by); !errors.Is(err, deadletter.ErrNotDead) {
		t.Errorf("an edit of a finished event = %v", err)
	}
}

// The outcome of a call is unknown. Until an operator resolves it, the event cannot be edited.
// After that the call is made again, or not.
func TestResolve(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		happened bool
		edit     bool
		calls    []string
		effect   string
	}{
		{"it happened", true, false, []string{"charge 1", "mail 1"}, "told by the vendor, ref of mail"},
		{"it did not", false, false, []string{"charge 1", "charge 1", "mail 1"}, "ref of charge, ref of mail"},
		{"it happened, and the event is edited", true, true, []string{"charge 1", "mail 2"}, "told by the vendor, ref of mail"},
		{"it did not, and the event is edited", false, true, []string{"charge 1", "charge 2", "mail 2"}, "ref of charge, ref of mail"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := newRig(t)
			v := newVendor()
			v.fault("charge", errLost)
			n.external(v)
			ev := event("e1")
			ev.Data = []byte("1")
			id := n.dies(ev, "outcome_unknown")
			v.fault("charge", nil)
			if w := n.show(id); len(w.Steps) != 1 || !w.Steps[0].DoneAt.IsZero() || w.Steps[0].Unanswered != 1 {
				t.Errorf("steps: %+v", w.Steps)
			}
			// A replay does not help now, because the call is not repeated blindly.
			if job := n.runReplay(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})); job.Failed != 1 {
				t.Errorf("replay: %+v", job)
			}
			v.wantCalls(t, "charge 1")
			if _, err := n.store.Edit(t.Context(), id, deadletter.Edit{Data: []byte("2")}, n.by); !errors.Is(err, deadletter.ErrStepOpen) || !strings.Contains(err.Error(), "charge") {
				t.Errorf("Edit = %v, want ErrStepOpen", err)
			}
			n.want("revisions", 0, "SELECT count(*) FROM postroom.revision")
			if err := n.store.Resolve(t.Context(), id, "mail", tt.happened, json.RawMessage("null"), n.by); !errors.Is(err, deadletter.ErrNotFound) || !strings.Contains(err.Error(), "charge") {
				t.Errorf("Resolve of another step = %v", err)
			}
			for _, result := range []string{"", "told by the vendor"} {
				if err := n.store.Resolve(t.Context(), id, "charge", true, []byte(result), n.by); err == nil || !strings.Contains(err.Error(), "not JSON") {
					t.Errorf("Resolve with the result %q = %v", result, err)
				}
			}
			if err := n.store.Resolve(t.Context(), id, "charge", tt.happened, []byte(`"told by the vendor"`), n.by); err != nil {
				t.Fatal(err)
			}
			n.want("in the audit", 1, "SELECT count(*) FROM postroom.audit WHERE action = 'resolve' AND actor = 'ann' AND event_id = 'e1' AND details = jsonb_build_object('step', 'charge', 'happened', $1::bool)", tt.happened)
			if err := n.store.Resolve(t.Context(), id, "charge", tt.happened, json.RawMessage("null"), n.by); !errors.Is(err, deadletter.ErrNotFound) {
				t.Errorf("a second Resolve = %v", err)
			}
			if tt.edit {
				if _, err := n.store.Edit(t.Context(), id, deadletter.Edit{Data: []byte("2")}, n.by); err != nil {
					t.Error(err)
				}
			}
			if job := n.runReplay(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})); job.Succeeded != 1 {
				t.Errorf("replay: %+v", job)
			}
			v.wantCalls(t, tt.calls...)
			if got := n.texts("SELECT body FROM effect"); !slices.Equal(got, []string{tt.effect}) {
				t.Errorf("effect: %q", got)
			}
		})
	}
}

// If the original of an edited event comes again, before its replay or after it, the inbox
// knows it.
func TestEditedEventIsKnownWhenItComesAgain(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	ev := event("e1")
	n.die("billing", declined, ev)
	id := n.number("SELECT id FROM postroom.held")
	if _, err := n.store.Edit(t.Context(), id, deadletter.Edit{Data: []byte(`{"id":"mended"}`)}, n.by); err != nil {
		t.Fatal(err)
	}
	in := n.inbox()
	in.Handle(sub("billing"), newScript().handler("billing"))
	n.run(in)
	for range 2 {
		if got, err := in.Accept(t.Context(), "billing", ev); err != nil || got != inbox.Duplicate {
			t.Errorf("as it was: %v, %v", got, err)
		}
		if n.number("SELECT count(*) FROM effect") == 0 {
			n.runReplay(n.replay(only("e1"), deadletter.ReplayOptions{}))
		}
	}
	if got := n.texts("SELECT body FROM effect"); !slices.Equal(got, []string{`{"id":"mended"}`}) {
		t.Errorf("effects: %q", got)
	}
	other := ev
	other.Data = []byte(`{"id":"mended"}`)
	if got, err := in.Accept(t.Context(), "billing", other); err != nil || got != inbox.Conflict {
		t.Errorf("as it was edited to: %v, %v", got, err)
	}
}

// An event that a replay has released cannot be edited.
func TestEditRefusesReleasedEvents(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("billing", declined, event("e1"))
	id := n.number("SELECT id FROM postroom.held")
	job := n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{})
	ctx, stop := context.WithCancel(t.Context())
	_, err := n.store.RunReplay(ctx, job.ID, deadletter.RunOptions{Progress: func(deadletter.Replay) { stop() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("RunReplay = %v", err)
	}
	if _, err := n.store.Edit(t.Context(), id, deadletter.Edit{Data: []byte("1")}, n.by); !errors.Is(err, deadletter.ErrNotDead) {
		t.Errorf("Edit = %v, want ErrNotDead", err)
	}
	if err := n.store.Resolve(t.Context(), id, "charge", true, json.RawMessage("null"), n.by); !errors.Is(err, deadletter.ErrNotDead) {
		t.Errorf("Resolve = %v, want ErrNotDead", err)
	}
	if _, err := n.store.Discard(t.Context(), deadletter.Filter{IDs: []int64{id}}, deadletter.ChangeOptions{}, n.by); !errors.Is(err, deadletter.ErrNoMatch) {
		t.Errorf("Discard = %v, want ErrNothing", err)
	}
	n.want("revisions", 0, "SELECT count(*) FROM postroom.revision")
}

// An event is edited while a replay runs. It is edited before it is released, or not at all.
func TestEditBesideAReplay(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.die("billing", declined, events(40)...)
	n.handle("billing", nil)
	rows, _ := n.pool.Query(t.Context(), "SELECT id, event_id FROM postroom.held")
	ids := map[int64]string{}
	var id int64
	var event string
	if _, err := pgx.ForEachRow(rows, []any{&id, &event}, func() error { ids[id] = event; return nil }); err != nil {
		t.Fatal(err)
	}
	finished := n.startReplay(n.replay(deadletter.Filter{All: true}, deadletter.ReplayOptions{Rate: 200}))
	edited := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		_, err := n.store.Edit(t.Context(), id, deadletter.Edit{Data: []byte(`"edited"`)}, n.by)
		if err != nil && !errors.Is(err, deadletter.ErrNotDead) {
			t.Error(err)
		}
		edited[ids[id]] = err == nil
	}
	if done := <-finished; done.Succeeded != 40 {
		t.Errorf("result: %+v", done)
	}
	n.wantOnce("billing", 40)
	for event, was := range edited {
		if got := n.texts("SELECT body FROM effect WHERE id = $1", event); (got[0] == `"edited"`) != was {
			t.Errorf("effect of %s: %q, edited: %v", event, got, was)
		}
	}
}

// An edited event runs from held and is not published. So its body may be as large as that of an
// accepted event.
func TestEditOfALargeBody(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	v := newVendor()
	v.fault("mail", errRejected)
	n.external(v)
	id := n.dies(event("e1"), "permanent")
	for size, fits := range map[int]bool{postroom.MaxData + 1: true, postroom.MaxAccepted: true, postroom.MaxAccepted + 1: false} {
		body := append(append([]byte{'"'}, bytes.Repeat([]byte("x"), size-2)...), '"')
		if _, err := n.store.Edit(t.Context(), id, deadletter.Edit{Data: body}, n.by); (err == nil) != fits || err != nil && !errors.Is(err, postroom.ErrInvalidEvent) {
			t.Errorf("Edit with %d bytes = %v, want it to succeed: %v", size, err, fits)
		}
	}
	n.exec("UPDATE postroom.held SET handler = 'outbox', pos = 1, dedupe_key = NULL WHERE id = $1", id)
	body := bytes.Repeat([]byte("1"), postroom.MaxData+1)
	if _, err := n.store.Edit(t.Context(), id, deadletter.Edit{Data: body}, n.by); !errors.Is(err, postroom.ErrInvalidEvent) {
		t.Errorf("Edit of an event that is published, with %d bytes = %v, want it refused", len(body), err)
	}
}

// An operator that writes SQL can give a handler's event headers that are not texts. An edit of the
// body leaves them as they are, and Get shows them.
func TestEditOfTheBodyKeepsTheHeaders(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.seed(1, 1, 1)
	for _, headers := range []string{`{"order": 12345678901234567890, "amount": 1.50, "gone": null, "tenant": "a"}`, "null"} {
		n.exec("UPDATE postroom.held SET headers = $1::jsonb", headers)
		if _, err := n.store.Edit(t.Context(), 1, deadletter.Edit{Data: []byte(`{"a":2}`)}, n.by); err != nil {
			t.Fatal(err)
		}
		n.want("events with the headers "+headers, 1, "SELECT count(*) FROM postroom.held WHERE headers::text = ($1::jsonb)::text", headers)
	}
	w, err := n.store.Get(t.Context(), 1)
	if err != nil || len(w.Revisions) != 2 || !strings.Contains(w.Revisions[0].Headers[""], `"amount": 1.50`) {
		t.Errorf("headers of the original: %+v, %v", w.Revisions, err)
	}
	if _, err := n.store.Edit(t.Context(), 1, deadletter.Edit{Headers: map[string]string{"tenant": "b"}}, n.by); err != nil {
		t.Fatal(err)
	}
	n.want("events with new headers", 1, `SELECT count(*) FROM postroom.held WHERE headers = '{"tenant": "b"}'`)
}
