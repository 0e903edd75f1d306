package inbox_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// The database server crashes while a handler runs a held event. It forgets the id of the transaction,
// which had written nothing, and another transaction gets the id and commits. The inbox does not take
// that for a COMMIT of the handler: the event takes effect, and loses no attempt.
func TestATransactionWithTheIDOfOneThatACrashEnded(t *testing.T) {
	t.Parallel()
	const read = "SELECT pg_current_xact_id()::text"
	one := func(in *inbox.Inbox, h postroom.Handler) {
		in.Handle(inbox.Subscription{Name: "h", Workers: 1, Attempts: 2}, h)
	}
	for name, register := range map[string]func(in *inbox.Inbox, h postroom.Handler){
		"transactional":         one,
		"without parameters":    one,
		"with named parameters": one,
		"in a batch": func(in *inbox.Inbox, h postroom.Handler) {
			in.Handle(inbox.Subscription{Name: "h", Workers: 1, Attempts: 2, Batch: 2}, h)
		},
		"external": func(in *inbox.Inbox, h postroom.Handler) {
			in.HandleExternal(inbox.Subscription{Name: "h", Workers: 1, Attempts: 2}, func(_ context.Context, a *inbox.Attempt) error {
				a.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return h.Handle(ctx, tx, a.Event) })
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := devtest.OwnPostgres(t, durable)
			b := newBenchOn(t, migrated(t, server.URL()), devtest.NATS(t))
			began, goOn := make(chan string, 1), make(chan struct{})
			register(b.in, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				select {
				case <-goOn:
				default:
					sql, args := read+" WHERE $1::bool", []any{true}
					switch name {
					case "without parameters":
						sql, args = read, nil
					case "with named parameters":
						sql, args = read+" WHERE @yes::bool", []any{pgx.NamedArgs{"yes": true}}
					}
					var id string
					if err := tx.QueryRow(ctx, sql, args...).Scan(&id); err != nil {
						return err
					}
					began <- id
					<-goOn
				}
				return effect("h").Handle(ctx, tx, ev)
			}))
			if _, err := b.in.AcceptAll(t.Context(), accepted("h", "a", "1"), accepted("h", "b", "1")); err != nil {
				t.Fatal(err)
			}
			b.run()
			lost, err := strconv.Atoi(<-began)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(server.Kill(), server.Restart(t.Context())); err != nil {
				t.Fatal(err)
			}
			b.eventually("another transaction with that id", func() bool {
				var id int
				err := b.pool.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text::int").Scan(&id)
				return err == nil && id > lost
			})
			close(goOn)
			b.eventually("the events to be settled", func() bool { return len(b.held("h")) == 0 || b.dead("h") > 0 })
			b.wantOnce("h", "a", "b")
			if n := b.counted("h", "held") + b.counted("h", "dead"); n > 0 {
				t.Errorf("the crash cost %d attempts", n)
			}
		})
	}
}
