package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/internal/remedy"
)

// checkTimeout is the time limit of each check.
const checkTimeout = 15 * time.Second

// A requirement is what a check needs.
type requirement int

const (
	tables requirement = 1 << iota // the tables of Postroom
	broker                         // a connection to NATS
)

// A check is one check of an examination.
type check struct {
	name  string
	needs requirement
	fine  string // the text of the finding if nothing is wrong
	run   func(ctx context.Context, e *examination) error
}

// The list checks has all checks, in the order in which they run.
var checks = slices.Concat(databaseChecks, logChecks, handlerChecks, brokerChecks)

// An examination is one run of all checks. Only one goroutine uses it.
type examination struct {
	d        *Doctor
	findings []Finding
	current  check
	role     string // the current role of the session
	noTables string // why the tables cannot be examined
	outdated string // why some tables cannot be examined

	clock     lazy[clock]
	settings  lazy[map[string]string]
	roles     lazy[[]roleSetting]
	subs      lazy[[]subscription]
	processes lazy[[]process]
	streams   lazy[[]*stream]
	losses    lazy[Losses]
	status    lazy[*inspect.Status]
	subjects  lazy[[]usedSubject]
}

// lazy is a value that several checks need. The first check that needs it loads it.
type lazy[T any] struct {
	fetched bool
	value   T
	err     error
}

func (l *lazy[T]) get(fetch func() (T, error)) (T, error) {
	if !l.fetched {
		l.value, l.err = fetch()
		l.fetched = true
	}
	return l.value, l.err
}

// runCheck runs one check. If the check adds no finding, runCheck adds one.
func (e *examination) runCheck(ctx context.Context, c check) {
	e.current = c
	if c.needs&tables != 0 && e.noTables != "" {
		e.skip("", "", "not checked: %s", e.noTables)
		return
	}
	if c.needs&broker != 0 && (e.d.nc == nil || !e.d.nc.IsConnected()) {
		e.skip("", "give the address of the broker: --nats-url", "not checked: there is no connection to the broker")
		return
	}
	had := len(e.findings)
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := c.run(ctx, e)
	switch {
	case err != nil && remedy.IsDenied(err):
		e.skip("", e.remedyOf(err), "not checked: the role %s may not read all that the check needs", e.role)
	case err != nil && e.outdated != "" && remedy.IsUndefined(err):
		e.skip("", "", "not checked: %s", e.outdated)
	case err != nil:
		e.skip("", e.remedyOf(err), "could not be checked: %v", err)
	}
	if len(e.findings) == had {
		e.add(OK, "", "", "%s", c.fine)
	}
}

func (e *examination) fault(subject, remedy, format string, args ...any) {
	e.add(Fault, subject, remedy, format, args...)
}

func (e *examination) warn(subject, remedy, format string, args ...any) {
	e.add(Warning, subject, remedy, format, args...)
}

func (e *examination) note(subject, format string, args ...any) {
	e.add(Note, subject, "", format, args...)
}

func (e *examination) skip(subject, remedy, format string, args ...any) {
	e.add(Skipped, subject, remedy, format, args...)
}

func (e *examination) ok(subject, format string, args ...any) {
	e.add(OK, subject, "", format, args...)
}

func (e *examination) add(s Severity, subject, remedy, format string, args ...any) {
	f := Finding{Check: e.current.name, Severity: s, Subject: subject, Text: fmt.Sprintf(format, args...), Remedy: remedy}
	ignored := slices.ContainsFunc(e.d.cfg.Ignore, func(i string) bool { return i == f.Check || i == f.Check+":"+f.Subject })
	if ignored && s != OK {
		f.Severity, f.Remedy, f.Text = OK, "", "ignored: "+f.Text
	}
	e.findings = append(e.findings, f)
}

// report adds a fault or a warning.
func (e *examination) report(fault bool, subject, remedy, format string, args ...any) {
	s := Warning
	if fault {
		s = Fault
	}
	e.add(s, subject, remedy, format, args...)
}

// remedyOf says what a failed check needs.
func (e *examination) remedyOf(err error) string {
	var server *pgconn.PgError
	var explained *remedy.Error
	err = remedy.Explain(err, remedy.Use{Grant: "operator", Schema: e.d.name, DB: e.d.db})
	switch {
	case remedy.IsDenied(err):
		return fmt.Sprintf("run doctor as the role of an operator too, who may read all tables; the owner of the tables grants it: SELECT %s.grant_operator('…'), with that role", e.d.name)
	case errors.As(err, &explained):
		return explained.Do
	case errors.As(err, &server) && (server.Code == "55P03" || server.Code == "57014"):
		return "run it again when no other session locks the tables, as a migration does"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrPermissionViolation):
		return "the broker does not answer a user without permission: may this user publish to $JS.API.INFO, $JS.API.STREAM.> and $JS.API.CONSUMER.>, and subscribe to _INBOX.>?"
	}
	return "see the error; the other checks were made"
}

// read runs f in a read-only transaction that waits at most a second for a lock.
func (e *examination) read(ctx context.Context, f func(tx pgx.Tx) error) error {
	return e.d.read(ctx, f)
}

func (d *Doctor) read(ctx context.Context, f func(tx pgx.Tx) error) error {
	tx, err := d.look(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // a read-only transaction has nothing to commit
	return f(tx)
}

// look begins a transaction that waits at most a second for a lock.
func (d *Doctor) look(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	tx, err := d.db.BeginTx(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	if _, err := tx.Exec(ctx, d.sql.Begin); err != nil {
		_ = tx.Rollback(context.WithoutCancel(ctx)) // nothing to commit
		return nil, fmt.Errorf("begin to look at the database: %w", err)
	}
	return tx, nil
}

// query runs a statement whose columns are the fields of T, in the same order.
func query[T any](ctx context.Context, e *examination, sql string, args ...any) ([]T, error) {
	var all []T
	err := e.read(ctx, func(tx pgx.Tx) error {
		found, _ := tx.Query(ctx, sql, args...) // CollectRows reports the error
		var err error
		all, err = pgx.CollectRows(found, pgx.RowToStructByPos[T])
		return err
	})
	return all, err
}

// queryOne is query for a statement that must return exactly one row.
func queryOne[T any](ctx context.Context, e *examination, sql string, args ...any) (T, error) {
	all, err := query[T](ctx, e, sql, args...)
	if err != nil || len(all) == 1 {
		return firstOrZero(all), err
	}
	return firstOrZero(all), fmt.Errorf("%d rows, want one", len(all))
}

func firstOrZero[T any](all []T) (one T) {
	if len(all) > 0 {
		one = all[0]
	}
	return one
}

// firstOf lists the first few names.
func firstOf(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// duration formats a duration for a person.
func duration(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%.1f days", d.Hours()/24)
	case d >= time.Minute:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// countOf returns "1 event", "2 events".
func countOf[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
