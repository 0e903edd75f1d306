package large

import (
	"context"
	_ "embed" // the statement
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/saga"
)

//go:embed sql/sagas.sql
var sagasSQL string

const (
	fewSagas = 5_000
	pairs    = 1_000 // of compared steps

	nowhere = "nowhere" // a step for which no instance waits
)

// checkout is a saga in a database.
type checkout struct {
	*saga.Saga[string]

	pool *pgxpool.Pool
}

// newCheckout records the saga, and other sagas that have instances.
func newCheckout(t *testing.T) checkout {
	t.Helper()
	pool := devtest.Pool(t)
	for _, name := range []string{"other-0", "other-1", "other-2", "other-3", "other-4", "checkout"} {
		order := func(s *string) string { return *s }
		nothing := func(*string, any) {}
		s := saga.New(pool, outbox.New(outbox.Config{Source: "/shop"}), saga.Definition[string]{Name: name, Version: 1, Steps: []saga.Step[string]{
			{
				Name: "payment", Within: 24 * time.Hour, Do: saga.Send("payment.charge", order), Done: saga.On("payment.charged", nothing),
				Undo: saga.Send("payment.refund", order), Undone: saga.On("payment.refunded", nothing),
			},
			{Name: "stock", Do: saga.Send("stock.reserve", order), Done: saga.On("stock.reserved", nothing)},
			{Name: "confirm", Done: saga.OnAny("order.confirmed", nothing)},
		}})
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if name == "checkout" {
			return checkout{s, pool}
		}
	}
	panic("unreachable")
}

// begin begins an instance. It returns how long that took, and the reply to the instance's
// first command.
func (c checkout) begin(ctx context.Context, key string) (took time.Duration, reply postroom.Event, err error) {
	began := time.Now()
	err = pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return c.Begin(ctx, tx, key, key) })
	took = time.Since(began)
	cmd := postroom.Event{Key: key, Source: "/shop"}
	if err == nil {
		err = c.pool.QueryRow(ctx, "SELECT event_id, correlation_id FROM postroom.outbox WHERE seq > (SELECT max(seq) - 10 FROM postroom.outbox) AND type = 'payment.charge' AND key = $1", key).
			Scan(&cmd.ID, &cmd.CorrelationID)
	}
	return took, cmd.Follow("payment.charged", "r"), err
}

// step gives an instance a reply, and returns how long that took.
func (c checkout) step(ctx context.Context, reply postroom.Event) (took time.Duration, err error) {
	began := time.Now()
	reply.Source = "/bank"
	err = pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error { return c.Handle(ctx, tx, reply) })
	return time.Since(began), err
}

// With a million running sagas, each answer comes within a second, and a step takes no longer
// than in a database without any.
func TestManySagas(t *testing.T) {
	t.Parallel()
	rows := fewSagas
	if text := os.Getenv("POSTROOM_SAGAS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		rows = n
	}
	many := newCheckout(t)
	began := time.Now()
	if err := fillSagas(t.Context(), many.pool, rows); err != nil {
		t.Fatal(err)
	}
	t.Logf("filled with %d instances that run after %s", rows, time.Since(began).Round(time.Second))
	ask(t, sagaQuestions(t, many, rows), rows > fewSagas)
	compare(t, newCheckout(t), many, rows > fewSagas)
}

// fillSagas makes instances and their history.
func fillSagas(ctx context.Context, pool *pgxpool.Pool, rows int) error {
	const step = 100_000
	for from := 1; from <= rows; from += step {
		if _, err := pool.Exec(ctx, sagasSQL, from, min(from+step-1, rows)); err != nil {
			return fmt.Errorf("begin instances: %w", err)
		}
	}
	_, err := pool.Exec(ctx, "VACUUM (ANALYZE) postroom.saga, postroom.saga_step, postroom.saga_definition")
	return err
}

// compare compares steps and beginnings in two databases, in turns.
func compare(t *testing.T, none, many checkout, judged bool) {
	t.Helper()
	n := pairs
	if !judged {
		n = 20
	}
	for i := range 100 { // so that neither server plans for an empty table
		for _, c := range []checkout{none, many} {
			if _, _, err := c.begin(t.Context(), fmt.Sprint("warm-", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []checkout{none, many} {
		if _, err := c.pool.Exec(t.Context(), "VACUUM (ANALYZE) postroom.saga, postroom.saga_step, postroom.outbox"); err != nil {
			t.Fatal(err)
		}
		c.pool.Reset() // this drops the plans, too
	}
	times := map[string][]time.Duration{}
	for i := range n {
		for name, c := range map[string]checkout{"none": none, "many": many} {
			took, reply, err := c.begin(t.Context(), fmt.Sprint("measured-", i))
			if err != nil {
				t.Fatal(err)
			}
			step, err := c.step(t.Context(), reply)
			if err != nil {
				t.Fatal(err)
			}
			times["begin "+name], times["step "+name] = append(times["begin "+name], took), append(times["step "+name], step)
		}
	}
	for _, what := range []string{"begin", "step"} {
		a, b := median(times[what+" none"]), median(times[what+" many"])
		ratio := b.Seconds() / a.Seconds()
		t.Logf("| %s | %.2f | %.2f | %.2f |", what, a.Seconds()*1000, b.Seconds()*1000, ratio)
		if judged && ratio > 1.1 {
			t.Errorf("%s takes %.2f times what it takes without instances, want 1.1 at most", what, ratio)
		}
	}
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// sagaQuestions are all questions about a database with the given number of instances.
func sagaQuestions(t *testing.T, c checkout, rows int) []question {
	t.Helper()
	i, store := inspect.New(c.pool, nil, inspect.Config{}), saga.NewStore(c.pool, saga.StoreConfig{})
	list := func(name string, f saga.Filter, after string) question {
		return question{"saga list" + name, func(ctx context.Context) (int, bool, error) {
			instances, next, err := store.List(ctx, f, postroom.Page{After: after})
			return len(instances), next != "" || f.Step == nowhere, err
		}}
	}
	next := func(f saga.Filter, p postroom.Page) string {
		_, place, err := store.List(t.Context(), f, p)
		if err != nil {
			t.Fatal(err)
		}
		return place
	}
	middle, err := store.Show(t.Context(), "checkout", fmt.Sprint("order-", rows/2/9*9+1))
	if err != nil {
		t.Fatal(err)
	}
	stuck := saga.Filter{Stuck: true}
	old := next(saga.Filter{Saga: "checkout", Key: middle.Key}, postroom.Page{Limit: 1}) // a place in the list of all
	oldStuck := next(stuck, postroom.Page{Limit: 50})
	running, undone := []saga.State{saga.Running}, []saga.State{saga.Undone}
	return []question{
		list("", saga.Filter{}, ""),
		list(" --after (old)", saga.Filter{}, old),
		list(" --saga", saga.Filter{Saga: "checkout"}, ""),
		list(" --saga --after (old)", saga.Filter{Saga: "checkout"}, old),
		list(" --state running", saga.Filter{States: running}, ""),
		list(" --state compensating", saga.Filter{States: []saga.State{saga.Compensating}}, ""),
		list(" --saga --state undone", saga.Filter{Saga: "checkout", States: undone}, ""),
		list(" --step", saga.Filter{Step: "payment"}, ""),
		list(" --step (of one in a hundred)", saga.Filter{Step: "confirm"}, ""),
		list(" --step (of none)", saga.Filter{Step: nowhere}, ""),
		list(" --key", saga.Filter{Key: middle.Key}, ""),
		list(" --saga --key", saga.Filter{Saga: "checkout", Key: middle.Key}, ""),
		list(" --stuck", stuck, ""),
		list(" --stuck --after", stuck, oldStuck),
		list(" --stuck --saga --state compensating", saga.Filter{Saga: "checkout", Stuck: true, States: []saga.State{saga.Compensating}}, ""),
		list(" --stuck --step", saga.Filter{Stuck: true, Step: "payment"}, ""),
		{"saga show", func(ctx context.Context) (int, bool, error) {
			found, err := store.Show(ctx, "checkout", middle.Key)
			return len(found.History), false, err
		}},
		{"status", func(ctx context.Context) (int, bool, error) {
			found, err := i.Status(ctx)
			if err != nil {
				return 0, false, err
			}
			return len(found.Findings), false, nil
		}},
		{"events show (of a command)", func(ctx context.Context) (int, bool, error) {
			_, err := i.Event(ctx, "", middle.History[0].EventID)
			if errors.Is(err, inspect.ErrNotFound) {
				err = nil
			}
			return 1, false, err
		}},
		{"what the relay measures", func(ctx context.Context) (int, bool, error) {
			lag, err := pglog.New(c.pool).Lag(ctx)
			return len(lag.Sagas), false, err
		}},
	}
}
