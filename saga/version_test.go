package saga_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/saga"
)

// second is version 2 of the saga of tests: the payment comes first, the seat has another name, and
// version 1 still has instances.
func second() saga.Definition[trip] {
	d := travel()
	old := d
	d.Version, d.Older = 2, []saga.Definition[trip]{old}
	d.Steps = []saga.Step[trip]{old.Steps[0], old.Steps[2], old.Steps[1], old.Steps[3]}
	d.Steps[2].Name = "place"
	return d
}

// Instances end with the version with which they began. If a process does not know the version, it
// leaves the events to other processes, and that costs no attempt.
func TestVersions(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	_, payment := w.upTo("t1")
	first := w.saga
	w.use(second())
	w.begin("t2")
	charge := w.wants("payment.charge", "travel.deadline")[0]

	// The old program gets a reply for an instance of the new version.
	charged := w.reply(charge, "payment.charged", nil)
	newer := w.saga
	w.saga = first
	err := w.try(charged)
	if d, ok := postroom.SnoozeDelay(err); !ok || d <= 0 || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("the old program: %v", err)
	}
	w.saga = newer
	w.give(charged)
	w.wants("seat.book", "travel.deadline")

	// The new program ends an instance of the old version.
	w.give(w.reply(payment, "payment.declined", nil))
	free := w.wants("seat.free")[0]
	w.give(w.reply(free, "seat.freed", nil))
	w.wants("travel.cancelled")
	w.is("t1", "undone", "open")

	// When all instances of the old version have ended, its definition can be removed. Their
	// deadlines change nothing.
	d := second()
	d.Older = nil
	w.use(d)
	late := postroom.NewEvent("travel.deadline", map[string]any{"at": "2026-01-01T00:00:00Z"})
	late.Key = "t1"
	w.give(late)
}

func TestCheckOfVersions(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	w.upTo("t1")
	d := second()
	older := d.Older
	d.Older = nil
	err := saga.New(w.pool, w.out, d).Check(t.Context())
	if !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), "key t1 runs with version 1") {
		t.Errorf("without Older: %v", err)
	}
	d.Older = older
	if err := saga.New(w.pool, w.out, d).Check(t.Context()); err != nil {
		t.Errorf("with Older: %v", err)
	}

	// In a rolling upgrade a process of the old program starts again.
	w.use(d)
	w.begin("t2")
	if err := saga.New(w.pool, w.out, travel()).Check(t.Context()); err != nil {
		t.Errorf("the old program beside the new one: %v", err)
	}

	renamed := travel()
	renamed.Steps[1].Name = "place"
	err = saga.New(w.pool, w.out, renamed).Check(t.Context())
	if !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), "step 2 is place and was seat") {
		t.Errorf("renamed without a version: %v", err)
	}

	for want, change := range map[string]func(seat *saga.Step[trip]){
		"step 2 (seat) has other types for Done":   func(seat *saga.Step[trip]) { seat.Done = saga.On("seat.taken", nothing) },
		"step 2 (seat) has other types for Failed": func(seat *saga.Step[trip]) { seat.Failed = saga.Reply[trip]{} },
		"step 2 (seat) has other types for Undone": func(seat *saga.Step[trip]) {
			seat.Within, seat.Undo, seat.Undone = 0, saga.Action[trip]{}, saga.OneOf[trip]()
		},
		"step 1 (open) has an Undo in one program": nil,
	} {
		other := travel()
		if change == nil {
			other.Steps[0] = saga.Step[trip]{Name: "open", Do: saga.Local(wrote("opened"))}
		} else {
			change(&other.Steps[1])
		}
		err = saga.New(w.pool, w.out, other).Check(t.Context())
		if !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}

	// Another reply needs no new version either, and the previous program may come back.
	further := travel()
	further.Steps[1].Done = saga.OneOf(further.Steps[1].Done, saga.On("seat.upgraded", nothing))
	for i, d := range []saga.Definition[trip]{further, travel(), further} {
		if err := saga.New(w.pool, w.out, d).Check(t.Context()); err != nil {
			t.Errorf("program %d: %v", i, err)
		}
	}

	// An additional last step needs a new version, because a process of the old program would end
	// an instance without that step.
	longer := travel()
	longer.Steps = append(longer.Steps, saga.Step[trip]{Name: "thanks", Do: saga.Local(wrote("thanked"))})
	err = saga.New(w.pool, w.out, longer).Check(t.Context())
	if !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), "has 5 steps and had 4") {
		t.Errorf("with a step more: %v", err)
	}
	shorter := travel()
	shorter.Steps = shorter.Steps[:3]
	err = saga.New(w.pool, w.out, shorter).Check(t.Context())
	if !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), "has 3 steps and had 4") {
		t.Errorf("with a step less: %v", err)
	}
}

// A field of the state is added, and one is removed.
func TestStateOfAnotherProgramDecodes(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	_, payment := w.upTo("t1")
	w.exec(`UPDATE postroom.saga SET data = convert_to((convert_from(data, 'UTF8')::jsonb - 'seats' || '{"newer": 5}')::text, 'UTF8')`)
	w.give(w.reply(payment, "payment.charged", nil))
	w.is("t1", "done", "confirm")
	var newer int
	if err := w.pool.QueryRow(t.Context(), "SELECT (convert_from(data, 'UTF8')::jsonb ->> 'newer')::int FROM postroom.saga").Scan(&newer); err != nil || newer != 5 {
		t.Errorf("an older program lost the field of a newer one: %d, %v", newer, err)
	}
}

// money and line are parts of a state, as two programs know them.
type (
	money    struct{ Amount int }
	currency struct {
		Amount   int
		Currency string
	}
	oldBill struct {
		Total money
		Lines []money
	}
	newBill struct {
		Total currency
		Lines []currency
	}
)

// bill returns a saga whose first reply is applied with change.
func bill[S any](change func(*S, int)) saga.Definition[S] {
	whole := func(s *S) S { return *s }
	return saga.Definition[S]{Name: "bill", Version: 1, Steps: []saga.Step[S]{
		{Name: "a", Do: saga.Send("a.do", whole), Done: saga.On("a.done", change)},
		{Name: "b", Do: saga.Send("b.do", whole), Done: saga.On("b.done", change)},
	}}
}

// An older program changes a state that a newer program has stored. Fields that it does not know
// are kept, in nested structs and in elements of arrays.
func TestNestedFieldsOfANewerProgram(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	newer := saga.New(w.pool, w.out, bill[newBill](nil))
	equal := []currency{{1, "EUR"}, {1, "USD"}} // for an older program these lines are equal
	for name, tt := range map[string]struct {
		change func(s *oldBill)
		lines  []currency
		want   string
	}{
		"nothing":                        {func(*oldBill) {}, nil, `{"Total":{"Amount":3,"Currency":"EUR"},"Lines":[{"Amount":1,"Currency":"EUR"},{"Amount":2,"Currency":"USD"}]}`},
		"the total":                      {func(s *oldBill) { s.Total.Amount = 9 }, nil, `{"Total":{"Amount":9,"Currency":"EUR"},"Lines":[{"Amount":1,"Currency":"EUR"},{"Amount":2,"Currency":"USD"}]}`},
		"a line":                         {func(s *oldBill) { s.Lines[1].Amount = 8 }, nil, `{"Total":{"Amount":3,"Currency":"EUR"},"Lines":[{"Amount":1,"Currency":"EUR"},{"Amount":8,"Currency":"USD"}]}`},
		"a new line":                     {func(s *oldBill) { s.Lines = append(s.Lines, money{5}) }, nil, `{"Total":{"Amount":3,"Currency":"EUR"},"Lines":[{"Amount":1,"Currency":"EUR"},{"Amount":2,"Currency":"USD"},{"Amount":5,"Currency":""}]}`},
		"one gone":                       {func(s *oldBill) { s.Lines = s.Lines[1:] }, nil, `{"Total":{"Amount":3,"Currency":"EUR"},"Lines":[{"Amount":2,"Currency":"USD"}]}`},
		"the order":                      {func(s *oldBill) { s.Lines[0], s.Lines[1] = s.Lines[1], s.Lines[0] }, nil, `{"Total":{"Amount":3,"Currency":"EUR"},"Lines":[{"Amount":2,"Currency":"USD"},{"Amount":1,"Currency":"EUR"}]}`},
		"none left":                      {func(s *oldBill) { s.Lines = nil }, nil, `{"Total":{"Amount":3,"Currency":"EUR"},"Lines":null}`},
		"one in front, and one changed":  {func(s *oldBill) { s.Lines = []money{{9}, {7}, {2}} }, nil, `{"Total":{"Amount":3,"Currency":"EUR"},"Lines":[{"Amount":9,"Currency":""},{"Amount":7,"Currency":""},{"Amount":2,"Currency":"USD"}]}`},
		"the first of equal lines gone":  {func(s *oldBill) { s.Lines = s.Lines[1:] }, equal, `{"Total":{"Amount":3,"Currency":"EUR"},"Lines":[{"Amount":1,"Currency":""}]}`},
		"the second of equal lines gone": {func(s *oldBill) { s.Lines = s.Lines[:1] }, equal, `{"Total":{"Amount":3,"Currency":"EUR"},"Lines":[{"Amount":1,"Currency":""}]}`},
		"one of equal lines changed":     {func(s *oldBill) { s.Lines[0].Amount = 7 }, equal, `{"Total":{"Amount":3,"Currency":"EUR"},"Lines":[{"Amount":7,"Currency":"EUR"},{"Amount":1,"Currency":"USD"}]}`},
		"one in front of equal lines":    {func(s *oldBill) { s.Lines = []money{{9}, {1}, {1}} }, equal, `{"Total":{"Amount":3,"Currency":"EUR"},"Lines":[{"Amount":9,"Currency":""},{"Amount":1,"Currency":"EUR"},{"Amount":1,"Currency":"USD"}]}`},
		"one in front of equal lines, and one changed": {func(s *oldBill) { s.Lines = []money{{9}, {1}, {2}} }, equal, `{"Total":{"Amount":3,"Currency":"EUR"},"Lines":[{"Amount":9,"Currency":""},{"Amount":1,"Currency":""},{"Amount":2,"Currency":""}]}`},
		"one gone behind equal lines":                  {func(s *oldBill) { s.Lines = s.Lines[:2] }, append(equal[:2:2], currency{5, "EUR"}), `{"Total":{"Amount":3,"Currency":"EUR"},"Lines":[{"Amount":1,"Currency":"EUR"},{"Amount":1,"Currency":"USD"}]}`},
		"one of the same lines gone":                   {func(s *oldBill) { s.Lines = s.Lines[1:] }, []currency{{1, "EUR"}, {1, "EUR"}}, `{"Total":{"Amount":3,"Currency":"EUR"},"Lines":[{"Amount":1,"Currency":"EUR"}]}`},
	} {
		inTx := func(f func(tx pgx.Tx) error) {
			t.Helper()
			if err := pgx.BeginFunc(t.Context(), w.pool, f); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		older := saga.New(w.pool, w.out, bill(func(s *oldBill, _ int) { tt.change(s) }))
		begun := newBill{Total: currency{3, "EUR"}, Lines: tt.lines}
		if tt.lines == nil {
			begun.Lines = []currency{{1, "EUR"}, {2, "USD"}}
		}
		inTx(func(tx pgx.Tx) error { return newer.Begin(t.Context(), tx, name, begun) })
		reply := w.reply(w.wants("a.do")[0], "a.done", 1)
		inTx(func(tx pgx.Tx) error { return older.Handle(t.Context(), tx, reply) })
		w.wants("b.do")
		var data []byte
		if err := w.pool.QueryRow(t.Context(), "SELECT data FROM postroom.saga WHERE key = $1", name).Scan(&data); err != nil {
			t.Fatal(err)
		}
		var s newBill
		err := json.Unmarshal(data, &s)
		if got, _ := json.Marshal(s); err != nil || string(got) != tt.want {
			t.Errorf("%s: the state is %s, %v\nwant %s", name, got, err, tt.want)
		}
	}
}

// A field's name has another letter case than before, because its tag was removed. The former name
// must not bring the former value back.
func TestLetterCaseOfAField(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	type untagged struct{ Receipt string }
	g := saga.New(w.pool, w.out, saga.Definition[untagged]{Name: "untagged", Version: 1, Steps: []saga.Step[untagged]{{
		Name: "payment", Do: saga.Send("payment.charge", func(s *untagged) string { return s.Receipt }),
		Done: saga.On("payment.charged", func(s *untagged, p paidFor) { s.Receipt = p.Receipt }),
	}}})
	handle := func(do func(tx pgx.Tx) error) {
		t.Helper()
		if err := pgx.BeginFunc(t.Context(), w.pool, do); err != nil {
			t.Fatal(err)
		}
	}
	handle(func(tx pgx.Tx) error { return g.Begin(t.Context(), tx, "t1", untagged{}) })
	w.exec(`UPDATE postroom.saga SET data = '{"receipt": "old"}'`) // as a program with a tag wrote it
	charged := w.reply(w.wants("payment.charge")[0], "payment.charged", paidFor{Receipt: "new"})
	handle(func(tx pgx.Tx) error { return g.Handle(t.Context(), tx, charged) })
	var data []byte
	if err := w.pool.QueryRow(t.Context(), "SELECT data FROM postroom.saga").Scan(&data); err != nil {
		t.Fatal(err)
	}
	var s untagged
	if err := json.Unmarshal(data, &s); err != nil || s.Receipt != "new" {
		t.Errorf("the state is %s, %v", data, err)
	}
}

// If a state cannot be decoded, the event becomes a dead letter, and the state does not change.
func TestEventIsDeadIfTheStateDoesNotDecode(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	_, payment := w.upTo("t1")
	w.exec(`UPDATE postroom.saga SET data = '{"seats": "two"}'`)
	w.fails(w.try(w.reply(payment, "payment.charged", nil)), "decode the state", true)
	var data string
	if err := w.pool.QueryRow(t.Context(), "SELECT convert_from(data, 'UTF8') FROM postroom.saga").Scan(&data); err != nil || data != `{"seats": "two"}` {
		t.Errorf("the state is %s, %v", data, err)
	}
}

// A reply without any field of its Go type becomes a dead letter, because apply would change the state
// as if the reply said nothing.
func TestAReplyOfAnotherShapeIsDead(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	_, payment := w.upTo("t1")
	w.fails(w.try(w.reply(payment, "payment.charged", map[string]string{"sum": "7"})), "it has none of the fields", true)
}

func TestFaultsOfDefinitions(t *testing.T) {
	t.Parallel()
	send, on := saga.Send[trip]("a.do", whole), saga.On("a.done", nothing)
	step := func(s saga.Step[trip]) func(*saga.Definition[trip]) {
		return func(d *saga.Definition[trip]) { d.Steps[1] = s }
	}
	tests := map[string]struct {
		set  func(*saga.Definition[trip])
		want string
	}{
		"no name":                              {func(d *saga.Definition[trip]) { d.Name = "" }, "Name"},
		"a name with a space":                  {func(d *saga.Definition[trip]) { d.Name = "a b" }, "Name"},
		"no version":                           {func(d *saga.Definition[trip]) { d.Version = 0 }, "Version is 0"},
		"no steps":                             {func(d *saga.Definition[trip]) { d.Steps = nil }, "Steps is empty"},
		"two steps of a name":                  {step(saga.Step[trip]{Name: "open", Do: send}), "two steps have the name open"},
		"a time, and no Undo of what is local": {step(saga.Step[trip]{Name: "x", Do: saga.Local(wrote("x")), Done: saga.OnAny("x.y", nothing), Within: 1}), "needs an Undo"},
		"a time and no Undo":                   {step(saga.Step[trip]{Name: "x", Do: send, Done: on, Within: 1}), "needs an Undo"},
		"an Undo without Undone":               {step(saga.Step[trip]{Name: "x", Do: send, Done: on, Undo: send}), "needs Undone"},
		"Failed without Done":                  {step(saga.Step[trip]{Name: "x", Do: send, Failed: on}), "has Failed, but no Done"},
		"a death and no Undo":                  {step(saga.Step[trip]{Name: "x", Do: send, Done: on, Failed: saga.Died[trip]("a.died", nil)}), "needs an Undo"},
		"a reply to nothing":                   {step(saga.Step[trip]{Name: "x", Done: on}), "use OnAny"},
		"nothing":                              {step(saga.Step[trip]{Name: "x"}), "does nothing"},
		"a type twice":                         {step(saga.Step[trip]{Name: "x", Do: send, Done: on, Failed: on}), "a.done occurs twice"},
		"no type":                              {step(saga.Step[trip]{Name: "x", Do: saga.Send[trip]("a b", whole)}), "not an event type"},
		"its own event":                        {step(saga.Step[trip]{Name: "x", Done: saga.OnAny("travel.deadline", nothing)}), "event of the saga itself"},
		"an older version that is newer": {func(d *saga.Definition[trip]) {
			d.Older = []saga.Definition[trip]{{Version: 3, Steps: d.Steps}}
		}, "not older than 1"},
		"a version twice": {func(d *saga.Definition[trip]) { d.Older = []saga.Definition[trip]{{Version: 1, Steps: d.Steps}} }, "defined twice"},
		"a start that is a reply": {func(d *saga.Definition[trip]) {
			d.Start = saga.StartOn("seat.booked", func(s trip) (string, trip) { return "", s })
		}, "also a reply"},
		"a start that is a command": {func(d *saga.Definition[trip]) {
			d.Start = saga.StartOn("seat.book", func(s trip) (string, trip) { return "", s })
		}, "also a command"},
		"a start that is its deadline": {func(d *saga.Definition[trip]) {
			d.Start = saga.StartOn("travel.deadline", func(s trip) (string, trip) { return "", s })
		}, "event of the saga itself"},
		"an end that is its deadline": {func(d *saga.Definition[trip]) { d.Ended.Done = saga.Send("travel.deadline", whole) }, "event of the saga itself"},
		"an end that is local":        {func(d *saga.Definition[trip]) { d.Ended.Done = saga.Local(wrote("x")) }, "Ended must be Send"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := travel()
			test.set(&d)
			err := saga.New(nil, nil, d).Check(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, postroom.ErrUnrecoverable) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	d := travel()
	d.Version, d.Stuck = 0, -1
	if err := saga.New(nil, nil, d).Check(t.Context()); !strings.Contains(err.Error(), "Version") || !strings.Contains(err.Error(), "Stuck") {
		t.Errorf("not all faults at once: %v", err)
	}
}
