package sagas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/saga"
)

func TestMain(m *testing.M) { devtest.Main(m) }

const patience = 2 * time.Minute

// trip is the state of the sagas of these tests.
type trip struct {
	ID     string `json:"id"`
	Reason string `json:"reason,omitempty"`
}

func whole(s *trip) trip      { return *s }
func nothing(*trip, struct{}) {}

// rig is a database and a stream, with a relay. Each test has a rig of its own.
type rig struct {
	*testing.T

	pool *pgxpool.Pool
	nc   *nats.Conn
	out  *outbox.Outbox
	name string // the name of the stream, with which all types begin

	stopRelay func()
}

func open(t *testing.T) *rig {
	t.Helper()
	w := &rig{T: t, pool: devtest.Pool(t), nc: devtest.NATS(t), out: outbox.New(outbox.Config{Source: "/town"}), name: nats.NewInbox()[len("_INBOX."):]}
	if err := natsjs.EnsureStream(t.Context(), w.nc, jetstream.StreamConfig{Name: w.name, Subjects: []string{w.name + ".>"}}); err != nil {
		t.Fatal(err)
	}
	w.exec("CREATE TABLE did (id bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL, what text NOT NULL)") // no key: a second effect would show
	w.startRelay()
	return w
}

func (w *rig) startRelay() {
	w.stopRelay = w.run(relay.New(w.pool, natsjs.NewPublisher(w.nc), relay.Config{Logger: quiet}))
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// run runs a part until the test ends, or until stop is called.
func (w *rig) run(part postroom.Runner) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	ended := make(chan error, 1)
	go func() { ended <- part.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(stop)
	return stop
}

// process is an inbox. Its handlers do not pause if events fail, and failed events are tried
// again soon.
func (w *rig) process(handlers ...func(in *inbox.Inbox)) (stop func()) {
	in := inbox.New(w.pool, w.nc, inbox.Config{Logger: quiet})
	for _, add := range handlers {
		add(in)
	}
	return w.run(in)
}

func (w *rig) subscription(name string, types ...string) inbox.Subscription {
	return inbox.Subscription{
		Name: name, Stream: w.name, Types: types, Workers: 2, Attempts: 2, Schedule: postroom.Backoff{10 * time.Millisecond}, Pause: inbox.Pause{Off: true},
	}
}

// runs adds a saga to a process.
func (w *rig) runs(g *saga.Saga[trip]) func(in *inbox.Inbox) {
	return func(in *inbox.Inbox) { in.Handle(w.subscription("saga", g.Types()...), g) }
}

// participates adds the participant for the commands of one thing. It handles do and undo, and
// answers with done and undone. If f is set, it is called first.
func (w *rig) participates(thing string, f func(cmd postroom.Event) error) func(in *inbox.Inbox) {
	return func(in *inbox.Inbox) {
		mux := &postroom.Mux{}
		for _, what := range []string{"do", "undo"} {
			eventType := w.of(thing, what)
			mux.On(eventType, saga.Participant(w.out, func(ctx context.Context, tx pgx.Tx, cmd postroom.Event, _ trip) (postroom.Event, error) {
				if f != nil {
					if err := f(cmd); err != nil {
						var other reply
						if errors.As(err, &other) {
							return postroom.Event(other), nil
						}
						return postroom.Event{}, err
					}
				}
				_, err := tx.Exec(ctx, "INSERT INTO did (key, what) VALUES ($1, $2)", cmd.Key, thing+" "+what)
				return cmd.Follow(eventType+"ne", nil), err // done, undone
			}))
		}
		sub := w.subscription(thing, mux.Types()...)
		sub.Order = inbox.HoldKey
		in.Handle(sub, mux)
	}
}

// reply is an answer that a participant gives in place of its work.
type reply postroom.Event

func (reply) Error() string { return "another reply" }

// of is the type of an event about a thing.
func (w *rig) of(thing, what string) string { return w.name + "." + thing + "." + what }

// step is a step that a participant does and undoes.
func (w *rig) step(thing string, within time.Duration) saga.Step[trip] {
	return saga.Step[trip]{
		Name: thing, Within: within,
		Do: saga.Send(w.of(thing, "do"), whole), Done: saga.On(w.of(thing, "done"), nothing),
		Failed: saga.On(w.of(thing, "failed"), func(s *trip, d saga.Death) { s.Reason = d.Class }),
		Undo:   saga.Send(w.of(thing, "undo"), whole), Undone: saga.On(w.of(thing, "undone"), nothing),
	}
}

func (w *rig) saga(d saga.Definition[trip]) *saga.Saga[trip] {
	d.Name = w.name
	return saga.New(w.pool, w.out, d)
}

// begin begins instances.
func (w *rig) begin(g *saga.Saga[trip], keys ...string) {
	w.Helper()
	err := pgx.BeginFunc(w.Context(), w.pool, func(tx pgx.Tx) error {
		for _, key := range keys {
			if err := g.Begin(w.Context(), tx, key, trip{ID: key}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

func (w *rig) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.pool.Exec(w.Context(), sql, args...); err != nil {
		w.Fatal(err)
	}
}

func (w *rig) number(sql string, args ...any) (n int) {
	w.Helper()
	if err := w.pool.QueryRow(w.Context(), sql, args...).Scan(&n); err != nil {
		w.Fatal(err)
	}
	return n
}

// until waits until a statement returns a number.
func (w *rig) until(want int, sql string, args ...any) {
	w.Helper()
	devtest.Eventually(w, patience, fmt.Sprintf("%d of %s %v", want, sql, args), func() bool { return w.number(sql, args...) == want })
}

// did returns what was done for a key.
func (w *rig) did(key string) (all string) {
	w.Helper()
	if err := w.pool.QueryRow(w.Context(), "SELECT coalesce(string_agg(what, ', ' ORDER BY id), '') FROM did WHERE key = $1", key).Scan(&all); err != nil {
		w.Fatal(err)
	}
	return all
}
