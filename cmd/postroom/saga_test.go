package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	root "github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/saga"
)

// purchase is the state of the sagas of tests.
type purchase struct {
	Order, Receipt string
}

// checkout is a database with a saga of two steps. Commands run as an operator, who has no other
// rights.
type checkout struct {
	pool *pgxpool.Pool
	env  environment
	saga *saga.Saga[purchase]
}

func newCheckout(t *testing.T) *checkout {
	t.Helper()
	order := func(p *purchase) string { return p.Order }
	nothing := func(*purchase, any) {}
	c := &checkout{pool: devtest.Pool(t)}
	operator, role := devtest.RolePool(t, c.pool)
	if _, err := c.pool.Exec(t.Context(), "SELECT postroom.grant_operator($1::regrole)", role); err != nil {
		t.Fatal(err)
	}
	c.env = inDatabase(operator)
	c.env["POSTROOM_ACTOR"] = "ann"
	c.saga = saga.New(c.pool, outbox.New(outbox.Config{Source: "/shop"}), saga.Definition[purchase]{
		Name: "checkout", Version: 1,
		Steps: []saga.Step[purchase]{
			{
				Name: "payment", Within: time.Hour,
				Do: saga.Send("payment.charge", order), Failed: saga.On("payment.declined", nothing),
				Done: saga.On("payment.charged", func(p *purchase, receipt string) { p.Receipt = receipt }),
				Undo: saga.Send("payment.refund", order), Undone: saga.On("payment.refunded", nothing),
			},
			{Name: "parcel", Do: saga.Send("parcel.send", order), Done: saga.On("parcel.sent", nothing)},
		},
	})
	if err := c.saga.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *checkout) begin(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		err := pgx.BeginFunc(t.Context(), c.pool, func(tx pgx.Tx) error { return c.saga.Begin(t.Context(), tx, key, purchase{Order: key}) })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// give passes the event with an id to the saga, as the inbox does.
func (c *checkout) give(t *testing.T, id string) {
	t.Helper()
	ev := root.Event{ID: id}
	err := c.pool.QueryRow(t.Context(), "SELECT type, source, key, coalesce(causation_id, ''), data FROM postroom.outbox WHERE event_id = $1", id).
		Scan(&ev.Type, &ev.Source, &ev.Key, &ev.CausationID, &ev.Data)
	if err == nil {
		err = pgx.BeginFunc(t.Context(), c.pool, func(tx pgx.Tx) error { return c.saga.Handle(t.Context(), tx, ev) })
	}
	if err != nil {
		t.Fatal(err)
	}
}

// command returns the id of the last command of a type.
func (c *checkout) command(t *testing.T, eventType string) (id string) {
	t.Helper()
	if err := c.pool.QueryRow(t.Context(), "SELECT event_id FROM postroom.outbox WHERE type = $1 ORDER BY seq DESC LIMIT 1", eventType).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestSagaList(t *testing.T) {
	t.Parallel()
	c := newCheckout(t)
	postroom(t, c.env, "saga", "list").want(t, exitOK).says(t, "no instance matches")
	if r := postroom(t, c.env, "saga", "list", "--json").want(t, exitOK); !strings.Contains(r.out, `"instances": []`) {
		t.Errorf("an empty list: %s", r.out)
	}
	c.begin(t, "o1", "o 2", "o3")
	for _, sql := range []string{
		"UPDATE postroom.saga SET waits_since = now() - interval '3 h', waits_hour = waits_hour - interval '3 h', deadline = deadline - interval '3 h', started_at = now() - interval '3 h' WHERE key = 'o3'",
		"UPDATE postroom.saga SET started_at = '2026-01-02T03:04:05.678901Z' WHERE key <> 'o3'", // all at the same time
	} {
		if _, err := c.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	postroom(t, c.env, "saga", "list").want(t, exitOK).says(t, "SAGA", "checkout", "o1", "o 2", "running, stuck", "payment", "3h0m", "in 59m", "2026-01-02T03:04:05Z")
	for args, want := range map[string]string{
		"--stuck":                             "[o3]",
		"--key=o1":                            "[o1]",
		"--saga=other":                        "[]",
		"--saga=checkout":                     "[o3 o1 o 2]",
		"--step=parcel":                       "[]",
		"--state=done,undone":                 "[]",
		"--state=running --state=done":        "[o3 o1 o 2]",
		"--step=payment --state=compensating": "[]",
	} {
		r := postroom(t, c.env, append([]string{"saga", "list", "--json"}, strings.Fields(args)...)...).want(t, exitOK)
		got := []string{}
		for _, i := range decode[sagaPage](t, r).Instances {
			got = append(got, i.Key)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %v", args, got, want)
		}
	}
	var pages []string
	for after := []string{}; len(pages) < 10; {
		p := decode[sagaPage](t, postroom(t, c.env, append([]string{"saga", "list", "--limit", "1", "--json"}, after...)...).want(t, exitOK))
		if len(p.Instances) == 0 {
			break
		}
		pages, after = append(pages, p.Instances[0].Key), []string{"--after", p.Next}
	}
	if fmt.Sprint(pages) != "[o3 o1 o 2]" {
		t.Errorf("pages: %q", pages)
	}
	postroom(t, c.env, "saga", "list", "--limit", "1").want(t, exitOK).says(t, "next page: --after ")
	postroom(t, c.env, "saga", "list", "--after", "x").want(t, exitUsage).says(t, "--after: want the value that the last page printed")
	postroom(t, c.env, "saga", "list", "--state", "stuck").want(t, exitUsage).says(t, "running, compensating, done, undone")
	postroom(t, c.env, "saga", "list", "--limit", "0").want(t, exitUsage).says(t, "1 to 1000")
	if r := postroom(t, c.env, "saga", "list", canary).want(t, exitUsage); strings.Contains(r.errors, canary) {
		t.Errorf("the argument is shown: %s", r.errors)
	}
}

func TestSagaShow(t *testing.T) {
	t.Parallel()
	c := newCheckout(t)
	c.begin(t, "o 1")
	id := c.command(t, "payment.charge")
	postroom(t, c.env, "saga", "show", "checkout", "o 1").want(t, exitOK).says(t,
		"checkout, version 1", "running\n", "step payment: payment.charged or payment.declined, since 20", "payment.charge "+id+"; 'postroom events show "+id+"'",
		": then it begins to undo", "payment   pending", "parcel    open", "sent", `"Order": "o 1"`, "retry|skip|done|compensate checkout 'o 1' --revision 1")
	if _, err := c.pool.Exec(t.Context(), "UPDATE postroom.saga SET note = E'parcel.sent x was \\x1b[31mcaused'"); err != nil {
		t.Fatal(err)
	}
	if r := postroom(t, c.env, "saga", "show", "checkout", "o 1").want(t, exitOK).says(t, "was ·[31mcaused"); strings.Contains(r.out, "\x1b") {
		t.Error("a terminal would obey the note")
	}
	story := decode[saga.Story](t, postroom(t, c.env, "saga", "show", "checkout", "o 1", "--json").want(t, exitOK))
	if story.Revision != 1 || len(story.History) != 2 || string(story.State) != "running" {
		t.Errorf("--json has %+v", story)
	}
	postroom(t, c.env, "saga", "show", "checkout", "o2").want(t, exitFailed).says(t, "there is no such instance; 'postroom saga list --saga checkout'")
	postroom(t, c.env, "saga", "show", "checkout").want(t, exitUsage).says(t, "the key of the instance")
	if r := postroom(t, c.env, "saga", "show", "postgres://me:"+canary+"@h/shop", "o1").want(t, exitUsage); strings.Contains(r.errors, canary) {
		t.Errorf("the argument is shown: %s", r.errors)
	}
}

// Each decision reaches the saga, which does what the command said.
func TestSagaDecisions(t *testing.T) {
	t.Parallel()
	c := newCheckout(t)
	c.begin(t, "o1", "o2", "o3")
	decided := func(args ...string) {
		t.Helper()
		id := decode[map[string]string](t, postroom(t, c.env, append([]string{"saga"}, append(args, "--json")...)...).want(t, exitOK))["event_id"]
		c.give(t, id)
	}
	shows := func(key string, want ...string) {
		t.Helper()
		postroom(t, c.env, "saga", "show", "checkout", key).want(t, exitOK).says(t, want...)
	}
	first := c.command(t, "payment.charge")
	said := postroom(t, c.env, "saga", "retry", "checkout", "o3", "--revision", "1", "--reason", "it was discarded", "--actor", "ben").want(t, exitOK).
		says(t, "decided, as event ", "When the relay has published it and a process runs saga checkout, the instance sends its pending command again", "'postroom saga show checkout o3'")
	_, id, _ := strings.Cut(said.out, "as event ")
	id, _, _ = strings.Cut(id, "\n")
	c.give(t, id)
	if again := c.command(t, "payment.charge"); again != first+".2" {
		t.Errorf("retry sent %s after %s", again, first)
	}
	postroom(t, c.env, "audit", "--actor", "ben").want(t, exitOK).says(t, "saga retry", id, "it was discarded")

	decided("skip", "checkout", "o1", "--revision", "1", "--reason", "why")
	shows("o1", "step parcel", "none: it waits until the reply comes", "payment   done")

	file := filepath.Join(t.TempDir(), "reply.json")
	if err := os.WriteFile(file, []byte(`"from a file"`), 0o600); err != nil {
		t.Fatal(err)
	}
	decided("done", "checkout", "o2", "--revision", "1", "--data", "@"+file, "--type", "payment.charged", "--reason", "why")
	shows("o2", `"Receipt": "from a file"`, "mark_done")
	decided("compensate", "checkout", "o3", "--revision", "2", "--reason", "why")
	shows("o3", "compensating", "step payment: payment.refunded", "payment   undoing")
	decided("done", "checkout", "o3", "--revision", "3", "--data", "{}", "--reason", "why")
	shows("o3", "undone", "ENDED")
}

func TestSagaDecisionsThatChangeNothing(t *testing.T) {
	t.Parallel()
	c := newCheckout(t)
	c.begin(t, "o1")
	postroom(t, c.env, "saga", "skip", "checkout", "o1").want(t, exitUsage).
		says(t, "running now and waits for step payment, at revision 1", "'postroom saga show checkout o1'", "--revision 1")
	postroom(t, c.env, "saga", "skip", "checkout", "o1", "--revision", "7", "--reason", "why").want(t, exitFailed).
		says(t, "running at revision 1, and the decision is for 7", "nothing was changed", "'postroom saga show checkout o1'")
	postroom(t, c.env, "saga", "skip", "checkout", "o2").want(t, exitFailed).says(t, "there is no such instance")
	postroom(t, c.env, "saga", "skip", "checkout", "o2", "--revision", "1", "--reason", "why").want(t, exitFailed).says(t, "there is no such instance")
	postroom(t, c.env, "saga", "skip", "checkout", "o1", "--revision", "1").want(t, exitUsage).says(t, "give a --reason")
	postroom(t, c.env, "saga", "skip", "checkout").want(t, exitUsage).says(t, "the key of the instance")
	postroom(t, c.env, "saga", "done", "checkout", "o1", "--revision", "1", "--data", "{").want(t, exitUsage).says(t, "--data is not JSON")
	postroom(t, c.env, "saga", "done", "checkout", "o1", "--revision", "1", "--data", "@no-such-file").want(t, exitFailed).says(t, "read the data of the reply")
	postroom(t, c.env, "saga", "done", "checkout", "o1", "--revision", "1", "--type", "parcel.sent", "--reason", "why").want(t, exitFailed).says(t, "use payment.charged")
	postroom(t, c.env, "saga", "skip", "checkout", "o1", "--revision", "1", "--reason", strings.Repeat("x", 4097)).want(t, exitUsage).says(t, "--reason")
	var written int
	if err := c.pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.outbox WHERE type = 'checkout.decision'").Scan(&written); err != nil || written != 0 {
		t.Errorf("%d decisions were written, %v", written, err)
	}

	cmd := newRoot(func(name string) string { return c.env[name] })
	cmd.SetArgs([]string{"saga", "done", "checkout", "o1", "--revision", "1", "--reason", "why", "--data", "-"})
	cmd.SetIn(strings.NewReader(`"typed"`))
	cmd.SetOut(io.Discard)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var data string
	if err := c.pool.QueryRow(t.Context(), "SELECT convert_from(data, 'UTF8')::jsonb ->> 'data' FROM postroom.outbox WHERE type = 'checkout.decision'").Scan(&data); err != nil || data != "typed" {
		t.Errorf("the decision has data %q, %v", data, err)
	}
	if _, err := c.pool.Exec(t.Context(), "UPDATE postroom.saga SET state = 'done', ended_at = now()"); err != nil {
		t.Fatal(err)
	}
	postroom(t, c.env, "saga", "retry", "checkout", "o1").want(t, exitFailed).says(t, "the instance is done: there is nothing to decide")
}

// answer writes a reply to the last command of a type, and passes the reply to the saga. It returns
// the reply's id.
func (c *checkout) answer(t *testing.T, command, reply string, data any) string {
	t.Helper()
	cmd := root.Event{ID: c.command(t, command), Source: "/shop"}
	if err := c.pool.QueryRow(t.Context(), "SELECT key, correlation_id FROM postroom.outbox WHERE event_id = $1", cmd.ID).Scan(&cmd.Key, &cmd.CorrelationID); err != nil {
		t.Fatal(err)
	}
	ev := cmd.Follow(reply, data)
	ev.ID = reply + ":" + cmd.Key
	err := pgx.BeginFunc(t.Context(), c.pool, func(tx pgx.Tx) error {
		return outbox.New(outbox.Config{Source: "/bank"}).Write(t.Context(), tx, ev)
	})
	if err != nil {
		t.Fatal(err)
	}
	c.give(t, ev.ID)
	return ev.ID
}

func TestStatusOfSagas(t *testing.T) {
	t.Parallel()
	c := newCheckout(t)
	c.begin(t, "o1", "o2", "o3")
	stuck := func(key, ago string) {
		t.Helper()
		if _, err := c.pool.Exec(t.Context(), "UPDATE postroom.saga SET deadline = NULL, waits_since = now() - $2::interval, waits_hour = date_bin('1 hour', now() - $2::interval, 'epoch') WHERE key = $1", key, ago); err != nil {
			t.Fatal(err)
		}
	}
	stuck("o3", "59 min")
	if r := postroom(t, c.env, "status").want(t, exitTodo); strings.Contains(r.out, "stuck") {
		t.Errorf("nothing is stuck: %s", r.out)
	}
	stuck("o2", "61 min")
	postroom(t, c.env, "status").want(t, exitTodo).says(t, "! 1 instance of saga checkout is stuck: o2 has waited for step payment for 1h1m0", "\n  'postroom saga list --saga checkout --stuck' lists them")
	stuck("o1", "2 h 59 min")
	postroom(t, c.env, "status").want(t, exitTodo).says(t, "! 2 instances of saga checkout are stuck: the first, o1, has waited for step payment for 2h59m0")
	status := decode[inspect.Status](t, postroom(t, c.env, "status", "--json").want(t, exitTodo))
	if !slices.ContainsFunc(status.Findings, func(f inspect.Finding) bool { return f.Code == inspect.FoundSagaStuck }) {
		t.Errorf("status --json has %+v", status.Findings)
	}
}

// 'events show' says what an event means for a saga, and 'events tree' shows the whole process.
func TestEventsOfSagas(t *testing.T) {
	t.Parallel()
	c := newCheckout(t)
	c.begin(t, "o1")
	charge, deadline := c.command(t, "payment.charge"), c.command(t, "checkout.deadline")
	charged := c.answer(t, "payment.charge", "payment.charged", "r")
	late := c.answer(t, "payment.charge", "payment.declined", "r")
	decided := decode[map[string]string](t, postroom(t, c.env, "saga", "compensate", "checkout", "o1", "--revision", "2", "--json", "--reason", "why").want(t, exitOK))["event_id"]
	c.give(t, decided)
	refund := c.command(t, "payment.refund")
	refunded := c.answer(t, "payment.refund", "payment.refunded", 1)
	for id, want := range map[string]string{
		charge:   "SAGA          command to do step payment of saga checkout, key o1; 'postroom saga show checkout o1'",
		charged:  "SAGA          counted as done for step payment of saga checkout, key o1; 'postroom",
		late:     "SAGA          caused by the command to do step payment of saga checkout, key o1; it has not counted as the reply; 'postroom",
		decided:  "saga       decision compensate, carried out on step parcel of saga checkout, key o1\n",
		deadline: "SAGA          deadline of step payment of saga checkout, key o1; it has not come, or the step had ended; 'postroom",
		refund:   "saga    command to undo step payment of saga checkout, key o1\n",
		refunded: "saga    counted as undone for step payment of saga checkout, key o1\n",
	} {
		postroom(t, c.env, "events", "show", id).want(t, exitOK).says(t, want)
	}
	trace := decode[inspect.EventTrace](t, postroom(t, c.env, "events", "show", charged, "--json").want(t, exitOK))
	if len(trace.Sagas) != 1 || trace.Sagas[0].Step != "payment" || trace.Sagas[0].Kind != "reply" || trace.Sagas[0].Outcome != "done" {
		t.Errorf("events show --json has %+v", trace.Sagas)
	}
	tree := decode[inspect.EventTree](t, postroom(t, c.env, "events", "tree", refunded, "--json").want(t, exitOK))
	if len(tree.Roots) != 1 || tree.Roots[0].EventID != charge || tree.Events != 8 {
		t.Errorf("the tree has %d events and %d roots:\n%s", tree.Events, len(tree.Roots), postroom(t, c.env, "events", "tree", refunded).out)
	}
}

// sagaPage is what saga list --json prints.
type sagaPage struct {
	Instances []saga.Instance `json:"instances"`
	Next      string          `json:"next"`
}
