package saga_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/saga"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// trip is the state of the sagas of tests: a trip is booked, paid, and confirmed.
type trip struct {
	ID      string   `json:"id"`
	Seats   int      `json:"seats"`
	Receipt string   `json:"receipt,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	Log     []string `json:"log,omitempty"`
}

// paidFor is the data of replies.
type paidFor struct {
	Receipt string `json:"receipt,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

func whole(s *trip) trip        { return *s }
func seatsOf(s *trip) int       { return s.Seats }
func nothing(*trip, struct{})   {}
func paid(s *trip, p paidFor)   { s.Receipt = p.Receipt }
func reason(s *trip, p paidFor) { s.Reason = p.Reason }

// travel is the definition that most tests use: a local step that is only undone, two commands, an
// approval by a person, and a local step.
func travel() saga.Definition[trip] {
	return saga.Definition[trip]{
		Name: "travel", Version: 1,
		Steps: []saga.Step[trip]{
			{Name: "open", Undo: saga.Local(wrote("open undone"))},
			{
				Name: "seat", Within: time.Minute,
				Do: saga.Send("seat.book", seatsOf), Done: saga.On("seat.booked", nothing), Failed: saga.On("seat.full", reason),
				Undo: saga.Send("seat.free", seatsOf), Undone: saga.On("seat.freed", nothing),
			},
			{
				Name: "payment", Within: time.Hour,
				Do: saga.Send("payment.charge", whole), Done: saga.On("payment.charged", paid), Failed: saga.On("payment.declined", reason),
				Undo: saga.Send("payment.refund", whole), Undone: saga.On("payment.refunded", nothing),
			},
			{Name: "confirm", Do: saga.Local(wrote("confirmed"))},
		},
		Ended: saga.End[trip]{Done: saga.Send("travel.booked", whole), Undone: saga.Send("travel.cancelled", whole)},
	}
}

// wrote returns a Local function that writes a line into table effect, and into the state.
func wrote(line string) func(context.Context, pgx.Tx, *trip) error {
	return func(ctx context.Context, tx pgx.Tx, s *trip) error {
		s.Log = append(s.Log, line)
		_, err := tx.Exec(ctx, "INSERT INTO effect (key, line) VALUES ($1, $2)", s.ID, line)
		return err
	}
}

// rig is a database with a saga. Its events are given to the saga by hand, each in its own
// transaction, as the inbox does.
type rig struct {
	*testing.T
	pool *pgxpool.Pool
	out  *outbox.Outbox
	saga *saga.Saga[trip]
	seen int64 // the seq of the last event that events has returned
}

func newRig(t *testing.T, set ...func(*saga.Definition[trip])) *rig {
	t.Helper()
	w := &rig{T: t, pool: devtest.Pool(t), out: outbox.New(outbox.Config{Source: "/trips"})}
	if _, err := w.pool.Exec(t.Context(), "CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY, key text, line text)"); err != nil {
		t.Fatal(err)
	}
	d := travel()
	for _, s := range set {
		s(&d)
	}
	w.use(d)
	return w
}

// use replaces the saga by a program with another definition.
func (w *rig) use(d saga.Definition[trip]) {
	w.Helper()
	w.saga = saga.New(w.pool, w.out, d)
	if err := w.saga.Check(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// begin begins an instance.
func (w *rig) begin(key string) {
	w.Helper()
	if err := w.tryBegin(trip{ID: key, Seats: 2}); err != nil {
		w.Fatal(err)
	}
}

func (w *rig) tryBegin(s trip) error {
	return pgx.BeginFunc(w.Context(), w.pool, func(tx pgx.Tx) error { return w.saga.Begin(w.Context(), tx, s.ID, s) })
}

// try gives the saga an event.
func (w *rig) try(ev postroom.Event) error {
	return pgx.BeginFunc(w.Context(), w.pool, func(tx pgx.Tx) error { return w.saga.Handle(w.Context(), tx, ev) })
}

// give gives the saga an event, and fails the test if the saga returns an error.
func (w *rig) give(ev postroom.Event) {
	w.Helper()
	if err := w.try(ev); err != nil {
		w.Fatal(err)
	}
}

// events returns the events that were written since the last call.
func (w *rig) events() (all []postroom.Event) {
	w.Helper()
	rows, _ := w.pool.Query(w.Context(), `
		SELECT seq, event_id, type, coalesce(key, ''), coalesce(causation_id, ''), coalesce(correlation_id, ''), coalesce(not_before, '-infinity'), headers, data, source
		FROM postroom.outbox WHERE seq > $1 ORDER BY seq`, w.seen) // ForEachRow reports the error
	var ev postroom.Event
	var due any
	_, err := pgx.ForEachRow(rows, []any{&w.seen, &ev.ID, &ev.Type, &ev.Key, &ev.CausationID, &ev.CorrelationID, &due, &ev.Headers, &ev.Data, &ev.Source}, func() error {
		ev.NotBefore = time.Time{}
		if at, ok := due.(time.Time); ok {
			ev.NotBefore = at
		}
		one := ev
		one.Data = append([]byte(nil), ev.Data...)
		all = append(all, one)
		ev.Headers = nil
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return all
}

// wants checks the types of the events that were written since the last call, and returns them.
func (w *rig) wants(types ...string) []postroom.Event {
	w.Helper()
	all := w.events()
	var got []string
	for _, ev := range all {
		got = append(got, ev.Type)
	}
	if fmt.Sprint(got) != fmt.Sprint(types) {
		w.Fatalf("the saga wrote %v, want %v", got, types)
	}
	return all
}

// reply returns a reply to a command. It has its own id.
func (w *rig) reply(cmd postroom.Event, eventType string, data any) postroom.Event {
	ev := cmd.Follow(eventType, data)
	ev.Source = "/others"
	return ev
}

// row has the columns of an instance that tests look at.
type row struct {
	State, Step, Note string
	Revision          int64
	Armed             bool
}

func (w *rig) row(key string) (r row) {
	w.Helper()
	err := w.pool.QueryRow(w.Context(), "SELECT state, step, coalesce(note, ''), revision, alarm_at IS NOT NULL FROM postroom.saga WHERE key = $1", key).
		Scan(&r.State, &r.Step, &r.Note, &r.Revision, &r.Armed)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// is checks the state and the pending step of an instance.
func (w *rig) is(key, state, step string) {
	w.Helper()
	if r := w.row(key); r.State != state || r.Step != step {
		w.Fatalf("%s is %s at %s (%s), want %s at %s", key, r.State, r.Step, r.Note, state, step)
	}
}

// effects returns what Local functions wrote for an instance.
func (w *rig) effects(key string) string {
	w.Helper()
	var all string
	if err := w.pool.QueryRow(w.Context(), "SELECT coalesce(string_agg(line, ', ' ORDER BY id), '') FROM effect WHERE key = $1", key).Scan(&all); err != nil {
		w.Fatal(err)
	}
	return all
}

// exec runs SQL that a test needs to change what it cannot wait for.
func (w *rig) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.pool.Exec(w.Context(), sql, args...); err != nil {
		w.Fatal(err)
	}
}

// overrideWait changes an instance as if it had begun to wait earlier, by full hours.
func (w *rig) overrideWait(key string, by time.Duration) {
	w.Helper()
	w.exec("UPDATE postroom.saga SET waits_since = waits_since - $2::interval, waits_hour = waits_hour - $2::interval, deadline = deadline - $2::interval WHERE key = $1", key, by)
}

// overrideDeadlineAndAlarm lets the deadline of an instance's pending step pass: it sets the deadline and the alarm
// back, and returns the event deadline as it would come. The alarm is later than the deadline: it is one
// that counts, however busy the machine is.
func (w *rig) overrideDeadlineAndAlarm(key string) postroom.Event {
	w.Helper()
	w.exec("UPDATE postroom.saga SET deadline = now() - interval '1 s', alarm_at = now() - interval '0.5 s' WHERE key = $1", key)
	return w.alarmOf(key)
}

// alarmOf returns the event deadline of an instance as it would come.
func (w *rig) alarmOf(key string) postroom.Event {
	w.Helper()
	var at time.Time
	if err := w.pool.QueryRow(w.Context(), "SELECT alarm_at FROM postroom.saga WHERE key = $1", key).Scan(&at); err != nil {
		w.Fatal(err)
	}
	ev := postroom.NewEvent("travel.deadline", map[string]any{"at": at.UTC()})
	ev.Key, ev.Source = key, "/trips"
	return ev
}

// upTo begins an instance and brings it to the step payment. It returns the commands of both
// steps.
func (w *rig) upTo(key string) (seat, payment postroom.Event) {
	w.Helper()
	w.begin(key)
	seat = w.wants("seat.book", "travel.deadline")[0]
	w.give(w.reply(seat, "seat.booked", nil))
	payment = w.wants("payment.charge")[0]
	return seat, payment
}

// fails checks that an error has a text and is, or is not, permanent.
func (w *rig) fails(err error, text string, permanent bool) {
	w.Helper()
	if err == nil || !strings.Contains(err.Error(), text) || errors.Is(err, postroom.ErrPermanent) != permanent {
		w.Fatalf("error %v, want one with %q, permanent %t", err, text, permanent)
	}
}
