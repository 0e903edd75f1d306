package saga_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/saga"
	"github.com/postroom/postroom/schema"
)

// A saga has its instances in the schema into which its outbox writes.
func TestSagaHasTheSchemaOfItsOutbox(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	if _, err := schema.Migrate(t.Context(), w.pool, "tenant"); err != nil {
		t.Fatal(err)
	}
	g := saga.New(w.pool, outbox.New(outbox.Config{Source: "/trips", Schema: "tenant"}), travel())
	if err := g.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error { return g.Begin(t.Context(), tx, "t1", trip{ID: "t1", Seats: 2}) })
	if err != nil {
		t.Fatal(err)
	}
	var here, elsewhere int
	err = w.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM tenant.saga) + (SELECT count(*) FROM tenant.outbox WHERE type = 'seat.book'),
		(SELECT count(*) FROM postroom.saga) + (SELECT count(*) FROM postroom.outbox)`).Scan(&here, &elsewhere)
	if err != nil || here != 2 || elsewhere != 0 {
		t.Errorf("%d rows in the schema of the outbox and %d in the other, %v: want the instance and its command in the first", here, elsewhere, err)
	}
	if st, err := g.Status(t.Context(), "t1"); err != nil || st.State != saga.Running {
		t.Errorf("Status = %+v, %v", st, err)
	}
}

// A saga without a working outbox says so in its Check.
func TestFaultyOutbox(t *testing.T) {
	t.Parallel()
	w, nc := newRig(t), withOrders(t)
	for want, out := range map[string]*outbox.Outbox{
		"there is no outbox": nil,
		"Schema":             outbox.New(outbox.Config{Source: "/trips", Schema: "a b"}),
	} {
		g := saga.New(w.pool, out, travel())
		if err := g.Check(t.Context()); !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), want) {
			t.Errorf("the saga's Check = %v, want %q", err, want)
		}
		if err := g.Begin(t.Context(), nil, "t1", trip{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Begin = %v, want %q", err, want)
		}
		in := inbox.New(w.pool, nc, inbox.Config{})
		in.Handle(inbox.Subscription{Name: "h", Stream: "ORDERS", Types: []string{"seat.book"}, Order: inbox.HoldKey}, participant(out))
		if err := in.Check(t.Context()); !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), want) {
			t.Errorf("the inbox's Check = %v, want %q", err, want)
		}
	}
}

func participant(out *outbox.Outbox) postroom.Handler {
	return saga.Participant(out, func(_ context.Context, _ pgx.Tx, cmd postroom.Event, _ int) (postroom.Event, error) {
		return cmd.Follow("seat.booked", nil), nil
	})
}

// An inbox refuses a saga or a participant whose outbox has another schema, also in a Mux or with
// middleware, and names both schemas.
func TestInboxRefusesAnotherSchema(t *testing.T) {
	t.Parallel()
	pool, nc := devtest.Pool(t), withOrders(t)
	if _, err := schema.Migrate(t.Context(), pool, "tenant"); err != nil {
		t.Fatal(err)
	}
	through := func(next postroom.Handler) postroom.Handler { return next }
	for _, names := range [][2]string{{"", "tenant"}, {"tenant", ""}, {"", ""}, {"tenant", "tenant"}, {"postroom", ""}, {"", "postroom"}} {
		out := outbox.New(outbox.Config{Source: "/trips", Schema: names[0]})
		process := saga.New(pool, out, travel())
		var commands, replies postroom.Mux
		commands.On("seat.book", participant(out))
		for _, eventType := range process.Types() {
			replies.On(eventType, process)
		}
		for name, h := range map[string]postroom.Handler{
			"a saga": process, "a Mux of a saga": &replies, "a chain of a saga": postroom.Chain(process, through),
			"a participant": participant(out), "a Mux of participants": &commands, "a chain of a participant": postroom.Chain(participant(out), through),
		} {
			sub := inbox.Subscription{Name: "h", Stream: "ORDERS", Types: process.Types()}
			if strings.Contains(name, "participant") {
				sub.Types, sub.Order = []string{"seat.book"}, inbox.HoldKey
			}
			in := inbox.New(pool, nc, inbox.Config{Schema: names[1]})
			in.Handle(sub, h)
			err := in.Check(t.Context())
			if differ := (names[0] == "tenant") != (names[1] == "tenant"); !differ {
				if err != nil {
					t.Errorf("%s, both schemas %q: %v", name, names, err)
				}
				continue
			}
			if !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), "schema tenant") || !strings.Contains(err.Error(), "schema postroom") {
				t.Errorf("%s, schemas %q: %v, want an error with both", name, names, err)
			}
		}
	}
}
