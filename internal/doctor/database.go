package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/schema"
)

// databaseChecks examine the database server and its settings.
var databaseChecks = []check{
	{"schema-version", 0, "", checkSchema},
	{"database-clock", 0, "", checkDatabaseClock},
	{"round-trip", 0, "", checkRoundTrip},
	{"dates", tables, "no time that Postroom wrote lies further ahead than it should", checkDates},
	{"durability", 0, "fsync, full_page_writes and synchronous_commit are on", checkDurability},
	{"isolation", tables, "transactions are read committed by default", checkIsolation},
	{"timeouts", 0, "no timeout of the server is so short that it breaks handlers", checkTimeouts},
	{"connections", 0, "", checkConnections},
	{"pooler", 0, "prepared statements work: there is no pooler, or it keeps them", checkPooler},
	{"vacuum", 0, "no transaction, prepared transaction or replication slot hinders vacuum", checkVacuum},
	{"autovacuum", tables, "autovacuum is on, for the server and for each table", checkAutovacuum},
	{"rights", tables, "this role has the rights of a relay and an inbox", checkRights},
	{"public-rights", tables, "PUBLIC has no rights on the tables, functions and types", checkPublic},
	{"producer-rights", tables, "", checkProducers},
}

// checkSchema examines the version of the tables. It also records for later checks whether the
// tables exist.
func checkSchema(ctx context.Context, e *examination) error {
	d := e.d
	required := schema.Require(ctx, d.db, d.name)
	for what, unfit := range map[string]error{"the encoding of the database": schema.ErrEncoding, "row-level security": schema.ErrRowSecurity} {
		//guard:the-doctor-names-a-database-that-does-not-fit false
		if errors.Is(required, unfit) {
			e.noTables = what + " does not allow it"
			var advised *remedy.Error
			errors.As(required, &advised)
			e.fault(d.name, advised.Do, "%v", advised.Err)
			return nil
		}
	}
	if required != nil && !errors.Is(required, schema.ErrTooNew) && !errors.Is(required, schema.ErrOutdated) {
		return required
	}
	steps, err := schema.Status(ctx, d.db, d.name)
	if err != nil {
		return err
	}
	applied := 0
	for _, s := range steps {
		if !s.AppliedAt.IsZero() {
			applied++
		}
	}
	migrate := "postroom migrate up"
	if d.name != schema.DefaultName {
		migrate += " --schema " + d.name
	}
	switch {
	case errors.Is(required, schema.ErrTooNew):
		e.fault(d.name, "use a newer postroom", "%v", required)
	case errors.Is(required, schema.ErrOutdated) && applied == 0:
		e.noTables = "there are no tables in the schema " + d.name
		e.fault(d.name, migrate+", or name the right database or schema", "there are no tables in the schema %s of %s", d.name, remedy.DatabaseOf(d.db))
	case required != nil:
		e.outdated = fmt.Sprintf("the tables are of version %d, and do not have what it needs", applied)
		e.fault(d.name, migrate, "the tables of %s are of version %d and this program is of version %d", remedy.DatabaseOf(d.db), applied, len(steps))
	default:
		e.ok(d.name, "the tables are of version %d or later: this program works with them", len(steps))
	}
	return nil
}

// settingNames are the names of the server's settings that the checks use.
var settingNames = []string{
	"fsync", "full_page_writes", "data_checksums", "synchronous_commit", "default_transaction_isolation",
	"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "transaction_timeout",
	"autovacuum", "track_counts", "server_version_num",
}

// roleSetting is a setting of one role or of the database.
type roleSetting struct{ Role, Name, Value string }

func (s roleSetting) of() string {
	if s.Role == "" {
		return "this database"
	}
	return "role " + s.Role
}

func checkDurability(ctx context.Context, e *examination) error {
	own, err := e.loadSettings(ctx)
	if err != nil {
		return err
	}
	for name, lost := range map[string]string{
		"fsync":            "a crash of the machine can lose acknowledged commits, or damage the whole database",
		"full_page_writes": "a crash of the machine can leave half-written pages",
	} {
		if own[name] == "off" {
			e.fault(name, fmt.Sprintf("ALTER SYSTEM SET %s = on; SELECT pg_reload_conf()", name), "%s is off: %s", name, lost)
		}
	}
	err = e.eachSetting(ctx, "synchronous_commit", func(of, value string) {
		if !isOff(value) {
			return
		}
		where := "for this role, this database or the server"
		if of != "" {
			where = "for " + of
		}
		e.fault(of, "set it to on: ALTER ROLE … or ALTER DATABASE … RESET synchronous_commit, or ALTER SYSTEM; it may be off for the role of a relay, which sets it itself",
			"synchronous_commit is off %s: a crash of the server loses acknowledged commits, and with them effects of events that the broker does not deliver again", where)
	})
	if own["data_checksums"] == "off" && err == nil {
		e.ok("data_checksums", "data checksums are off: PostgreSQL does not notice if a disk returns wrong data (pg_checksums --enable)")
	}
	return err
}

// sameSetting reports whether two values of a setting mean the same.
func sameSetting(a, b string) bool {
	x, isTime := milliseconds(a)
	y, areTimes := milliseconds(b)
	return a == b || isOff(a) && isOff(b) || isTime && areTimes && x == y
}

func isOff(value string) bool {
	return slices.Contains([]string{"off", "false", "no", "0"}, strings.ToLower(value))
}

// checkIsolation looks for isolation levels that ordered handlers refuse.
func checkIsolation(ctx context.Context, e *examination) error {
	subs, err := e.loadSubscriptions(ctx)
	if err != nil {
		return err
	}
	ordered := slices.ContainsFunc(subs, func(s subscription) bool { return s.Ordered })
	return e.eachSetting(ctx, "default_transaction_isolation", func(of, value string) {
		switch where := strings.TrimSpace(of + " has"); {
		case value == "read committed":
		case ordered:
			e.fault(of, "ALTER ROLE … or ALTER DATABASE … SET default_transaction_isolation = 'read committed', for the roles of inboxes",
				"%s the isolation level %s by default, and there are ordered handlers: a transaction that waited for a key would not see its latest state, so inboxes refuse to start", where, value)
		default:
			e.ok(of, "%s the isolation level %s by default; an ordered handler would refuse it", where, value)
		}
	})
}

// The list timeouts has settings of the server that end the work of a handler. The field least is
// the shortest value that leaves a handler enough time. An inbox sets its own lock_timeout and
// idle_in_transaction_session_timeout in the transactions of handlers, but not in its other
// transactions.
var timeouts = []struct {
	name  string
	least time.Duration
	ends  string
}{
	{"statement_timeout", 5 * time.Second, "a statement of a handler that takes longer fails, and costs an attempt"},
	{"transaction_timeout", 30 * time.Second, "a handler that takes longer loses its connection"},
	{"lock_timeout", time.Second, "a statement that waits longer for a row of another process fails"},
	{"idle_in_transaction_session_timeout", 5 * time.Second, "a transaction that waits longer for its program loses its connection"},
}

func checkTimeouts(ctx context.Context, e *examination) error {
	for _, t := range timeouts {
		err := e.eachSetting(ctx, t.name, func(of, value string) {
			set, ok := milliseconds(value)
			if ok && set > 0 && set < t.least {
				e.warn(of, fmt.Sprintf("ALTER ROLE … SET %s = '%s' or more, or 0, for the roles of inboxes and producers", t.name, t.least),
					"%s %s of %s: %s", strings.TrimSpace(of+" has"), t.name, duration(set), t.ends)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// milliseconds parses a timeout. A value in pg_settings has no unit and is in milliseconds. A value
// that a person set for a role or a database may have a unit, such as 5s.
func milliseconds(value string) (time.Duration, bool) {
	value = strings.ReplaceAll(value, " ", "")
	if n, err := strconv.Atoi(value); err == nil {
		return time.Duration(n) * time.Millisecond, true
	}
	d, err := time.ParseDuration(strings.Replace(value, "min", "m", 1))
	return d, err == nil
}

// nearlyFull is the share of a limit above which the doctor warns.
const nearlyFull = 0.9

func checkConnections(ctx context.Context, e *examination) error {
	type count struct{ Used, Most int64 }
	c, err := queryOne[count](ctx, e, e.d.sql.Connections)
	if err != nil {
		return err
	}
	if float64(c.Used) > nearlyFull*float64(c.Most) {
		e.warn("", "close some connections, use a pooler, or raise max_connections: a process without a connection handles no events",
			"%d of %d connections are in use", c.Used, c.Most)
		return nil
	}
	e.ok("", "%d of %d connections are in use", c.Used, c.Most)
	return nil
}

func checkVacuum(ctx context.Context, e *examination) error {
	type obstacle struct {
		Kind, Name string
		Age        float64
		Bytes      int64
		Handle     string
	}
	found, err := query[obstacle](ctx, e, e.d.sql.VacuumBlockers, e.d.cfg.OldTransaction)
	if err != nil {
		return err
	}
	const so = "until it ends, removed rows of the log and the inbox still take space and time"
	for _, o := range found {
		switch o.Kind {
		case "transaction":
			e.warn(o.Name, "SELECT pg_terminate_backend("+o.Handle+"), if it was forgotten", "a transaction has been open for %s: %s", duration(seconds(o.Age)), so)
		case "prepared":
			e.warn(o.Name, fmt.Sprintf("COMMIT PREPARED or ROLLBACK PREPARED '%s'", strings.ReplaceAll(o.Handle, "'", "''")),
				"a transaction has been prepared for %s, and neither committed nor rolled back: %s", duration(seconds(o.Age)), so)
		case "slot":
			e.warn(o.Name, fmt.Sprintf("start the program that reads it, or SELECT pg_drop_replication_slot('%s')", strings.ReplaceAll(o.Handle, "'", "''")),
				"no client reads this replication slot: it makes the server keep %d MiB of its log, and perhaps removed rows", o.Bytes>>20)
		case "hidden":
			e.skip("", "GRANT pg_read_all_stats to this role", "%s of other roles could not be examined: one of them may have an old transaction", countOf(o.Bytes, "session"))
		}
	}
	return nil
}

func checkAutovacuum(ctx context.Context, e *examination) error {
	own, err := e.loadSettings(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"autovacuum", "track_counts"} {
		if own[name] == "off" {
			e.fault(name, fmt.Sprintf("ALTER SYSTEM SET %s = on; SELECT pg_reload_conf()", name),
				"%s is off: the space of removed rows is never used again, and every statement on the tables gets slower", name)
		}
	}
	off, err := query[struct{ Table string }](ctx, e, e.d.sql.Unvacuumed)
	for _, t := range off {
		e.fault(t.Table, fmt.Sprintf("ALTER TABLE %s.%s RESET (autovacuum_enabled)", e.d.name, t.Table),
			"autovacuum is off for the table %s: the space of removed rows is never used again", t.Table)
	}
	return err
}
