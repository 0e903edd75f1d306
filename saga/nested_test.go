package saga_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/saga"
)

// nested is a saga holiday whose first step is a saga travel. The services that travel needs reply
// only when the test lets them.
type nested struct {
	*rig   // with the saga travel
	parent *saga.Saga[trip]
	queue  []postroom.Event // commands to the services, without a reply
	late   []postroom.Event // if holds is set: what travel wrote at its end
	holds  bool             // the ends of travel do not arrive at holiday
}

func newNested(t *testing.T) *nested {
	t.Helper()
	n := &nested{rig: newRig(t, func(d *saga.Definition[trip]) {
		d.Start = saga.StartOn("travel.start", func(s trip) (string, trip) { return s.ID, s })
	})}
	n.parent = saga.New(n.pool, n.out, saga.Definition[trip]{Name: "holiday", Version: 1, Steps: []saga.Step[trip]{
		{
			Name: "trip", Do: saga.Send("travel.start", whole), Done: saga.On("travel.booked", nothing), Failed: saga.On("travel.cancelled", nothing),
			Undo: saga.Send("travel.cancel", whole), Undone: saga.On("travel.cancelled", nothing),
		},
		{Name: "hotel", Do: saga.Send("hotel.book", whole), Done: saga.On("hotel.booked", nothing), Undo: saga.Local(wrote("hotel undone"))},
	}})
	if err := n.parent.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.inTx(func(ctx context.Context, tx pgx.Tx) error {
		return n.parent.Begin(ctx, tx, "a", trip{ID: "a", Seats: 2})
	})
	n.pump()
	return n
}

func (n *nested) inTx(f func(ctx context.Context, tx pgx.Tx) error) {
	n.Helper()
	if err := pgx.BeginFunc(n.Context(), n.pool, func(tx pgx.Tx) error { return f(n.Context(), tx) }); err != nil {
		n.Fatal(err)
	}
}

// cancel is the handler that lets holiday undo travel.
func (n *nested) cancel(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	err := n.saga.Compensate(saga.WithCause(ctx, ev), tx, ev.Key, nil)
	if errors.Is(err, saga.ErrOver) {
		return n.out.Write(ctx, tx, ev.Follow("travel.cancelled", nil))
	}
	return err
}

// pump gives the events to their handlers until there are no new events.
func (n *nested) pump() {
	n.Helper()
	for all := n.events(); len(all) > 0; all = n.events() {
		for _, ev := range all {
			switch ev.Type {
			case "travel.start":
				n.give(ev)
			case "travel.cancel":
				n.inTx(func(ctx context.Context, tx pgx.Tx) error { return n.cancel(ctx, tx, ev) })
			case "travel.booked", "travel.cancelled":
				if n.holds {
					n.late = append(n.late, ev)
				} else {
					n.arrive(ev)
				}
			case "travel.deadline":
			default:
				n.queue = append(n.queue, ev)
			}
		}
	}
}

// arrive gives holiday an event.
func (n *nested) arrive(ev postroom.Event) {
	n.Helper()
	n.inTx(func(ctx context.Context, tx pgx.Tx) error { return n.parent.Handle(ctx, tx, ev) })
	n.pump()
}

// answer lets a service answer the oldest command, which has the type cmd.
func (n *nested) answer(cmd, reply string) {
	n.Helper()
	if len(n.queue) == 0 || n.queue[0].Type != cmd {
		n.Fatalf("the commands are %+v, want %s", n.queue, cmd)
	}
	ev := n.reply(n.queue[0], reply, nil)
	n.queue = n.queue[1:]
	n.give(ev)
	n.pump()
}

// undo lets holiday begin to undo.
func (n *nested) undo() {
	n.Helper()
	n.inTx(func(ctx context.Context, tx pgx.Tx) error { return n.parent.Compensate(ctx, tx, "a", nil) })
	n.pump()
}

// are checks the states of holiday and travel.
func (n *nested) are(holiday, travel string) {
	n.Helper()
	for name, want := range map[string]string{"holiday": holiday, "travel": travel} {
		var state, note string
		if err := n.pool.QueryRow(n.Context(), "SELECT state, coalesce(note, '') FROM postroom.saga WHERE name = $1", name).Scan(&state, &note); err != nil {
			n.Fatal(err)
		}
		if state != want {
			n.Errorf("%s is %s (%s), want %s", name, state, note, want)
		}
	}
}

// A saga that is a step of another saga answers that step's Do when it ends by itself.
func TestNestedSagaAnswersItsStart(t *testing.T) {
	t.Parallel()
	n := newNested(t)
	n.answer("seat.book", "seat.booked")
	n.answer("payment.charge", "payment.charged")
	n.are("running", "done")
	if len(n.queue) != 1 || n.queue[0].Type != "hotel.book" {
		t.Errorf("holiday sent %+v, want the command of its second step", n.queue)
	}
}

func TestNestedSagaFails(t *testing.T) {
	t.Parallel()
	n := newNested(t)
	n.answer("seat.book", "seat.full")
	n.are("undone", "undone")
}

// The customer cancels travel itself. The end then still answers the step's Do, for which holiday
// waits.
func TestNestedSagaIsUndoneByItsOwnService(t *testing.T) {
	t.Parallel()
	n := newNested(t)
	wish := postroom.NewEvent("customer.cancels", nil)
	wish.ID = "wish"
	n.inTx(func(ctx context.Context, tx pgx.Tx) error {
		return n.saga.Compensate(saga.WithCause(ctx, wish), tx, "a", nil)
	})
	n.pump()
	n.answer("seat.book", "seat.booked") // late
	n.answer("seat.free", "seat.freed")
	n.are("undone", "undone")
}

// Holiday undoes travel before travel has ended. The end answers the Undo.
func TestNestedSagaIsUndoneWhileItRuns(t *testing.T) {
	t.Parallel()
	n := newNested(t)
	n.undo()
	n.are("compensating", "compensating")
	n.answer("seat.book", "seat.booked") // late
	n.answer("seat.free", "seat.freed")
	n.are("undone", "undone")
}

// Holiday undoes travel while travel undoes its own steps. The end answers the Undo, because
// holiday no longer waits for an answer to the Do.
func TestNestedSagaIsUndoneWhileItUndoesItself(t *testing.T) {
	t.Parallel()
	n := newNested(t)
	n.answer("seat.book", "seat.booked")
	n.answer("payment.charge", "payment.declined")
	n.are("running", "compensating")
	n.undo()
	n.are("compensating", "compensating")
	n.answer("seat.free", "seat.freed")
	n.are("undone", "undone")
}

// Holiday undoes travel before it learns that travel is undone. So travel announces its end again,
// as the answer to the Undo, and only once.
func TestNestedSagaIsUndoneAfterItUndidItself(t *testing.T) {
	t.Parallel()
	n := newNested(t)
	n.holds = true
	n.answer("seat.book", "seat.full")
	n.are("running", "undone")
	n.undo()
	if len(n.late) != 2 || n.late[0].ID == n.late[1].ID || n.late[0].CausationID == n.late[1].CausationID {
		t.Fatalf("travel announced its end by %+v, want an answer to the Do and an answer to the Undo", n.late)
	}
	undo := postroom.Event{ID: n.late[1].CausationID, Type: "travel.cancel", Key: "a"}
	n.inTx(func(ctx context.Context, tx pgx.Tx) error { return n.cancel(ctx, tx, undo) })
	n.wants()
	n.holds = false
	n.arrive(n.late[0])
	n.are("compensating", "undone")
	n.arrive(n.late[1])
	n.are("undone", "undone")
}

// The reply of travel was lost, and an operator of holiday has the command sent again. Travel has
// ended, and announces its end once more, as the answer to that command. Nothing of it happens twice.
func TestNestedSagaAnswersARetry(t *testing.T) {
	t.Parallel()
	for end, want := range map[string][2]string{"payment.charged": {"running", "done"}, "payment.declined": {"undone", "undone"}} {
		answers := func(t *testing.T, next int) { // next is the version of travel when the second command comes
			t.Parallel()
			n := newNested(t)
			n.holds = true
			n.answer("seat.book", "seat.booked")
			n.answer("payment.charge", end)
			if end == "payment.declined" {
				n.answer("seat.free", "seat.freed")
			}
			n.are("running", want[1])
			n.holds = false
			if next > 1 { // the version of the instance may have left Older, because the instance has ended
				d := travel()
				d.Version, d.Start = next, saga.StartOn("travel.start", func(s trip) (string, trip) { return s.ID, s })
				n.use(d)
			}
			var revision int64
			if err := n.pool.QueryRow(t.Context(), "SELECT revision FROM postroom.saga WHERE name = 'holiday'").Scan(&revision); err != nil {
				t.Fatal(err)
			}
			if _, err := saga.NewStore(n.pool, saga.StoreConfig{}).Decide(t.Context(), saga.Decision{Saga: "holiday", Key: "a", Revision: revision, Choice: saga.Retry}, by); err != nil {
				t.Fatal(err)
			}
			n.arrive(n.wants("holiday.decision")[0])
			n.are(want[0], want[1])
			if end == "payment.charged" && (len(n.queue) != 1 || n.queue[0].Type != "hotel.book") {
				t.Errorf("holiday sent %+v, want the command of its second step", n.queue)
			}
			n.arrive(n.late[0]) // the first reply, which was only late
			n.are(want[0], want[1])
		}
		t.Run(end, func(t *testing.T) { answers(t, 1) })
		t.Run(end+" in another version", func(t *testing.T) { answers(t, 2) })
	}
}

// Travel is done when holiday undoes it. Compensate then returns ErrOver, and the handler answers.
func TestNestedSagaIsUndoneAfterItIsDone(t *testing.T) {
	t.Parallel()
	n := newNested(t)
	n.answer("seat.book", "seat.booked")
	n.answer("payment.charge", "payment.charged")
	n.are("running", "done")
	n.undo()
	n.are("undone", "done")
}
