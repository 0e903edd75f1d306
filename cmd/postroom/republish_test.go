package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/relay"
)

func TestRepublishUsage(t *testing.T) {
	t.Parallel()
	env := environment{"DATABASE_URL": "postgres://127.0.0.1:1/none"} // no command connects to it
	tests := []struct{ line, want string }{
		{"republish", "which events?"},
		{"republish --all --since 2h", "--all selects all events"},
		{"republish --since yesterday", "--since: write a time"},
		{"republish --since 1h --until 2h", "--since must be before --until"},
		{"republish --all --rate 0", "want a number above 0"},
		{"republish --all --rate NaN", "want a number above 0"},
		{"republish --type=", "it is empty; give a value"},
		{"republish back --all", `unknown command "back"`},
		{"republish cancel", "give one id of a republish"},
		{"republish cancel x", "an id is a number"},
		{"republish list --limit 0", "1 to 1000"},
	}
	for _, tt := range tests {
		postroom(t, env, strings.Fields(tt.line)...).want(t, exitUsage).says(t, tt.want)
	}
}

// republished is a log whose events are published, and the stream that they went to.
type republishTest struct {
	pool   *pgxpool.Pool
	env    environment
	stop   func() // the relay
	nc     *nats.Conn
	stream jetstream.Stream
	name   string
}

// withPublished returns a log of n published events, and a running relay. Each event was written
// one minute after the previous one. Retention has removed the first events, as many as gone says.
func withPublished(t *testing.T, n, gone int) *republishTest {
	t.Helper()
	r := &republishTest{pool: devtest.Pool(t), nc: devtest.NATS(t), name: nats.NewInbox()[len("_INBOX."):]}
	r.env = inDatabase(r.pool)
	r.env["POSTROOM_ACTOR"] = "ann"
	js := devtest.JetStream(t, r.nc)
	var err error
	// EnsureStream is not used, because messages of its streams cannot be removed.
	r.stream, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: r.name, Subjects: []string{r.name + ".>"}, Discard: jetstream.DiscardNew})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.pool.Exec(t.Context(), `INSERT INTO postroom.outbox (digest, source, event_id, type, subject, key, created_at, data)
		SELECT decode(repeat('00', 16), 'hex'), '/shop', 'e' || n, CASE WHEN n % 2 = 0 THEN 'order.placed' ELSE 'order.paid' END,
			$2::text || '.x', 'k' || n % 3, now() - ($1::int - n) * interval '1 minute', ''
		FROM generate_series(1, $1::int) n`, n, r.name)
	if err != nil {
		t.Fatal(err)
	}
	r.stop = r.relay(t)
	r.waitFor(t, n)
	devtest.Eventually(t, time.Minute, "all to be recorded", func() bool {
		return rowCount(t, r.pool, "SELECT count(*) FROM postroom.relay WHERE high = (SELECT max(seq) FROM postroom.outbox) AND isempty(pending)") == 1
	})
	if _, err := r.pool.Exec(t.Context(), "DELETE FROM postroom.outbox WHERE seq <= $1", gone); err != nil {
		t.Fatal(err)
	}
	return r
}

// relay runs a relay until the returned function is called.
func (r *republishTest) relay(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- relay.New(r.pool, natsjs.NewPublisher(r.nc), relay.Config{}).Run(ctx) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-done; err != nil {
				t.Errorf("Run = %v", err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

func (r *republishTest) messages(t *testing.T) int {
	t.Helper()
	info, err := r.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int(info.State.Msgs) //nolint:gosec // few
}

func (r *republishTest) waitFor(t *testing.T, messages int) {
	t.Helper()
	devtest.Eventually(t, time.Minute, fmt.Sprintf("%d messages", messages), func() bool { return r.messages(t) >= messages })
}

func TestRepublish(t *testing.T) {
	t.Parallel()
	r := withPublished(t, 30, 10)
	gone := "the log begins at "

	got := postroom(t, r.env, "republish", "--since", "25m30s", "--dry-run").want(t, exitOK).says(t, "20 events, written from ", "seq 11 to 30; at 1000 a second", gone, "seq 11: earlier events were removed")
	if strings.Contains(got.out, "runs") {
		t.Errorf("nothing runs: %s", got.out)
	}
	var preview operator.RepublishPreview
	got = postroom(t, r.env, "republish", "--since", "5m30s", "--type", "order.paid", "--dry-run", "--json").want(t, exitOK)
	if err := json.Unmarshal([]byte(got.out), &preview); err != nil || preview.Events != 3 || preview.Log.Gone || preview.Log.FirstSeq != 11 {
		t.Errorf("%v: %s", err, got.out)
	}
	postroom(t, r.env, "republish", "--all").want(t, exitUsage).says(t, "20 events", gone, "publish 20 events again?", "give --yes")
	postroom(t, r.env, "republish", "--type", "order.lost", "--yes").want(t, exitFailed).says(t, "no event matches", gone)
	if n := rowCount(t, r.pool, "SELECT count(*) FROM postroom.audit") + rowCount(t, r.pool, "SELECT count(*) FROM postroom.republish"); n != 0 {
		t.Errorf("a refused command wrote %d rows", n)
	}

	postroom(t, r.env, "republish", "--since", "5m30s", "--key", "k0", "--reason", "purged", "--yes").want(t, exitOK).
		says(t, "REPUBLISH   STATE", "done", "ann", "key k0", "purged")
	if n := r.messages(t); n != 32 {
		t.Errorf("%d messages, want 30 and two again", n)
	}
	var done operator.Republish
	got = postroom(t, r.env, "republish", "--all", "--yes", "--json").want(t, exitOK)
	if err := json.Unmarshal([]byte(got.out), &done); err != nil || done.State != operator.RepublishDone || done.Published != 20 || done.Log == nil || !done.Log.Gone {
		t.Errorf("%v: %s", err, got.out)
	}
	if n := r.messages(t); n != 52 {
		t.Errorf("%d messages, want 52", n)
	}
	postroom(t, r.env, "republish", "list").want(t, exitOK).says(t, "the whole log", "key k0")
	postroom(t, r.env, "audit", "--action", "republish").want(t, exitOK).says(t, "ann", "purged", "2 events", "20 events")

	// Events that the broker refuses are held, and 'dead list' shows them.
	cfg := r.stream.CachedInfo().Config
	cfg.MaxMsgSize = 1
	js := devtest.JetStream(t, r.nc)
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	postroom(t, r.env, "republish", "--since", "90s", "--yes").want(t, exitTodo).says(t, "the broker refused 2 events", "dead groups --handler outbox")
	postroom(t, r.env, "dead", "list", "--handler", "outbox", "--count").want(t, exitOK).says(t, "2\n")
}

// If a command is interrupted, its republish goes on. If the same command is run again, it shows
// the progress of that republish, and no event is published a third time.
func TestRepublishIsInterruptedAndGivenAgain(t *testing.T) {
	t.Parallel()
	r := withPublished(t, 30, 0)
	line := []string{"republish", "--since", "1h", "--rate", "8", "--yes"}
	ctx, interrupt := context.WithCancel(t.Context())
	var out, errs bytes.Buffer
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, line, func(name string) string { return r.env[name] }, &out, &errs) }()
	r.waitFor(t, 33)
	interrupt()
	if code := <-ended; code != exitTodo || !strings.Contains(errs.String(), "republish 1 continues without this command") || !strings.Contains(errs.String(), "republish cancel 1") {
		t.Fatalf("interrupted: exit status %d, %s", code, errs.String())
	}
	postroom(t, r.env, "republish", "--since", "1h", "--dry-run").want(t, exitOK).says(t, "republish 1 of the same request is running, with seq 1 to")
	postroom(t, r.env, "republish", "--since", "1h", "--rate", "8", "--yes", "--detach").want(t, exitOK).says(t, "republish 1 has all of these events", "no other is started", "running")
	postroom(t, r.env, line...).want(t, exitOK).says(t, "republish 1 has all of these events", "done")
	if n, rows := r.messages(t), rowCount(t, r.pool, "SELECT count(*) FROM postroom.republish"); n != 60 || rows != 1 {
		t.Errorf("%d messages and %d republishes, want 60 and 1", n, rows)
	}
}

func TestRepublishWithoutARelay(t *testing.T) {
	t.Parallel()
	r := withPublished(t, 3, 0)
	r.stop()
	got := postroom(t, r.env, "republish", "--all", "--detach", "--yes", "--json").want(t, exitOK)
	var made operator.Republish
	if err := json.Unmarshal([]byte(got.out), &made); err != nil || made.State != operator.RepublishRunning || made.AlreadyRunning {
		t.Errorf("%v: %s", err, got.out)
	}
	postroom(t, r.env, "republish", "--all", "--yes").want(t, exitTodo).says(t, "no relay leads", "Start 'postroom relay'")
	postroom(t, r.env, "status").want(t, exitTodo).says(t, "REPUBLISH   BY", "ann", "0 of 3")
	postroom(t, r.env, "republish", "cancel", "1", "--reason", "no").want(t, exitOK).says(t, "cancelled")
	postroom(t, r.env, "republish", "cancel", "1").want(t, exitFailed).says(t, "republish 1 does not run")
	postroom(t, r.env, "audit", "--action", "cancel_republish").want(t, exitOK).says(t, "3 events", "no")
}
