package inbox_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// hidden are the leaks that no statement shows. The next event on the connection may find them in
// its session, but the pool must not.
var hidden = []string{
	"one that a function set", "a timeout that a function set", "a read-only default, by stealth",
	"a role that a function set", "one that a function made", "one that a function took",
}

// leaks are statements that change the session.
var leaks = map[string]string{
	"a search_path":                   "SET search_path = nowhere, public",
	"one that set_config set":         "SELECT set_config('search_path', 'nowhere, public', false)",
	"one that a function set":         "SELECT quietly('search_path', 'nowhere, public')",
	"one that a block set":            "DO 'BEGIN SET search_path = nowhere, public; END'",
	"a tenant":                        "SET app.tenant = '7'",
	"a tenant that set_config set":    "SELECT set_config('app.tenant', '7', false)",
	"a timeout":                       "SET statement_timeout = '1d'",
	"a timeout that a function set":   "SELECT quietly('statement_timeout', '1d')",
	"a lock_timeout":                  "SET lock_timeout = '1d'",
	"a default of transactions":       "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
	"a read-only default, by stealth": "SELECT quietly('default_transaction_read_only', 'on')",
	"a role":                          "SET ROLE pg_monitor",
	"a role that a function set":      "SELECT quietly('role', 'pg_monitor')",
	"a user":                          "SET SESSION AUTHORIZATION pg_monitor",
	"a time zone":                     "SET TIME ZONE 'Asia/Kolkata'",
	"a temporary table":               "CREATE TEMPORARY TABLE mine ()",
	"one that a function made":        "SELECT makes()",
	"an advisory lock":                "SELECT pg_advisory_lock(99)",
	"one that a function took":        "SELECT locks()",
	"a channel":                       "LISTEN mine",
	"a prepared statement":            "/* by hand */ PREPARE mine AS SELECT 1",
	"a cursor":                        "DECLARE mine CURSOR WITH HOLD FOR SELECT 1",
	"a role for the transaction":      "SET LOCAL ROLE pg_monitor",
	"a tenant for the transaction":    "SET LOCAL app.tenant = '7'",
}

// sessionSQL returns everything in the session that the leaks could change.
const sessionSQL = `SELECT concat_ws(' ', session_user, current_user, current_setting('search_path'), coalesce(current_setting('app.tenant', true), ''),
	current_setting('statement_timeout'), current_setting('default_transaction_read_only'), current_setting('TimeZone'), current_setting('app.hook', true),
	to_regclass('pg_temp.mine'), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objid = 99),
	(SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_prepared_statements WHERE name = 'mine'),
	(SELECT count(*) FROM pg_cursors WHERE name = 'mine'))`

// sessions are the states of sessions that handlers and the pool met.
type sessions struct {
	mu  sync.Mutex
	met []string
}

func (s *sessions) note(ctx context.Context, tx pgx.Tx) error {
	var is string
	if err := tx.QueryRow(ctx, sessionSQL).Scan(&is); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.met = append(s.met, is)
	return nil
}

func sessionPool(t *testing.T, hooked bool) *pgxpool.Pool {
	t.Helper()
	pool := poolWith(t, func(cfg *pgxpool.Config) {
		cfg.MaxConns = 12 // the workers need 10
		if hooked {
			cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, "SET TimeZone = 'Europe/Lisbon'; SET app.hook = 'mine'")
				return err
			}
			return
		}
		cfg.ConnConfig.RuntimeParams["TimeZone"] = "Europe/Lisbon"
		cfg.ConnConfig.RuntimeParams["app.hook"] = "mine"
	})
	return pool
}

// wantClean checks all connections of the pool, after the inbox has stopped. If a statement showed
// the leak, it also checks the sessions that handlers met.
func (b *bench) wantClean(shown bool, of ...*sessions) {
	b.Helper()
	var conns []*pgxpool.Conn
	release := func() {
		for _, conn := range conns {
			conn.Release()
		}
	}
	b.eventually("all connections to be given back", func() bool { // the pool closes some by itself
		release()
		conns = b.pool.AcquireAllIdle(b.Context())
		return len(conns) > 0 && len(conns) == int(b.pool.Stat().TotalConns())
	})
	defer release()
	var want, wanted string
	fresh, err := pgx.ConnectConfig(b.Context(), b.pool.Config().ConnConfig)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = fresh.Close(b.Context()) }()
	if hook := b.pool.Config().AfterConnect; hook != nil {
		if err := hook(b.Context(), fresh); err != nil {
			b.Fatal(err)
		}
	}
	if err := fresh.QueryRow(b.Context(), sessionSQL).Scan(&want); err != nil {
		b.Fatal(err)
	}
	const poolSQL = "SELECT current_setting('lock_timeout') || (" + sessionSQL + ")"
	if err := fresh.QueryRow(b.Context(), poolSQL).Scan(&wanted); err != nil {
		b.Fatal(err)
	}
	for _, conn := range conns {
		var is string
		if err := conn.QueryRow(b.Context(), poolSQL).Scan(&is); err != nil || is != wanted {
			b.Errorf("a connection of the pool is %q, %v, want %q", is, err, wanted)
		}
	}
	for _, s := range of {
		s.mu.Lock()
		for _, is := range s.met {
			if shown && is != want {
				b.Errorf("a handler got %q, want %q", is, want)
			}
		}
		s.mu.Unlock()
	}
}

// If a handler changes its session, neither the next event nor the pool meets the change, and
// the handler's effect is committed.
func TestSessionsDoNotLeak(t *testing.T) {
	t.Parallel()
	ways := map[string]func(*inbox.Subscription){
		"single":  func(s *inbox.Subscription) { s.Workers = 1 },
		"batch":   func(s *inbox.Subscription) { s.Workers, s.Batch = 1, 10 },
		"ordered": func(s *inbox.Subscription) { s.Order = inbox.HoldKey },
	}
	for name, sql := range leaks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, hooked := range []bool{false, true} {
				b := newBenchOn(t, sessionPool(t, hooked), devtest.NATS(t))
				b.functions()
				seen := map[string]*sessions{}
				want := []string{"e1", "e2", "e3", "e4"}
				for way, change := range ways {
					for how, fail := range map[string]func(n int32) error{
						"": func(int32) error { return nil },
						" fails": func(n int32) error { // the first time in one way, then in the other
							if (n == 1) == hooked {
								panic("on purpose")
							}
							return errors.New("on purpose")
						},
					} {
						sub, s := b.subscription(way+strings.ReplaceAll(how, " ", "-")), &sessions{}
						change(&sub)
						seen[sub.Name] = s
						var failures atomic.Int32
						b.in.Handle(sub, leaking(sub.Name, sql, s, func() error { return fail(failures.Add(1)) }))
					}
				}
				for _, id := range append(slices.Clone(want), "again") {
					b.publishEvent(postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".placed", Key: "k", ContentType: "text/plain"})
				}
				stop := b.run()
				for name := range seen {
					b.eventually(name+" to take effect", func() bool { return len(b.effects(name)) == len(want)+1 })
					b.eventually(name+" to hold no event", func() bool { return len(b.held(name)) == 0 })
					b.wantOnce(name, append(slices.Clone(want), "again")...)
				}
				stop()
				b.wantClean(!slices.Contains(hidden, name), slices.Collect(maps.Values(seen))...)
			}
		})
	}
}

// leaking is a handler that takes effect and changes its session. Then it may fail, once for
// each event.
func leaking(name, sql string, s *sessions, fail func() error) postroom.Handler {
	var once sync.Map
	return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if err := s.note(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO public.effect (handler, event) VALUES ($1, $2)", name, ev.ID); err != nil {
			return err
		}
		if n := ev.ID; n == "e1" || n == "e3" || n == "again" {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		if _, did := once.LoadOrStore(ev.ID, true); !did && ev.ID != "e2" {
			return fail()
		}
		return nil
	})
}

// Events that wait behind the head of their key run along in its transaction, but not
// behind one that changed the session.
func TestEventsThatRunAlongDoNotMeetAnotherSession(t *testing.T) {
	t.Parallel()
	const waiting = 5
	b := newBenchOn(t, sessionPool(t, false), devtest.NATS(t))
	b.in = inbox.New(b.pool, b.nc, b.config())
	s := &sessions{}
	var open atomic.Bool
	sub := b.ordered("o", inbox.HoldKey)
	sub.Attempts = 1000 // it succeeds long before they are used up
	b.in.Handle(sub, postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if !open.Load() {
			return errors.New("not yet")
		}
		if err := s.note(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO public.effect (handler, event) VALUES ('o', $1)", ev.ID); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "SET search_path = nowhere, public")
		return err
	}))
	stop := b.run()
	for i := range waiting + 1 {
		b.publishKey("a", i)
	}
	b.eventually("all to wait", func() bool { return b.heldCount("o") == waiting+1 })
	open.Store(true)
	b.eventually("all to take effect", func() bool { return b.made("o", "a-%") == waiting+1 })
	stop()
	b.wantClean(true, s)
}

// functions creates functions that change the session, so that the statement does not show it.
func (b *bench) functions() {
	b.Helper()
	b.exec(`CREATE FUNCTION quietly(name text, setting text) RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM set_config(name, setting, false); END'`)
	b.exec(`CREATE FUNCTION makes() RETURNS void LANGUAGE plpgsql AS 'BEGIN CREATE TEMPORARY TABLE mine (); END'`)
	b.exec(`CREATE FUNCTION locks() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_lock(99); END'`)
}

// A dry run leaves its session unchanged, and reports what the handler would change.
func TestADryRunDoesNotLeak(t *testing.T) {
	t.Parallel()
	for name, sql := range leaks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBenchOn(t, sessionPool(t, false), devtest.NATS(t))
			b.functions()
			cfg := b.config()
			cfg.IdlePoll = 5 * time.Millisecond
			b.in = inbox.New(b.pool, b.nc, cfg)
			b.holdOne("h")
			s := &sessions{}
			b.in.Handle(b.subscription("h"), leaking("h", sql, s, func() error { return nil }))
			b.exec("UPDATE postroom.held SET dead_at = now(), next_at = NULL, event_id = 'e1'")
			stop := b.run()
			for range 2 {
				var id int64
				if err := b.pool.QueryRow(t.Context(), "INSERT INTO postroom.dry_run (handler, held) SELECT handler, id FROM postroom.held RETURNING id").Scan(&id); err != nil {
					t.Fatal(err)
				}
				var told *string
				b.eventually("an answer", func() bool {
					return b.pool.QueryRow(t.Context(), "SELECT outcome::text FROM postroom.dry_run WHERE id = $1", id).Scan(&told) == nil && told != nil
				})
				if !strings.Contains(*told, `"passes"`) || !strings.Contains(*told, "public.effect") {
					t.Errorf("the dry run says %s", *told)
				}
			}
			stop()
			b.wantClean(!slices.Contains(hidden, name), s)
		})
	}
}
