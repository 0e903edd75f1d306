package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/saga"
)

func TestBegin(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	w.begin("t1")
	all := w.wants("seat.book", "travel.deadline")
	w.is("t1", "running", "seat")
	cmd := all[0]
	if cmd.Key != "t1" || cmd.CorrelationID == "" || cmd.CausationID != "" || string(cmd.Data) != "2" || saga.StepKey(cmd)+":do" != cmd.ID {
		t.Errorf("the command is %+v", cmd)
	}
	if d := all[1]; d.Key != "t1" || d.NotBefore.IsZero() || d.CorrelationID != cmd.CorrelationID {
		t.Errorf("the deadline is %+v", d)
	}
	w.begin("t1") // the same call again
	w.wants()

	// Another input.
	err := w.tryBegin(trip{ID: "t1", Seats: 3})
	if !errors.Is(err, saga.ErrConflict) {
		t.Errorf("another input: %v", err)
	}
	w.wants()
}

// Two callers begin the same instance at once.
func TestBeginTwiceAtOnce(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	const callers = 8
	errs := make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { errs[i] = w.tryBegin(trip{ID: "t1", Seats: 2}) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	w.wants("seat.book", "travel.deadline")
}

func TestBeginIsRolledBack(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	broken := errors.New("broken")
	err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		return errors.Join(w.saga.Begin(t.Context(), tx, "t1", trip{ID: "t1"}), broken)
	})
	if !errors.Is(err, broken) || strings.Count(err.Error(), "\n") > 0 {
		t.Error(err)
	}
	w.wants()
	if _, err := w.saga.Status(t.Context(), "t1"); !errors.Is(err, saga.ErrUnknown) {
		t.Errorf("status: %v", err)
	}
}

// A caller begins again after its transaction conflicted with another one. The caller's state does
// not have the changes that Local functions made in the first try.
func TestBeginAgainSharesNoState(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) {
		d.Steps[0].Do = saga.Local(func(_ context.Context, _ pgx.Tx, s *trip) error {
			s.Log[0] = "changed"
			return nil
		})
	})
	s := trip{ID: "t1", Log: []string{"mine"}}
	for range 2 {
		if err := w.tryBegin(s); err != nil || s.Log[0] != "mine" {
			t.Errorf("begin: %v, the caller's state is %v", err, s)
		}
	}
}

// If the first command cannot be written, the caller's transaction fails.
func TestBeginWithACommandThatIsNotValid(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) {
		d.Steps[1].Do = saga.Send("seat.book", func(*trip) any { return func() {} })
	})
	if err := w.tryBegin(trip{ID: "t1"}); !errors.Is(err, postroom.ErrInvalidEvent) {
		t.Errorf("begin: %v", err)
	}
	for _, key := range []string{"", "a\x00b", strings.Repeat("k", postroom.MaxKey+1)} {
		if err := w.tryBegin(trip{ID: key}); err == nil || !strings.Contains(err.Error(), "key") {
			t.Errorf("begin with key %.10q: %v", key, err)
		}
	}
	var rows int
	if err := w.pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.saga").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d instances, %v", rows, err)
	}
}

// An event begins an instance, and comes again after the instance has ended.
func TestStartOn(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) {
		d.Start = saga.StartOn("trip.asked", func(s trip) (string, trip) { return "", s })
	})
	start := postroom.NewEvent("trip.asked", trip{ID: "t1", Seats: 2})
	start.Key, start.Source = "t1", "/others"
	w.give(start)
	all := w.wants("seat.book", "travel.deadline")
	if all[0].CausationID != start.ID || all[0].CorrelationID != start.ID {
		t.Errorf("the command is %+v, want it caused by %s", all[0], start.ID)
	}
	w.give(w.reply(all[0], "seat.full", nil))
	ended := w.wants("travel.cancelled")[0]
	if ended.CausationID != start.ID {
		t.Errorf("the end is caused by %s, want the start: a saga that answers another one", ended.CausationID)
	}
	again := start
	again.ID = "again"
	w.give(again)
	w.wants()
	other := postroom.NewEvent("trip.asked", trip{ID: "t1", Seats: 5})
	other.Key = "t1"
	w.fails(w.try(other), saga.ErrConflict.Error(), true)
	bad := start
	bad.Data = []byte("{")
	w.fails(w.try(bad), "decode", true)
	w.is("t1", "undone", "open")
}

// One handler begins an instance, and another handler undoes it. Both name their event as the
// cause.
func TestBeginWithItsCause(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	asked, cancelled := postroom.NewEvent("trip.asked", nil), postroom.NewEvent("trip.cancelled", nil)
	asked.ID, asked.CorrelationID, cancelled.ID = "asked-1", "visit-1", "cancelled-1"
	err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		return w.saga.Begin(saga.WithCause(t.Context(), asked), tx, "t1", trip{ID: "t1", Seats: 2})
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := w.wants("seat.book", "travel.deadline")[0]
	if cmd.CausationID != "asked-1" || cmd.CorrelationID != "visit-1" {
		t.Errorf("the command is %+v", cmd)
	}
	err = pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		return w.saga.Compensate(saga.WithCause(t.Context(), cancelled), tx, "t1", nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	undo := w.wants("seat.free")[0]
	if undo.CausationID != "cancelled-1" || undo.CorrelationID != "visit-1" {
		t.Errorf("the undo is %+v", undo)
	}
	w.give(w.reply(undo, "seat.freed", nil))
	ended := w.wants("travel.cancelled")[0]
	if ended.CausationID != "asked-1" {
		t.Errorf("the end answers %s, want what began the instance", ended.CausationID)
	}
}

// A state that JSON changes would have other values in the commands than the caller gave.
func TestBeginRefusesAStateThatJSONChanges(t *testing.T) {
	t.Parallel()
	type order struct {
		Amount any            `json:"amount"`
		Lines  map[string]any `json:"lines,omitempty"`
	}
	pool := devtest.Pool(t)
	g := saga.New(pool, outbox.New(outbox.Config{Source: "/orders"}), saga.Definition[order]{Name: "pay", Version: 1, Steps: []saga.Step[order]{
		{Name: "charge", Do: saga.Send("payment.charge", func(o *order) order { return *o }), Done: saga.On("payment.charged", func(*order, struct{}) {})},
	}})
	begin := func(key string, o order) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return g.Begin(t.Context(), tx, key, o) })
	}
	for key, o := range map[string]order{
		"large":  {Amount: int64(9007199254740993)},
		"nested": {Lines: map[string]any{"a": []any{uint64(18446744073709551615)}}},
	} {
		if err := begin(key, o); err == nil || !strings.Contains(err.Error(), "use json.Number") {
			t.Errorf("%s: %v", key, err)
		}
	}
	for key, o := range map[string]order{
		"small":  {Amount: int64(7)},
		"number": {Amount: "9007199254740993"},
		"struct": {Lines: map[string]any{"b": struct{ Z, A int }{1, 2}, "a": 1.5e300}}, // comes back as a map
	} {
		if err := begin(key, o); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// JSON replaces what is not UTF-8, and leaves alone what only looks so.
func TestBeginRefusesAStateThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	type order struct {
		Name string          `json:"name"`
		Raw  json.RawMessage `json:"raw,omitempty"`
	}
	pool := devtest.Pool(t)
	g := saga.New(pool, outbox.New(outbox.Config{Source: "/orders"}), saga.Definition[order]{Name: "pay", Version: 1, Steps: []saga.Step[order]{
		{Name: "charge", Do: saga.Send("payment.charge", func(o *order) string { return o.Name }), Done: saga.On("payment.charged", func(*order, struct{}) {})},
	}})
	for key, test := range map[string]struct {
		order order
		want  bool
	}{
		"not UTF-8":                {order{Name: "M\xfcller"}, false},
		"a document not UTF-8":     {order{Raw: json.RawMessage("\"M\xfcller\"")}, false},
		"UTF-8":                    {order{Name: "Müller"}, true},
		"the character itself":     {order{Name: "M\ufffdller"}, true},
		"its escape, as a text":    {order{Name: `M\ufffdller`}, true},
		"its escape in a document": {order{Raw: json.RawMessage(`"M\ufffdller"`)}, true},
	} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return g.Begin(t.Context(), tx, key, test.order) })
		if test.want && err != nil || !test.want && (err == nil || !strings.Contains(err.Error(), "not UTF-8")) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
