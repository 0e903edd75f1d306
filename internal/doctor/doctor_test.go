package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/doctor"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/schema"
)

func TestMain(m *testing.M) { devtest.Main(m) }

func examine(t *testing.T, db doctor.DB, nc *nats.Conn, cfg doctor.Config) doctor.Report {
	t.Helper()
	report, err := doctor.New(db, nc, cfg).Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// of returns the findings of a check.
func of(report doctor.Report, check string) []doctor.Finding {
	return slices.DeleteFunc(slices.Clone(report.Findings), func(f doctor.Finding) bool { return f.Check != check })
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func wantOne(t *testing.T, report doctor.Report, check string, severity doctor.Severity, parts ...string) {
	t.Helper()
	found := of(report, check)
	if len(found) != 1 || found[0].Severity != severity {
		t.Errorf("%s = %+v, want one %s", check, found, severity)
		return
	}
	for _, part := range parts {
		if !strings.Contains(found[0].Text+"\n"+found[0].Remedy, part) {
			t.Errorf("want %q in %+v", part, found[0])
		}
	}
}

// If a check cannot be made, the report says so, and all other checks are made.
func TestFailedCheckHidesNoOther(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	exec(t, pool, "DROP TABLE postroom.replay CASCADE; DROP TABLE postroom.node CASCADE")
	report := examine(t, pool, devtest.NATS(t), doctor.Config{})
	wantOne(t, report, "replay", doctor.Skipped, "could not be checked", "postroom.replay")
	wantOne(t, report, "dedupe-window", doctor.Skipped, "postroom.node")
	wantOne(t, report, "sequence", doctor.OK)
	wantOne(t, report, "public-rights", doctor.OK)
	wantOne(t, report, "broker", doctor.OK, "NATS 2.")
}

// The owner of the log can write times that no age can be computed of. All checks are made.
func TestInfiniteTimesOfTheLog(t *testing.T) {
	t.Parallel()
	pool, nc := devtest.Pool(t), devtest.NATS(t)
	const log = "INSERT INTO postroom.outbox (digest, event_id, source, type, subject, data) VALUES (decode(repeat('00', 16), 'hex'), 'a', '/shop', 'a', 'a', '')"
	for _, state := range []string{log, "UPDATE postroom.relay SET high = 1, snap = pg_current_snapshot()"} {
		exec(t, pool, state)
		exec(t, pool, "UPDATE postroom.outbox SET created_at = 'infinity'")
		for _, f := range examine(t, pool, nc, doctor.Config{}).Findings {
			if f.Severity == doctor.Skipped && strings.Contains(f.Text, "could not be") {
				t.Errorf("after %s: %+v", state, f)
			}
		}
	}
}

// If a table is locked, only the checks that need it fail, each after a second.
func TestLockedTableCostsOnlyItsChecks(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "LOCK TABLE postroom.replay IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	report := examine(t, pool, nil, doctor.Config{})
	wantOne(t, report, "replay", doctor.Skipped, "55P03", "run it again when no other session locks the tables")
	wantOne(t, report, "sequence", doctor.OK)
}

// asRole returns connections of a new role, with its name.
func asRole(t *testing.T, pool *pgxpool.Pool) (_ *pgxpool.Pool, role string) {
	t.Helper()
	role = fmt.Sprintf("role_%d", time.Now().UnixNano())
	exec(t, pool, "CREATE ROLE "+role)
	t.Cleanup(func() {
		if _, err := pool.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	cfg := pool.Config()
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET ROLE "+role)
		return err
	}
	as, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(as.Close)
	return as, role
}

// If a role may read nothing, the report says what was not checked, and why.
func TestReportSaysWhatARoleCannotSee(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	as, role := asRole(t, pool)
	report := examine(t, as, nil, doctor.Config{})
	for _, check := range []string{"schema-version", "relay", "unknown-handler", "dedupe-window", "dead-events", "replay"} {
		wantOne(t, report, check, doctor.Skipped, "the role "+role+" may not read all that the check needs", "run doctor as the role of an operator", "SELECT postroom.grant_operator('")
	}
	wantOne(t, report, "rights", doctor.Skipped, "cannot write to any of the tables")
	wantOne(t, report, "connections", doctor.OK)

	exec(t, pool, "SELECT postroom.grant_operator('"+role+"')") // as the report said
	for _, f := range examine(t, as, nil, doctor.Config{}).Of(doctor.Skipped) {
		if strings.Contains(f.Text, "may not read") {
			t.Errorf("with the rights of an operator: %+v", f)
		}
	}
}

// A role of one part of Postroom is not taken for the role of another part that writes to the same
// tables, even if it lacks a right.
func TestRoleIsJudgedByItsOwnPart(t *testing.T) {
	t.Parallel()
	tests := []struct{ part, does, revoke string }{
		{"relay", "the relay", "DELETE ON postroom.outbox"},
		{"inbox", "the inbox", "INSERT ON postroom.receipt"},
		{"idempotency", "a guard of requests", "DELETE ON postroom.idempotency"},
		{"sagas", "a saga", "DELETE ON postroom.saga_step"},
		{"webhooks", "a sender of webhooks", "INSERT ON postroom.webhook_endpoint"},
		{"operator", "an operator", "UPDATE ON postroom.replay"},
	}
	for _, tt := range tests {
		t.Run(tt.part, func(t *testing.T) {
			t.Parallel()
			pool := devtest.Pool(t)
			as, role := asRole(t, pool)
			exec(t, pool, fmt.Sprintf("SELECT postroom.grant_%s('%s')", tt.part, role))
			report := examine(t, as, nil, doctor.Config{})
			wantOne(t, report, "rights", doctor.OK, "has the rights of "+tt.does)
			if tt.part == "relay" || tt.part == "operator" {
				wantOne(t, report, "relay", doctor.Note, "no relay has led here, and no event waits for one")
			}
			exec(t, pool, "REVOKE "+tt.revoke+" FROM "+role)
			wantOne(t, examine(t, as, nil, doctor.Config{}), "rights", doctor.Fault, "some of the rights of "+tt.does, tt.revoke, "grant_"+tt.part)
		})
	}
}

// The doctor writes nothing, even if one of its statements tried to write.
func TestExamineWritesNothing(t *testing.T) {
	t.Parallel()
	read := &readOnly{Pool: devtest.Pool(t)}
	examine(t, read, nil, doctor.Config{})
	if !read.only {
		t.Error("a transaction was not read only")
	}
}

// readOnly records whether all transactions with options are read only.
type readOnly struct {
	*pgxpool.Pool

	begun, only bool
}

func (r *readOnly) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	r.only = (r.only || !r.begun) && options.AccessMode == pgx.ReadOnly
	r.begun = true
	return r.Pool.BeginTx(ctx, options)
}

func TestOldTransactions(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "BEGIN; CREATE TABLE p (x int); PREPARE TRANSACTION 'it''s mine'")
	t.Cleanup(func() {
		if _, err := pool.Exec(context.WithoutCancel(t.Context()), "ROLLBACK PREPARED 'it''s mine'"); err != nil {
			t.Error(err)
		}
	})
	var found []doctor.Finding
	devtest.Eventually(t, 10*time.Second, "both to be old", func() bool {
		found = of(examine(t, pool, nil, doctor.Config{OldTransaction: 50 * time.Millisecond}), "vacuum")
		return len(found) >= 2
	})
	var text string
	for _, f := range found {
		text += string(f.Severity) + f.Text + f.Remedy
	}
	for _, want := range []string{"a transaction has been open for", "SELECT pg_terminate_backend(", "neither committed nor rolled back", "ROLLBACK PREPARED 'it''s mine'"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in %s", want, text)
		}
	}
	wantOne(t, examine(t, pool, nil, doctor.Config{}), "vacuum", doctor.OK)
}

// The test has an account at its limit, and an account without JetStream.
func TestAccounts(t *testing.T) {
	t.Parallel()
	server, err := devstack.StartNATS(t.Context(), devstack.NATSConfig{Options: `accounts {
		full { jetstream: {max_streams: 1}, users: [{user: full, password: x}] }
		none { users: [{user: none, password: x}] }
		mute { jetstream: enabled, users: [{user: mute, password: x, permissions: {publish: "$JS.API.INFO"}}] } }`})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	connect := func(user string) *nats.Conn {
		nc, err := nats.Connect(server.URL(), append(natsjs.ConnectOptions(), nats.UserInfo(user, "x"))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	full := connect("full")
	if err := natsjs.EnsureStream(t.Context(), full, jetstream.StreamConfig{Name: "A", Subjects: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	pool := devtest.Pool(t)
	wantOne(t, examine(t, pool, full, doctor.Config{}), "broker", doctor.Warning, "1 of 1 streams are used", "raise the limit of the account")
	wantOne(t, examine(t, pool, connect("none"), doctor.Config{}), "broker", doctor.Fault, "there is no JetStream on this connection", "the account of this user has no JetStream")

	report := examine(t, pool, connect("mute"), doctor.Config{Streams: []string{"A"}})
	wantOne(t, report, "broker", doctor.OK)
	wantOne(t, report, "streams", doctor.Skipped, "may this user publish to $JS.API.INFO")
}

func TestFaultsOfTheConfig(t *testing.T) {
	if _, err := doctor.New(nil, nil, doctor.Config{Schema: "a b"}).Examine(t.Context()); !errors.Is(err, schema.ErrInvalidName) {
		t.Errorf("Examine = %v, want ErrInvalidName", err)
	}
}

func TestAnotherSchema(t *testing.T) {
	t.Parallel()
	pool := devtest.EmptyPool(t)
	if _, err := schema.Migrate(t.Context(), pool, "mail"); err != nil {
		t.Fatal(err)
	}
	report := examine(t, pool, devtest.NATS(t), doctor.Config{Schema: "mail", ProducerRoles: []string{"postgres"}})
	for _, f := range report.Of(doctor.Skipped) {
		if f.Check != "broker-clock" { // no stream is in use
			t.Errorf("skipped: %+v", f)
		}
	}
	wantOne(t, report, "producer-rights", doctor.Fault, "a superuser, or owns the tables", "mail.grant_producer")
}

func TestClocks(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	if got := doctor.Off(at(0), at(2000), at(100), at(0), at(0), at(0)); got != 1900*time.Millisecond {
		t.Errorf("a clock that said 2s between 0s and 0.1s is off by %s, want 1.9s at the least", got)
	}
	if got := doctor.Off(at(0), at(50), at(5000), at(0), at(0), at(0)); got != 0 {
		t.Errorf("a slow answer makes a clock wrong by %s", got)
	}
	tests := []struct {
		ahead, doubt time.Duration
		want         doctor.Severity
	}{
		{0, 0, doctor.OK},
		{900 * time.Millisecond, 0, doctor.OK},
		{1100 * time.Millisecond, 0, doctor.Warning},
		{-1100 * time.Millisecond, 0, doctor.Warning},
		{1100 * time.Millisecond, 200 * time.Millisecond, doctor.OK},
		{61 * time.Second, 0, doctor.Fault},
		{-61 * time.Second, 0, doctor.Fault},
	}
	for _, tt := range tests {
		if got := doctor.CompareClocks(tt.ahead, tt.doubt); got.Severity != tt.want || got.Text == "" {
			t.Errorf("%s ahead, give or take %s: %+v, want %s", tt.ahead, tt.doubt, got, tt.want)
		}
	}
}

// The doctor names row-level security, and does not say that there are no tables.
func TestRowSecurityIsNamed(t *testing.T) {
	owner := devtest.Pool(t)
	pool, role := devtest.RolePool(t, owner)
	exec(t, owner, "SELECT postroom.grant_relay('"+role+"'), postroom.grant_inbox('"+role+"'), postroom.grant_operator('"+role+"')")
	exec(t, owner, "ALTER TABLE postroom.inbox ENABLE ROW LEVEL SECURITY")
	report := examine(t, pool, nil, doctor.Config{})
	wantOne(t, report, "schema-version", doctor.Fault, "row-level security is active", "on inbox", "\nas the owner of the tables run", "ALTER ROLE "+role+" BYPASSRLS")
	for _, f := range report.Findings {
		if f.Severity == doctor.Fault && f.Check != "schema-version" && f.Check != "durability" || strings.Contains(f.Remedy, "grant_") {
			t.Errorf("another fault follows: %+v", f)
		}
	}
}

// The doctor names a broker that is too old.
func TestBrokerTooOld(t *testing.T) {
	nc, err := nats.Connect(devtest.NATSOfVersion(t, "2.10.26"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	wantOne(t, examine(t, devtest.Pool(t), nc, doctor.Config{}), "broker", doctor.Fault, "has version 2.10.26", "\nuse NATS 2.10.27 or later")
}

func TestTimeouts(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "900": 900 * time.Millisecond, "2s": 2 * time.Second, "5min": 5 * time.Minute, "1 h": time.Hour} {
		if got, ok := doctor.Milliseconds(text); got != want || !ok {
			t.Errorf("%q = %s, %t, want %s", text, got, ok, want)
		}
	}
}

// The time that the database takes to answer is compared with the relays' lease.
func TestRoundTripAndLease(t *testing.T) {
	for _, tt := range []struct {
		roundTrip, chosen time.Duration
		want              doctor.Severity
		says              string
	}{
		{time.Millisecond, 0, doctor.OK, "time enough"},
		{200 * time.Millisecond, 0, doctor.OK, "time enough"},
		{1500 * time.Millisecond, 0, doctor.Warning, "relays lengthen their lease to 15s"},
		{4 * time.Second, 0, doctor.Fault, "give them a lease of 40s or more"},
		{1500 * time.Millisecond, 5 * time.Second, doctor.Fault, "give relays a lease of 15s or more"},
		{1500 * time.Millisecond, time.Minute, doctor.OK, "time enough"},
	} {
		f := doctor.CompareLease(tt.roundTrip, tt.chosen)
		if f.Severity != tt.want || !strings.Contains(f.Text+" "+f.Remedy, tt.says) {
			t.Errorf("%s with a lease of %s: %+v, want %s, and %q", tt.roundTrip, tt.chosen, f, tt.want, tt.says)
		}
	}
	found := of(examine(t, devtest.Pool(t), nil, doctor.Config{}), "round-trip")
	if len(found) != 1 || !strings.Contains(found[0].Text, "to the database and back") {
		t.Errorf("findings are %+v", found)
	}
}

// The doctor finds a pooler that keeps no prepared statements, although it prepares none itself. If
// programs prepare none, because of their URL or of a setting in Go, all is well.
func TestPoolers(t *testing.T) {
	t.Parallel()
	direct := devtest.DatabaseURL(t)
	through := devtest.PoolerURL(t, direct, devstack.PoolerConfig{Size: 3})
	for name, tt := range map[string]struct {
		url  string
		want doctor.Severity
	}{
		"no pooler":            {direct, doctor.OK},
		"a session pooler":     {devtest.PoolerURL(t, direct, devstack.PoolerConfig{Session: true}), doctor.OK},
		"a transaction pooler": {through, doctor.Warning},
		"with its mode":        {through + "&default_query_exec_mode=exec", doctor.OK},
	} {
		cfg, err := pgxpool.ParseConfig(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		written := cfg.ConnConfig.DefaultQueryExecMode
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // as the command does
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		for range 2 { // the first examination left nothing that the second finds
			found := of(examine(t, pool, nil, doctor.Config{ExecMode: written}), "pooler")
			if len(found) != 1 || found[0].Severity != tt.want {
				t.Errorf("%s: %+v, want %s", name, found, tt.want)
			}
			if tt.want == doctor.Warning && !strings.Contains(found[0].Remedy, "default_query_exec_mode=exec") {
				t.Errorf("%s: the remedy is %q, want the parameter", name, found[0].Remedy)
			}
		}
		wantOne(t, examine(t, pool, nil, doctor.Config{}), "pooler", doctor.OK) // the program that has this pool prepares none
	}
}
