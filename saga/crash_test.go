package saga_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/postroomtest"
	"github.com/postroom/postroom/saga"
)

// crashRig is a saga with its participants in one database, for a scenario of Crash. It keeps nothing
// in memory.
type crashRig struct {
	pool *pgxpool.Pool
	look *pgxpool.Pool // that of Setup, whose connections are not cut; the test uses it to see what to do next, and for the participants
	out  *outbox.Outbox
	saga *saga.Saga[trip]

	deadline bool // the payment is never answered, and an operator sends an Undo again
}

// deliverAll gives each event of the log to its handler, until the instance has ended.
func (w *crashRig) deliverAll(ctx context.Context) error { return w.deliverUntil(ctx, "") }

// deliverUntil is deliverAll, and also ends when this step is pending.
func (w *crashRig) deliverUntil(ctx context.Context, step string) error {
	err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error { return w.saga.Begin(ctx, tx, "t1", trip{ID: "t1", Seats: 2}) })
	if err != nil {
		return err
	}
	for range 20 {
		st, err := saga.New(w.look, w.out, travel()).Status(ctx, "t1")
		if err != nil || st.State.Ended() || step != "" && pendingStep(st) == step {
			return err
		}
		if err := w.overrideDeadlineOrDecide(ctx, st); err != nil {
			return err
		}
		rows, _ := w.look.Query(ctx, `SELECT event_id, type, key, coalesce(causation_id, ''), correlation_id, coalesce(headers, '{}'), data, source, not_before IS NOT NULL
			FROM postroom.outbox o WHERE NOT EXISTS (SELECT FROM postroom.inbox i WHERE i.dedupe_key = o.source || ' ' || o.event_id) ORDER BY seq`)
		type logged struct {
			postroom.Event
			scheduled bool
		}
		events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l logged, err error) {
			err = row.Scan(&l.ID, &l.Type, &l.Key, &l.CausationID, &l.CorrelationID, &l.Headers, &l.Data, &l.Source, &l.scheduled)
			return l, err
		})
		if err != nil {
			return err
		}
		for _, l := range events {
			pool, h := w.pool, postroom.Handler(w.saga)
			if saga.StepKey(l.Event) != "" {
				pool, h = w.look, postroom.HandlerFunc(w.participate)
			} else if l.scheduled || !slices.Contains(w.saga.Types(), l.Type) {
				continue
			}
			if err := postroomtest.Deliver(ctx, pool, h, l.Event); err != nil {
				return err
			}
		}
	}
	return errors.New("the instance has not ended")
}

var replies = map[string]string{"seat.book": "seat.booked", "seat.free": "seat.freed", "payment.charge": "payment.charged", "payment.refund": "payment.refunded"}

// participate carries out a command, once for each step, and answers it.
func (w *crashRig) participate(ctx context.Context, tx pgx.Tx, cmd postroom.Event) error {
	_, err := tx.Exec(ctx, "INSERT INTO did (step, type) VALUES ($1, $2) ON CONFLICT DO NOTHING", saga.StepKey(cmd), cmd.Type)
	if err != nil || w.deadline && cmd.Type == "payment.charge" {
		return err
	}
	return w.out.Write(ctx, tx, cmd.Follow(replies[cmd.Type], nil))
}

// overrideDeadlineOrDecide lets the payment's deadline pass, and lets an operator send the Undo of the seat again.
func (w *crashRig) overrideDeadlineOrDecide(ctx context.Context, st saga.Status) error {
	if !w.deadline {
		return nil
	}
	switch pending := pendingStep(st); {
	case st.State == saga.Running && pending == "payment":
		var at any
		err := w.look.QueryRow(ctx, "UPDATE postroom.saga SET deadline = least(deadline, started_at), alarm_at = least(alarm_at, started_at + interval '1 ms') RETURNING alarm_at").Scan(&at)
		if err != nil {
			return err
		}
		ev := postroom.NewEvent("travel.deadline", map[string]any{"at": at})
		ev.ID, ev.Key, ev.Source = "due", "t1", "/trips"
		return postroomtest.Deliver(ctx, w.pool, w.saga, ev)
	case st.State == saga.Compensating && pending == "seat":
		var decided bool
		err := w.look.QueryRow(ctx, "SELECT EXISTS (SELECT FROM postroom.audit)").Scan(&decided)
		if err != nil || decided {
			return err
		}
		_, err = saga.NewStore(w.pool, saga.StoreConfig{}).Decide(ctx, saga.Decision{Saga: "travel", Key: "t1", Revision: st.Revision, Choice: saga.Retry}, by)
		return err
	}
	return nil
}

func pendingStep(st saga.Status) string {
	for _, s := range st.Steps {
		if s.State == saga.StepPending || s.State == saga.StepUndoing {
			return s.Name
		}
	}
	return ""
}

// The result of a saga does not depend on the moment at which its process is killed. The connection
// is cut before and after every statement of Begin, of replies, of a deadline, of a decision, of
// local steps and of the compensation. In the end there is one command for each step and direction.
// Each command has one effect, and they are in order.
func TestCrashAnywhere(t *testing.T) {
	for _, tt := range []struct {
		name     string
		deadline bool
		from     string // the connection is cut only after this step became pending, because the other case has what is before
		state    saga.State
		did      string // what the participants did
		effects  string // the effects of Local functions
		sent     string
	}{
		{"done", false, "payment", saga.Done, "seat.book payment.charge", "confirmed", "seat.book payment.charge travel.booked"},
		{
			"undone", true, "", saga.Undone, "seat.book payment.charge payment.refund seat.free", "open undone",
			"seat.book payment.charge payment.refund seat.free seat.free travel.cancelled",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var look *pgxpool.Pool
			rigOn := func(pool *pgxpool.Pool) *crashRig {
				out := outbox.New(outbox.Config{Source: "/trips"})
				return &crashRig{pool: pool, look: look, out: out, saga: saga.New(pool, out, travel()), deadline: tt.deadline}
			}
			postroomtest.Crash(t, postroomtest.Scenario{
				Setup: func(ctx context.Context, pool *pgxpool.Pool) error {
					look = pool
					_, err := pool.Exec(ctx, `CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY, key text, line text);
						CREATE TABLE did (id bigint GENERATED ALWAYS AS IDENTITY, step text, type text, PRIMARY KEY (step, type))`)
					if err != nil || tt.from == "" {
						return err
					}
					return rigOn(pool).deliverUntil(ctx, tt.from)
				},
				Run: func(ctx context.Context, pool *pgxpool.Pool) error { return rigOn(pool).deliverAll(ctx) },
			}, func(ctx context.Context, pool *pgxpool.Pool) error {
				var state, did, effects, sent string
				var held, mismatched int
				err := pool.QueryRow(ctx, `SELECT (SELECT state FROM postroom.saga),
					(SELECT string_agg(type, ' ' ORDER BY id) FROM did), (SELECT coalesce(string_agg(line, ' ' ORDER BY id), '') FROM effect),
					(SELECT string_agg(type, ' ' ORDER BY seq) FROM postroom.outbox WHERE event_id ~ ':(do|undo|ended)'), (SELECT count(*) FROM postroom.held),
					(SELECT count(*) FROM (SELECT command_id FROM postroom.saga_step WHERE command_id IS NOT NULL) h
						FULL JOIN (SELECT event_id FROM postroom.outbox WHERE event_id ~ ':(do|undo)') o ON o.event_id = h.command_id
						WHERE o.event_id IS NULL OR h.command_id IS NULL)`).
					Scan(&state, &did, &effects, &sent, &held, &mismatched)
				got := fmt.Sprintf("%s; did %s; effects %s; sent %s; held %d; unlike %d", state, did, effects, sent, held, mismatched)
				want := fmt.Sprintf("%s; did %s; effects %s; sent %s; held 0; unlike 0", tt.state, tt.did, tt.effects, tt.sent)
				if err == nil && got != want {
					err = fmt.Errorf("%s\nwant %s", got, want)
				}
				return err
			})
		})
	}
}
