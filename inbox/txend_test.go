package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// endings are ways in which a handler can end its transaction and begin another, which has the
// same status.
var endings = []struct {
	name      string
	committed bool
	end       func(ctx context.Context, tx pgx.Tx) error
}{
	{"rollback and chain", false, statements("ROLLBACK AND CHAIN")},
	{"rollback and begin, in one text", false, statements("ROLLBACK; BEGIN")},
	{"rollback and begin, in two", false, statements("ROLLBACK", "BEGIN")},
	{"rollback by the connection", false, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Conn().Exec(ctx, "ROLLBACK AND CHAIN")
		return err
	}},
	{"rollback in a batch", false, batchOf("ROLLBACK", "BEGIN")},
	{"commit and chain", true, statements("COMMIT AND CHAIN")},
	{"commit and begin, in one text", true, statements("COMMIT; BEGIN")},
	{"commit by the connection", true, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Conn().Exec(ctx, "COMMIT AND CHAIN")
		return err
	}},
	{"commit in a batch", true, batchOf("COMMIT", "BEGIN")},
	{"a procedure that commits", true, statements("COMMIT", "CALL commits()", "BEGIN")},
	{"commit and nothing else", true, statements("COMMIT")},
}

func statements(all ...string) func(ctx context.Context, tx pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		for _, sql := range all {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	}
}

func batchOf(all ...string) func(ctx context.Context, tx pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		batch := &pgx.Batch{}
		for _, sql := range all {
			batch.Queue(sql)
		}
		return tx.SendBatch(ctx, batch).Close()
	}
}

// If a handler ends its transaction and goes on in another, it has failed, even if the other
// looks the same. The second transaction is not committed, and the event is not done. What the
// handler committed itself is not done again.
func TestHandlerThatEndsItsTransactionHasFailed(t *testing.T) {
	t.Parallel()
	ways := map[string]func(sub *inbox.Subscription){
		"alone":   func(*inbox.Subscription) {},
		"batch":   func(sub *inbox.Subscription) { sub.Batch = 10 },
		"ordered": func(sub *inbox.Subscription) { sub.Order = inbox.HoldKey },
	}
	for _, ending := range endings {
		for way, change := range ways {
			for _, returns := range []error{nil, errors.New("a fault of its own")} {
				t.Run(fmt.Sprintf("%s, %s, returns %v", ending.name, way, returns), func(t *testing.T) {
					t.Parallel()
					b := newBench(t)
					b.exec("CREATE PROCEDURE commits() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'")
					sub := b.subscription("h")
					sub.Schedule, sub.Attempts, sub.Workers = postroom.Backoff{time.Hour}, 8, 1
					change(&sub)
					b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
						if !strings.HasPrefix(ev.ID, "bad") {
							return effect("h").Handle(ctx, tx, ev)
						}
						return errors.Join(effect("before").Handle(ctx, tx, ev), ending.end(ctx, tx), after(ctx, tx, ev), returns)
					}))
					b.publish("good 1", "bad", "good 2")
					b.run()
					b.eventually("all to be decided", func() bool { return b.ledger("h") == 3 && len(b.held("h")) > 0 })
					b.drained()
					want := heldEntry{Key: "/shop bad", State: "due", Attempts: 1, Class: "transaction", Failures: 1}
					if returns != nil {
						want.Class = "error"
					}
					if ending.committed {
						want.State, want.Class = "dead", "transaction"
					}
					held := b.held("h")
					if held["/shop bad"] != want {
						t.Errorf("held: %+v, want %+v", held, want)
					}
					if n := len(b.effects("after")); n != 0 && ending.name != "commit and nothing else" {
						t.Errorf("%d effects of another transaction are committed", n)
					}
					if n := b.effects("before")["bad"]; (n == 1) != ending.committed || n > 1 {
						t.Errorf("the earlier effect took place %d times", n)
					}
					if ending.committed {
						b.wantEffectsOrDead("h", "good 1", "good 2")
					} else {
						b.wantOnce("h", "good 1", "good 2")
					}
				})
			}
		}
	}
}

// after is what a handler writes after it ended the transaction that it got.
func after(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
	_, err := tx.Exec(ctx, "INSERT INTO effect (handler, event) VALUES ('after', $1)", ev.ID)
	return err
}

// wantEffectsOrDead wants each event to have had its effect once, or to be dead because
// another event's handler committed its batch.
func (b *bench) wantEffectsOrDead(name string, ids ...string) {
	b.Helper()
	effects, held := b.effects(name), b.held(name)
	for _, id := range ids {
		o, isHeld := held["/shop "+id]
		switch {
		case effects[id] > 1:
			b.Errorf("%s took effect %d times", id, effects[id])
		case effects[id] == 0 && !isHeld:
			b.Errorf("%s is lost", id)
		case isHeld && (o.Class != "transaction" || o.State != "dead"):
			b.Errorf("%s is held: %+v", id, o)
		}
	}
}

// The same holds for held events, alone and with others of their key behind them. An event
// whose handler committed does not run again by itself.
func TestHeldEventWhoseHandlerCommittedDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	for _, ending := range endings {
		for _, returns := range []error{nil, errors.New("a fault of its own"), errContention} {
			t.Run(fmt.Sprintf("%s, returns %v", ending.name, returns), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				b.exec("CREATE PROCEDURE commits() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'")
				b.holdOne("h")
				b.exec("UPDATE postroom.held SET next_at = now(), attempts = 0")
				sub := b.subscription("h")
				sub.Schedule, sub.Attempts = postroom.Backoff{time.Hour}, 8
				b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
					return errors.Join(effect("before").Handle(ctx, tx, ev), ending.end(ctx, tx), after(ctx, tx, ev), returns)
				}))
				b.run()
				b.eventually("its attempt to be noted", func() bool {
					o := b.held("h")["/shop bad"]
					return o.State != "claimed" && o.Attempts > 0 && (o.State == "dead" || !ending.committed)
				})
				o := b.held("h")["/shop bad"]
				class := map[bool]string{true: "transaction", false: o.Class}[ending.committed || returns == nil]
				if o.Class != class || o.Attempts != 1 || (o.State == "dead") != ending.committed {
					t.Errorf("held: %+v, want class %s", o, class)
				}
				if n := len(b.effects("after")); n != 0 && ending.name != "commit and nothing else" {
					t.Errorf("%d effects of another transaction are committed", n)
				}
				if n := b.effects("before")["bad"]; (n == 1) != ending.committed || n > 1 {
					t.Errorf("the earlier effect took place %d times", n)
				}
			})
		}
	}
}

var errContention = fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: "40001"})

// If several events of a key run in one transaction, the one that ended it is blamed.
func TestEventThatEndedTheTransactionOfItsKeyIsBlamed(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]struct{ sql, class string }{
		"it rolls back and begins another":     {"ROLLBACK AND CHAIN", "transaction"},
		"the server refuses the commit of it":  {"INSERT INTO pair VALUES (1), (1)", "23505"},
		"the commit of it conflicts each time": {"INSERT INTO conflict VALUES (1)", "contention"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec("CREATE TABLE pair (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
			b.exec(`CREATE TABLE conflict (n int);
				CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''too late'' USING ERRCODE = ''40001''; END';
				CREATE CONSTRAINT TRIGGER conflict AFTER INSERT ON conflict DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION conflict()`)
			s := newScript("h")
			s.set("k-00000", errors.New("not yet"))
			sub := b.ordered("h", inbox.HoldKey)
			sub.Schedule, sub.Attempts = postroom.Backoff{time.Hour}, 8
			b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				err := s.Handle(ctx, tx, ev)
				if err == nil && ev.ID == "k-00003" {
					_, err = tx.Exec(ctx, cause.sql)
					err = errors.Join(err, after(ctx, tx, ev))
				}
				return err
			}))
			for i := range 6 {
				b.publishKey("k", i)
			}
			b.run()
			b.eventually("all to be held", func() bool { return len(b.held("h")) == 6 })
			s.set("k-00000", nil)
			b.exec("UPDATE postroom.held SET next_at = now() WHERE event_id = 'k-00000'")
			b.eventuallyStates("h", map[string]string{"k-00003": "due", "k-00004": "waiting", "k-00005": "waiting"})
			if o := b.held("h")["/shop k-00003"]; o.Class != cause.class || o.Attempts != 1 {
				t.Errorf("held: %+v", o)
			}
			b.wantOnce("h", numbered("k", 0, 2)...)
			b.wantOnce("after")
		})
	}
}

// The settlement of an external handler's event is one transaction with its OnSuccess
// functions.
func TestSettlementIsOneTransactionWithOnSuccess(t *testing.T) {
	t.Parallel()
	for _, ending := range endings {
		t.Run(ending.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec("CREATE PROCEDURE commits() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'")
			sub := b.subscription("h")
			sub.Schedule, sub.Attempts = postroom.Backoff{time.Hour}, 8
			b.in.HandleExternal(sub, func(_ context.Context, attempt *inbox.Attempt) error {
				attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error {
					return errors.Join(effect("before").Handle(ctx, tx, attempt.Event), ending.end(ctx, tx), after(ctx, tx, attempt.Event))
				})
				return nil
			})
			b.publish("bad")
			b.run()
			b.eventually("its attempt to be noted", func() bool { return b.held("h")["/shop bad"].Failures > 0 })
			if o := b.held("h")["/shop bad"]; o.Class != "transaction" || o.Attempts != 1 || (o.State == "dead") != ending.committed {
				t.Errorf("held: %+v", o)
			}
			if n := len(b.effects("after")); n != 0 && ending.name != "commit and nothing else" {
				t.Errorf("%d effects of another transaction are committed", n)
			}
			if n := b.effects("before")["bad"]; (n == 1) != ending.committed || n > 1 {
				t.Errorf("the earlier effect took place %d times", n)
			}
		})
	}
}

// If a dry run was not rolled back, its result says so.
func TestDryRunReportsThatItWasNotRolledBack(t *testing.T) {
	t.Parallel()
	for _, ending := range endings {
		t.Run(ending.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec("CREATE PROCEDURE commits() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'")
			b.holdOne("h")
			b.in.Handle(b.subscription("h"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				return errors.Join(effect("h").Handle(ctx, tx, ev), ending.end(ctx, tx), after(ctx, tx, ev))
			}))
			b.run()
			var id int64
			err := b.pool.QueryRow(t.Context(), "INSERT INTO postroom.dry_run (handler, held) SELECT handler, id FROM postroom.held RETURNING id").Scan(&id)
			if err != nil {
				t.Fatal(err)
			}
			var told []byte
			b.eventually("an answer", func() bool {
				if err := b.pool.QueryRow(t.Context(), "SELECT outcome FROM postroom.dry_run WHERE id = $1", id).Scan(&told); err != nil {
					t.Fatal(err)
				}
				return told != nil
			})
			var outcome struct{ Verdict, Class, Text string }
			if err := json.Unmarshal(told, &outcome); err != nil {
				t.Fatal(err)
			}
			if outcome.Verdict != "fails" || outcome.Class != "transaction" || strings.Contains(outcome.Text, "have taken effect") != ending.committed {
				t.Errorf("the dry run says %s", told)
			}
			if n := len(b.effects("h")); (n == 1) != ending.committed {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// However a handler may have ended its transaction, the inbox asks the server for it. pgx has
// no other way to tell.
func TestInboxAsksTheServerForTheTransaction(t *testing.T) {
	t.Parallel()
	if n := reflect.TypeFor[pgx.Tx]().NumMethod(); n != 11 {
		t.Errorf("pgx.Tx has %d methods, want the 11 that inbox looks after", n)
	}
	const chain = "ROLLBACK AND CHAIN"
	for name, end := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"a text": statements(chain),
		"a query": func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, chain)
			if err == nil {
				rows.Close()
			}
			return errors.Join(err, rows.Err())
		},
		"a query of one row": func(ctx context.Context, tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, chain).Scan(); !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			return nil
		},
		"the simple protocol": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT $1::int; "+chain, pgx.QueryExecModeSimpleProtocol, 1)
			return err
		},
		"a connection of the simple protocol": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT $1::int; "+chain, 1)
			return err
		},
		"named arguments": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, chain, pgx.NamedArgs{"of": "nothing"})
			return err
		},
		"a savepoint": func(ctx context.Context, tx pgx.Tx) error {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			_, err = inner.Exec(ctx, chain)
			return err
		},
		"a batch": batchOf(chain),
		"the connection": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Conn().PgConn().Exec(ctx, chain).ReadAll()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBenchOn(t, poolWith(t, func(cfg *pgxpool.Config) {
				if name == "a connection of the simple protocol" {
					cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
				}
			}), devtest.NATS(t))
			sub := b.subscription("h")
			sub.Schedule, sub.Attempts = postroom.Backoff{time.Hour}, 8
			b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
				return errors.Join(end(ctx, tx), after(ctx, tx, ev))
			}))
			b.publish("bad")
			b.run()
			b.drained()
			b.eventually("an end", func() bool { return b.counted("h", "done")+b.counted("h", "held") == 1 })
			want := heldEntry{Key: "/shop bad", State: "due", Attempts: 1, Class: "transaction", Failures: 1}
			if got := b.held("h")["/shop bad"]; got != want {
				t.Errorf("held: %+v, want %+v", got, want)
			}
			b.wantOnce("after")
		})
	}
}

// An event commits the transaction of its batch of accepted events. What ran in it may have taken
// effect, so it is dead. What did not run in it is not affected.
func TestAnEventThatDidNotRunIsNotBlamed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.in.Handle(inbox.Subscription{Name: "h", Workers: 1, Batch: 10}, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if ev.ID == "3" {
			_, err := tx.Exec(ctx, "COMMIT")
			return err
		}
		return effect("h").Handle(ctx, tx, ev)
	}))
	b.acceptMany("h", 10)
	b.run()
	b.eventually("all to be settled", func() bool { return len(b.held("h")) == b.dead("h") })
	for i := range 10 {
		id := fmt.Sprint(i)
		o, held := b.held("h")["/stripe "+id]
		switch effects := b.effects("h")[id]; {
		case i == 3 && (effects != 0 || o.Class != "transaction"):
			t.Errorf("%s has %d effects and is held: %+v", id, effects, o)
		case i < 3 && (effects != 1 || held && o.Class != "transaction"):
			t.Errorf("%s has %d effects and is held: %+v", id, effects, o)
		case i > 3 && (effects != 1 || held):
			t.Errorf("%s has %d effects and is held: %+v", id, effects, o)
		}
	}
}
