package large

import (
	"context"
	_ "embed" // the statements
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
)

func TestMain(m *testing.M) { devtest.Main(m) }

var (
	//go:embed sql/log.sql
	logSQL string
	//go:embed sql/held.sql
	heldSQL string
)

const (
	heldEvery = 16 // of this many events, one is held; of six held events, five are dead
	small     = 50_000
	most      = time.Second // the longest time for an answer
	times     = 3           // each question is asked so often, and the slowest answer counts
)

// question is a question of operators. ask returns how many rows the answer has, and whether
// there is a next page. A page that searches much is bounded, and may be empty.
type question struct {
	name string
	ask  func(ctx context.Context) (rows int, more bool, err error)
}

// With ten million events and 500,000 dead ones, each answer comes within a second.
func TestAnswersOfALargeDatabase(t *testing.T) {
	t.Parallel()
	rows := small
	if text := os.Getenv("POSTROOM_LARGE"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		rows = n
	}
	pool := devtest.Pool(t)
	began := time.Now()
	if err := fill(t.Context(), pool, rows); err != nil {
		t.Fatal(err)
	}
	t.Logf("filled with %d events after %s", rows, time.Since(began).Round(time.Second))
	ask(t, questions(pool, rows), rows > small)
}

// ask asks each question. If judged is set, the answers have to come in time. A small database
// is only there to check them.
func ask(t *testing.T, all []question, judged bool) {
	t.Helper()
	for _, q := range all {
		slowest, n, more := time.Duration(0), 0, false
		for range times {
			at := time.Now()
			var err error
			if n, more, err = q.ask(t.Context()); err != nil {
				t.Fatalf("%s: %v", q.name, err)
			}
			slowest = max(slowest, time.Since(at))
		}
		t.Logf("| `%s` | %d | %t | %d |", q.name, n, more, slowest.Milliseconds())
		if n == 0 && !more {
			t.Errorf("%s: the answer is empty", q.name)
		}
		if slowest > most && judged {
			t.Errorf("%s took %s, want at most %s", q.name, slowest, most)
		}
	}
}

// fill makes the rows, and does everything that a server would do to them in time.
func fill(ctx context.Context, pool *pgxpool.Pool, rows int) error {
	const step = 500_000
	for from := 0; from < rows; from += step {
		if _, err := pool.Exec(ctx, logSQL, rows, from, min(from+step, rows)-1); err != nil {
			return fmt.Errorf("fill the log: %w", err)
		}
	}
	for _, sql := range []string{"ANALYZE postroom.outbox", "UPDATE postroom.relay SET high = (SELECT max(seq) FROM postroom.outbox)"} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if _, err := pool.Exec(ctx, heldSQL, rows, heldEvery); err != nil {
		return fmt.Errorf("fill held: %w", err)
	}
	_, err := pool.Exec(ctx, "VACUUM (ANALYZE) postroom.outbox, postroom.held, postroom.inbox")
	return err
}

// questions are all questions about a database with the given number of events.
func questions(pool *pgxpool.Pool, rows int) []question {
	i, store := inspect.New(pool, nil, inspect.Config{}), deadletter.New(pool, deadletter.Config{})
	list := func(name string, f held.Filter) question {
		return question{"held list" + name, func(ctx context.Context) (int, bool, error) {
			page, err := i.HeldEvents(ctx, f, "", 0)
			if err != nil {
				return 0, false, err
			}
			return len(page.Events), page.Next != "", nil
		}}
	}
	events := func(name string, f inspect.EventFilter) question {
		return question{"events list" + name, func(ctx context.Context) (int, bool, error) {
			page, err := i.Events(ctx, f)
			if err != nil {
				return 0, false, err
			}
			return len(page.Events), page.Next != "", nil
		}}
	}
	tree := func(name string, q inspect.TreeQuery) question {
		return question{"events tree" + name, func(ctx context.Context) (int, bool, error) {
			found, err := inspect.Tree(ctx, q, i)
			if err != nil {
				return 0, false, err
			}
			return found.Events, false, nil
		}}
	}
	groups := func(name string, f deadletter.Filter) question {
		return question{"dead groups" + name, func(ctx context.Context) (int, bool, error) {
			found, err := store.Groups(ctx, f)
			return len(found.Groups), false, err
		}}
	}
	old := rows/20*10 + 3                          // an event in the middle
	first := old / heldEvery / 18 * 18 * heldEvery // of one that is held and dead
	trace := fmt.Sprintf("%032x", (rows-1)/10+1)
	last := fmt.Sprint((rows - 1) / 10)
	return []question{
		list("", held.Filter{}),
		list(" --handler", held.Filter{Handler: "handler-1"}),
		list(" --state dead", held.Filter{States: []held.State{held.Dead}}),
		list(" --state retrying", held.Filter{States: []held.State{held.Retrying}}),
		list(" --state waiting", held.Filter{States: []held.State{held.Waiting}}),
		list(" --handler --state dead", held.Filter{Handler: "handler-1", States: []held.State{held.Dead}}),
		list(" --type", held.Filter{Type: "mail.sent"}),
		list(" --class", held.Filter{Class: "timeout"}),
		list(" --key (of one dead event)", held.Filter{Key: fmt.Sprint("order-", first/10)}),
		list(" --due-since", held.Filter{DueSince: time.Now().Add(time.Hour)}),
		events("", inspect.EventFilter{}),
		events(" --type", inspect.EventFilter{Type: "order.paid"}),
		events(" --source", inspect.EventFilter{Source: "/shop-1"}),
		events(" --key (new)", inspect.EventFilter{Key: "order-" + last}),
		events(" --correlation-id (new)", inspect.EventFilter{CorrelationID: "process-" + last}),
		events(" --trace-id (new)", inspect.EventFilter{TraceID: trace}),
		events(" --causation-id (old)", inspect.EventFilter{CausationID: fmt.Sprint("event-", old/10*10)}),
		events(" --since --until (old)", inspect.EventFilter{Since: time.Now().Add(-36 * time.Hour), Until: time.Now().Add(-35 * time.Hour)}),
		events(" --since --until --key (old)", inspect.EventFilter{
			Key: fmt.Sprint("order-", old/10), Since: time.Now().Add(-35*time.Hour - 10*time.Minute), Until: time.Now().Add(-34*time.Hour - 50*time.Minute),
		}),
		tree(" (new)", inspect.TreeQuery{ID: fmt.Sprint("event-", (rows-1)/10*10+4)}),
		tree(" (old)", inspect.TreeQuery{ID: fmt.Sprint("event-", old)}),
		groups("", deadletter.Filter{}),
		groups(" --handler", deadletter.Filter{Handler: "handler-1"}),
		groups(" --type", deadletter.Filter{Type: "mail.sent"}),
		groups(" --text", deadletter.Filter{Text: "declined"}),
		{"dead list", func(ctx context.Context) (int, bool, error) {
			found, next, err := store.List(ctx, deadletter.Filter{}, postroom.Page{Limit: 100})
			return len(found), next != "", err
		}},
		{"dead list --text (of one old event)", func(ctx context.Context) (int, bool, error) {
			found, next, err := store.List(ctx, deadletter.Filter{Text: "card of event 16 "}, postroom.Page{Limit: 100})
			return len(found), next != "", err
		}},
	}
}
