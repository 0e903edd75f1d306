package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/schema"
)

// Commands, by the servers that they need. Commands of onBroker need the database too. Commands of
// onBoth report a broker that cannot be reached, and go on. 'stream ensure' needs only the broker.
var (
	onDatabase = []string{
		"migrate status", "dead groups", "dead list", "dead show 1", "replay list", "dead replay --handler h --reason x --yes", "dead discard 1 --reason x",
		"dead export", "replay resume 1", "dead edit 1 --data /dev/null --reason x", "republish --since 1h --reason x --yes", "republish list", "republish cancel 1",
		"audit", "keys", "tables",
	}
	onBoth   = []string{"status", "doctor", "handlers", "events show x"}
	onBroker = []string{"reconcile", "stream check"}
	ensure   = "stream ensure SETUPS --subjects setups.>"
)

// badSetup is a fault of a set-up, and what commands say about it.
type badSetup struct {
	name           string
	database, nats string
	commands       []string
	code           int
	says           []string            // cause and remedy, in what each command prints
	but            map[string][]string // what these commands print instead
	codes          map[string]int      // the exit status of these commands, if it is not code
	relay          []string            // parts of a relay's log or error; empty: no relay is run
	relayEnds      bool                // the relay ends with exitFailed, because a person has to correct something
}

// badSetups are set-ups that lack something.
func badSetups(t *testing.T) []badSetup {
	t.Helper()
	good, broker := devtest.Pool(t), devtest.NATSURL(t)
	fine := databaseURL(good)
	_, role := devtest.RolePool(t, good)
	all := append(append(append([]string{}, onDatabase...), onBoth...), onBroker...)
	unanswered := []string{"the broker", "(POSTROOM_NATS_URL): is it running, and is the address right?"}
	refused := []string{"(POSTROOM_NATS_URL): it refuses the user; see --nats-creds", "Authorization Violation"}
	without := []string{"the server runs without JetStream", "start nats-server with -js"}
	mute := []string{"Permissions Violation for Subscription to", "give this NATS user permission to publish to $JS.API.> and to subscribe to _INBOX.>"}
	weak, noJetStream := weakNATS(t), devtest.PlainNATS(t, "jetstream: disabled").ConnectedUrl()
	missing := []string{"schema is older than this code: postroom of database ", " has version 0 (no tables)", "run 'postroom migrate up'"}
	older := []string{"schema is older than this code: postroom of database ", " has version 2 and", "run 'postroom migrate up'"}
	rights := []string{"permission denied for schema postroom (SQLSTATE 42501)", "as the owner of the tables run: SELECT postroom.grant_", "('" + role + "')"}
	return []badSetup{
		{
			name: "no PostgreSQL", database: "postgres://me:s3cret@127.0.0.1:1/shop?sslmode=disable", nats: broker, commands: append([]string{"migrate up"}, all...), code: exitFailed,
			says:  []string{`connect to database "shop" at 127.0.0.1:1 as "me" (POSTROOM_DATABASE_URL)`, "is the server running, and is the address right?"},
			relay: []string{"the relay waits for its database", "is the server running, and is the address right?"},
		},
		{
			name: "a wrong password", database: wrongPassword(t), nats: broker, commands: append([]string{"migrate up"}, all...), code: exitFailed,
			says:  []string{"the server refuses the user or the password; correct the URL", "password authentication failed"},
			relay: []string{"the relay waits for its database", "correct the URL"},
		},
		{
			name: "a database without the tables", database: databaseURL(devtest.EmptyPool(t)), nats: broker, commands: all, code: exitFailed, says: missing,
			but: map[string][]string{
				"migrate status": {" migrations pending: run 'postroom migrate up'"},
				"doctor":         {"there are no tables in the schema postroom of database ", "to do: postroom migrate up"},
			},
			codes: map[string]int{"migrate status": exitTodo, "doctor": exitTodo}, relay: missing, relayEnds: true,
		},
		{
			name: "tables of an older version", database: olderTables(t), nats: broker, commands: all, code: exitFailed, says: older,
			but: map[string][]string{
				"migrate status": {" migrations pending: run 'postroom migrate up'"},
				"doctor":         {" are of version 2 and this program is of version", "to do: postroom migrate up", "not checked: the tables are of version 2, and do not have what it needs\n"},
			},
			codes: map[string]int{"migrate status": exitTodo, "doctor": exitTodo}, relay: older, relayEnds: true,
		},
		{
			name: "a role without rights", database: asRole(good, role), nats: broker, commands: all, code: exitFailed, says: rights,
			but: map[string][]string{"migrate status": {"permission denied", "run it as the owner of the schema postroom of database ", ", who migrates"}, "doctor": {
				"not checked: the role " + role + " may not read all that the check needs", "the owner of the tables grants it: SELECT postroom.grant_operator('…')",
			}},
			codes: map[string]int{"doctor": exitTodo}, relay: rights, relayEnds: true,
		},
		{
			name: "no broker", database: fine, nats: "nats://127.0.0.1:1", commands: append([]string{ensure}, append(onBroker, onBoth...)...), code: exitFailed, says: unanswered,
			but:   map[string][]string{"events show x": {"nothing is known about this event", "the broker was not asked"}},
			codes: map[string]int{"status": exitTodo, "doctor": exitTodo}, relay: []string{"no connection to the broker"},
		},
		{
			name: "a broker that refuses the user", database: fine, nats: strings.Replace(weak, "weak:x@", "weak:wrong@", 1), commands: append([]string{ensure}, append(onBroker, onBoth[:3]...)...),
			code: exitFailed, says: refused,
			codes: map[string]int{"status": exitTodo, "doctor": exitTodo}, relay: []string{"Authorization Violation", "the broker refuses the user: correct its password or credentials"},
		},
		{
			name: "a broker without JetStream", database: fine, nats: noJetStream, commands: append([]string{ensure, "status", "doctor"}, onBroker...), code: exitFailed, says: without,
			but:   map[string][]string{"status": {"! the broker could not be asked: the server runs without JetStream, or the servers that have it are away\n  start nats-server with -js\n"}},
			codes: map[string]int{"status": exitTodo, "doctor": exitTodo}, relay: without,
		},
		{
			name: "a user without permissions", database: fine, nats: weak, commands: append([]string{ensure, "status"}, onBroker...), code: exitFailed, says: mute,
			codes: map[string]int{"status": exitTodo}, relay: []string{"the broker does not let the relay do that", "give the relay's NATS user permission to publish"},
		},
		{
			name: "no stream", database: fine, nats: broker, commands: []string{"stream check", "reconcile", "reconcile --stream NONE"}, code: exitFailed,
			but: map[string][]string{
				"stream check":            {"nothing was compared", "make a stream with 'postroom stream ensure'"},
				"reconcile":               {"no relay of this version has published anything yet: name streams with --stream"},
				"reconcile --stream NONE": {"stream NONE does not exist", "create it with 'postroom stream ensure'"},
			},
			codes: map[string]int{"stream check": exitOK, "reconcile --stream NONE": exitTodo},
		},
	}
}

// If a set-up lacks something, every command says in a short time what is wrong and what to do,
// and ends with the status that it promises.
func TestCommandsReportBadSetups(t *testing.T) {
	t.Parallel()
	for _, s := range badSetups(t) {
		env := environment{"POSTROOM_DATABASE_URL": s.database, "POSTROOM_NATS_URL": s.nats}
		for _, command := range s.commands {
			t.Run(s.name+"/"+command, func(t *testing.T) {
				t.Parallel()
				code, says := s.code, s.says
				if other, ok := s.codes[command]; ok {
					code = other
				}
				if other, ok := s.but[command]; ok {
					says = other
				}
				began := time.Now()
				r := postroom(t, env, strings.Fields(command)...).want(t, code).says(t, says...)
				if took := time.Since(began); took > devtest.Patience(t, 20*time.Second) {
					t.Errorf("it took %s", took)
				}
				if said := r.out + r.errors; strings.Contains(said, "context canceled") || strings.Contains(said, "s3cret") {
					t.Error(said)
				}
			})
		}
		if len(s.relay) > 0 {
			t.Run(s.name+"/relay", func(t *testing.T) { t.Parallel(); wantRelayOutput(t, env, s.relay, s.relayEnds) })
		}
	}
}

// wantRelayOutput runs a relay until its output has all wanted parts, or the relay has ended. If ends
// is true, the relay has to end by itself.
func wantRelayOutput(t *testing.T, env environment, says []string, ends bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), devtest.Patience(t, 20*time.Second))
	defer cancel()
	log := &outputWatcher{wanted: says, found: cancel}
	if ends {
		log.found = func() {}
	}
	if code := run(ctx, []string{"relay"}, func(name string) string { return env[name] }, log, log); ends && code != exitFailed {
		t.Errorf("exit status %d, want %d", code, exitFailed)
	}
	for _, part := range says {
		if !strings.Contains(log.String(), part) {
			t.Errorf("want %q in\n%s", part, log)
		}
	}
}

// outputWatcher collects the output of a program, and calls found when the output has all wanted parts. A
// closed connection may still write to it after the program has ended.
type outputWatcher struct {
	mu   sync.Mutex
	text strings.Builder

	wanted []string
	found  func()
}

func (w *outputWatcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.text.Write(p)
	for _, part := range w.wanted {
		if !strings.Contains(w.text.String(), part) {
			return n, err
		}
	}
	w.found()
	return n, err
}

func (w *outputWatcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// weakNATS returns the URL of a broker for a user that may do nothing.
func weakNATS(t *testing.T) string {
	t.Helper()
	nc := devtest.PlainNATS(t, `jetstream: enabled
		authorization { users: [ {user: admin, password: x}, {user: weak, password: x, permissions: {publish: ["nothing"], subscribe: ["nothing"]}} ] }`,
		nats.UserInfo("admin", "x"))
	return strings.Replace(nc.ConnectedUrl(), "nats://", "nats://weak:x@", 1)
}

// olderTables returns the URL of a database with the tables of version 2.
func olderTables(t *testing.T) string {
	t.Helper()
	pool := devtest.EmptyPool(t)
	script, err := schema.Print("")
	if err != nil {
		t.Fatal(err)
	}
	script, _, _ = strings.Cut(script, "\n-- Migration 3:")
	if _, err := pool.Exec(t.Context(), script+"\nCOMMIT"); err != nil {
		t.Fatal(err)
	}
	return databaseURL(pool)
}

// asRole returns the URL of a pool's database for another role, without a password.
func asRole(pool *pgxpool.Pool, role string) string {
	c := pool.Config().ConnConfig
	return fmt.Sprintf("postgres://%s:s3cret@/%s?host=%s&port=%d&sslmode=disable", role, c.Database, c.Host, c.Port)
}

// wrongPassword returns the URL of a server that requires a password. The password in the URL is
// wrong.
func wrongPassword(t *testing.T) string {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), devtest.OwnPostgres(t, devstack.Config{}).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var file string
	if err := pool.QueryRow(t.Context(), "SHOW hba_file").Scan(&file); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"CREATE ROLE clerk LOGIN PASSWORD 'right'",
		"COPY (SELECT unnest(ARRAY['host all clerk all scram-sha-256', 'local all clerk scram-sha-256', 'local all all trust', 'host all all all trust'])) TO '" + file + "'",
		"SELECT pg_reload_conf()",
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return asRole(pool, "clerk")
}
