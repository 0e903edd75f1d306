package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/clock"
	"github.com/postroom/postroom/saga"
)

func TestSizeOfTheState(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) {
		d.Steps[2].Do = saga.Send("payment.charge", seatsOf) // the state alone is as large as an event's body may be
		d.Ended = saga.End[trip]{}
	})
	_, payment := w.upTo("t1")
	size := len(`{"id":"t1","seats":2,"receipt":"","log":["confirmed"]}`)
	most := w.reply(payment, "payment.charged", nil)
	receipt := func(n int) []byte { return []byte(`{"receipt":"` + strings.Repeat("r", n-size) + `"}`) }
	most.Data = receipt(postroom.MaxData + 1)
	err := w.try(most)
	w.fails(err, "too large", true)
	if !errors.Is(err, saga.ErrTooLarge) {
		t.Error(err)
	}
	w.is("t1", "running", "payment")
	most.Data = receipt(postroom.MaxData)
	w.give(most)
	w.is("t1", "done", "confirm")
}

func TestStatus(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	mux := http.NewServeMux()
	mux.Handle("GET /trips/{key}", w.saga.StatusHandler(func(s trip) any { return map[string]int{"seats": s.Seats} }))
	get := func(key, tag string) (*httptest.ResponseRecorder, map[string]any) {
		t.Helper()
		req := httptest.NewRequest(http.MethodGet, "/trips/"+key, nil)
		req.Header.Set("If-None-Match", tag)
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, req)
		var body map[string]any
		if rec.Body.Len() > 0 {
			if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil {
				t.Fatal(err)
			}
		}
		return rec, body
	}
	for _, key := range []string{"t1", "a%00b", "%ff"} {
		if rec, _ := get(key, ""); rec.Code != 404 {
			t.Errorf("of %s, which there is not: %d", key, rec.Code)
		}
	}
	_, payment := w.upTo("t1")

	// Another transaction has locked the row.
	tx, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it has ended
	if _, err := tx.Exec(t.Context(), "SELECT FROM postroom.saga FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	rec, body := get("t1", "")
	if rec.Code != 200 || body["state"] != "running" || rec.Header().Get("Retry-After") != "1" || rec.Header().Get("ETag") != `"2"` ||
		body["deadline"] == nil || body["data"].(map[string]any)["seats"] != 2.0 || len(body["waits_for"].([]any)) != 2 {
		t.Errorf("%d %v %v", rec.Code, rec.Header(), body)
	}
	if got := states(body); got != "open=done seat=done payment=pending confirm=open" {
		t.Error(got)
	}
	if rec, _ := get("t1", `"2"`); rec.Code != 304 || rec.Body.Len() != 0 {
		t.Errorf("with its own tag: %d", rec.Code)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.give(w.reply(payment, "payment.declined", nil))
	if _, body := get("t1", `"2"`); states(body) != "open=done seat=undoing payment=undone confirm=undone" {
		t.Error(states(body))
	}
	w.give(w.reply(w.wants("seat.free")[0], "seat.freed", nil))
	rec, body = get("t1", "")
	if states(body) != "open=undone seat=undone payment=undone confirm=undone" || rec.Header().Get("Retry-After") != "" || body["ended_at"] == nil {
		t.Errorf("%v %v", rec.Header(), body)
	}
	w.pool.Close()
	if rec, _ := get("t1", ""); rec.Code != 503 || rec.Header().Get("Retry-After") != "1" {
		t.Errorf("without a database: %d", rec.Code)
	}
}

func states(body map[string]any) string {
	var all []string
	for _, s := range body["steps"].([]any) {
		one := s.(map[string]any)
		all = append(all, one["name"].(string)+"="+one["state"].(string))
	}
	return strings.Join(all, " ")
}

// When instances end, older ended instances are removed after their time, and only if the inbox has
// forgotten the events of that time. Running instances stay, however old they are.
func TestRetention(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	for _, key := range []string{"a", "b", "c", "d"} {
		w.begin(key)
		w.give(w.reply(w.wants("seat.book", "travel.deadline")[0], "seat.full", nil))
		w.wants("travel.cancelled")
	}
	w.upTo("old")
	w.exec("UPDATE postroom.saga SET started_at = now() - interval '400 days', ended_at = CASE WHEN ended_at IS NOT NULL THEN now() - interval '31 days' END")
	keys := func() string {
		var all string
		err := w.pool.QueryRow(t.Context(), "SELECT string_agg(key, ' ' ORDER BY key) FROM postroom.saga").Scan(&all)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	end := func(key string) { // each program removes some at the first end that it sees
		w.use(travel())
		w.begin(key)
		w.give(w.reply(w.wants("seat.book", "travel.deadline")[0], "seat.full", nil))
		w.wants("travel.cancelled")
	}
	end("n1")
	if got := keys(); got != "a b c d n1 old" {
		t.Errorf("the inbox may still get their events, and there are %s", got)
	}
	w.exec("INSERT INTO postroom.dedupe_window (handler, kept) VALUES ('h', '30 days'), ('payments', '90 days')")
	end("n2")
	if got := keys(); got != "a b c d n1 n2 old" {
		t.Errorf("one handler may still get their events, and there are %s", got)
	}
	w.exec("DELETE FROM postroom.dedupe_window WHERE handler = 'payments'")
	end("n3")
	if got := keys(); got != "n1 n2 n3 old" {
		t.Error(got)
	}
	var orphans int
	if err := w.pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.saga_step WHERE key IN ('a', 'b', 'c', 'd')").Scan(&orphans); err != nil || orphans != 0 {
		t.Errorf("%d rows of their history remain, %v", orphans, err)
	}
}

func TestParticipant(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	seat, _ := w.upTo("t1")
	var answer func(cmd postroom.Event) postroom.Event
	h := saga.Participant(w.out, func(_ context.Context, _ pgx.Tx, cmd postroom.Event, seats int) (postroom.Event, error) {
		if seats != 2 {
			t.Errorf("it got %d", seats)
		}
		return answer(cmd), nil
	})
	handle := func(cmd postroom.Event) error {
		return pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error { return h.Handle(t.Context(), tx, cmd) })
	}
	answer = func(cmd postroom.Event) postroom.Event { return cmd.Follow("seat.booked", nil) }
	if err := handle(seat); err != nil {
		t.Fatal(err)
	}
	if got := w.wants("seat.booked")[0]; got.CausationID != seat.ID || got.Key != "t1" || got.CorrelationID != seat.CorrelationID {
		t.Errorf("the reply is %+v", got)
	}
	answer = func(postroom.Event) postroom.Event { return saga.NoReply } // the participant will answer later
	if err := handle(seat); err != nil {
		t.Fatal(err)
	}
	w.wants() // nothing was written
	answer = func(postroom.Event) postroom.Event { return postroom.Event{} }
	w.fails(handle(seat), "saga.NoReply", true)
	answer = func(postroom.Event) postroom.Event { return postroom.NewEvent("seat.booked", nil) }
	w.fails(handle(seat), "cmd.Follow", true)
	bad := seat
	bad.Data = []byte("x")
	w.fails(handle(bad), "", true)

	// The event about the dead command is an answer.
	types := map[string]string{"seat.book": "seat.died", "other": "seat.died"}
	died := saga.Death{Class: "permanent", Error: "no such seat"}
	err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		return errors.Join(saga.ReportDeath(t.Context(), tx, w.out, types, seat, died),
			saga.ReportDeath(t.Context(), tx, w.out, types, postroom.NewEvent("other", nil), died))
	})
	if err != nil {
		t.Fatal(err)
	}
	w.wants("seat.died")
}

// A dead command may have had its effect, so its step is undone too.
func TestDied(t *testing.T) {
	t.Parallel()
	d := travel()
	d.Steps[1].Failed = saga.OneOf(d.Steps[1].Failed, saga.Died("seat.died", func(s *trip, d saga.Death) { s.Reason = d.Class }))
	saga.Test(t, d).Begin(trip{}).Sends("seat.book").Gets("seat.died", saga.Death{Class: "timeout"}).
		Holds("the reason", func(s trip) bool { return s.Reason == "timeout" }).
		Sends("seat.free").Gets("seat.freed", nil).Sends("travel.cancelled").Ends(saga.Undone)
}

func TestTypes(t *testing.T) {
	t.Parallel()
	d := second()
	d.Start = saga.StartOn("trip.asked", func(s trip) (string, trip) { return "", s })
	want := []string{
		"payment.charged", "payment.declined", "payment.refunded", "seat.booked", "seat.freed", "seat.full", "travel.deadline", "travel.decision", "trip.asked",
	}
	if got := saga.New(nil, nil, d).Types(); !slices.Equal(got, want) {
		t.Errorf("types %v, want %v", got, want)
	}
}

// Tenants share a stream. All events of a saga, even decisions, have subjects of its tenant.
func TestSubjectPrefix(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) { d.SubjectPrefix = "tenant_a" })
	w.upTo("t1")
	w.decide(saga.Decision{Key: "t1", Choice: saga.Skip})
	var subjects string
	if err := w.pool.QueryRow(t.Context(), "SELECT string_agg(subject, ' ' ORDER BY seq) FROM postroom.outbox").Scan(&subjects); err != nil {
		t.Fatal(err)
	}
	if want := "tenant_a.seat.book tenant_a.travel.deadline tenant_a.payment.charge tenant_a.travel.decision tenant_a.travel.booked"; subjects != want {
		t.Errorf("subjects %s, want %s", subjects, want)
	}
}

// A clock that is ahead for a moment removes no instance. The test is not parallel, because it
// changes the clock of the process.
func TestDatabaseClockThatIsAheadRemovesNoInstances(t *testing.T) {
	defer clock.OverrideLatest(40 * 24 * time.Hour)()
	w := newRig(t)
	end := func(key string) {
		w.use(travel())
		w.begin(key)
		w.give(w.reply(w.wants("seat.book", "travel.deadline")[0], "seat.full", nil))
		w.wants("travel.cancelled")
	}
	w.exec("INSERT INTO postroom.dedupe_window (handler, kept) VALUES ('h', '30 days')")
	end("old")
	w.exec("UPDATE postroom.saga SET ended_at = now() - interval '39 days'")
	for _, tt := range []struct{ key, want string }{{"a", "a old"}, {"b", "a b"}} {
		end(tt.key)
		var got string
		if err := w.pool.QueryRow(t.Context(), "SELECT string_agg(key, ' ' ORDER BY key) FROM postroom.saga").Scan(&got); err != nil || got != tt.want {
			t.Errorf("there are %q, %v; want %q", got, err, tt.want)
		}
		clock.OverrideLatest(0)
	}
}
