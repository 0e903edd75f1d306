package outbox_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/outbox"
)

// An event without an ID is written with a shorter statement if it has no other rare attribute. If
// its subject and content type are the usual ones too, the shortest statement is used. All
// attributes of the event get into the log.
func TestEventsWithoutAnIDAreWrittenWhole(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 2, 3, 4, 5, 6, 0, time.UTC)
	tests := []struct {
		set    func(ev *postroom.Event)
		column string
		want   string
	}{
		{func(*postroom.Event) {}, "type", "order.placed"},
		{func(*postroom.Event) {}, "subject", "order.placed"},
		{func(*postroom.Event) {}, "content_type", "application/json"},
		{func(*postroom.Event) {}, "source", "/shop"},
		{func(ev *postroom.Event) { ev.Key = "k" }, "key", "k"},
		{func(ev *postroom.Event) { ev.Subject = "eu.order" }, "subject", "eu.order"},
		{func(ev *postroom.Event) { ev.ContentType = "text/plain" }, "content_type", "text/plain"},
		{func(ev *postroom.Event) { ev.Data = []byte("7") }, "convert_from(data, 'UTF8')", "7"},
		{func(ev *postroom.Event) { ev.TraceParent = "00-a-b-01" }, "trace_parent", "00-a-b-01"},
		{func(ev *postroom.Event) { ev.TraceParent, ev.TraceState = "00-a-b-01", "a=b" }, "trace_state", "a=b"},
		{func(ev *postroom.Event) { ev.CorrelationID = "c" }, "correlation_id", "c"},
		{func(ev *postroom.Event) { ev.CausationID = "d" }, "causation_id", "d"},
		{func(ev *postroom.Event) { ev.Headers = map[string]string{"a": "b"} }, "headers::text", `{"a": "b"}`},
		{func(ev *postroom.Event) { ev.Time = at }, "extract(epoch FROM occurred_at)::bigint::text", fmt.Sprint(at.Unix())},
		{func(ev *postroom.Event) { ev.NotBefore = at }, "extract(epoch FROM not_before)::bigint::text", fmt.Sprint(at.Unix())},
	}
	pool := devtest.Pool(t)
	for _, w := range ways {
		for _, tt := range tests {
			ev := postroom.Event{Type: "order.placed"}
			tt.set(&ev)
			if err := w.write(t.Context(), pool, ev); err != nil {
				t.Fatal(err)
			}
			var got string
			row := pool.QueryRow(t.Context(), "SELECT "+tt.column+" FROM postroom.outbox WHERE length(event_id) = 36 ORDER BY seq DESC LIMIT 1")
			if err := row.Scan(&got); err != nil || got != tt.want {
				t.Errorf("%s: %s = %q, %v, want %q", w.name, tt.column, got, err, tt.want)
			}
		}
	}
}

// If an id that the outbox made is taken, which should not happen, the transaction fails.
func TestGeneratedIDThatIsTakenIsAnError(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	shop := outbox.New(outbox.Config{Source: "/shop"})
	mustExec(t, pool, `CREATE FUNCTION one_id() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.event_id := ''same''; RETURN NEW; END';
		CREATE TRIGGER one_id BEFORE INSERT ON postroom.outbox FOR EACH ROW EXECUTE FUNCTION one_id()`)
	for n := range 2 {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return shop.Write(t.Context(), tx, postroom.Event{Type: "order.placed"})
		})
		var pg *pgconn.PgError
		if taken := errors.As(err, &pg) && pg.Code == "23505"; taken != (n == 1) {
			t.Errorf("write %d with the same id: %v", n, err)
		}
	}
}
