// Package inspect answers questions about the state of a system: which events wait and why, which
// relay leads, which processes read, what happened to an event, and what operators did. Use it to
// build a command line or a console.
//
// It changes no data: its transactions are read-only. Statements on tables that can be large use an
// index, and nearly all of them stop at a limit. So most answers take well under a second. Events,
// Tree and the broker can take seconds. If a page, a tree or a count of held events stopped at a
// limit, the answer says so. No answer contains the data of an event.
package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/eventsearch"
	"github.com/postroom/postroom/internal/filters"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/remedy"
	"github.com/postroom/postroom/internal/sagas"
	"github.com/postroom/postroom/internal/snapshot"
	"github.com/postroom/postroom/schema"
)

// DB is a *pgxpool.Pool or a *pgx.Conn. It is an interface to allow both.
type DB interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Config says which tables to read. The zero value is ready to use.
type Config struct {
	// Schema is the database schema that holds Postroom's tables.
	//
	// Defaults to "postroom".
	Schema string

	// Retention is how long the relay keeps published events in the log. [Inspector.Tables] uses it
	// to compute how long the removal of the oldest event has been overdue.
	//
	// Defaults to 72 hours, as relay.Config.Retention does.
	Retention time.Duration
}

// Inspector answers questions. It is safe for concurrent use if its DB is.
type Inspector struct {
	db        DB
	broker    brokerClient
	schema    string
	retention time.Duration
	err       error // the fault of the Config, if there is one
	sql       statements
	held      held.Reader
	events    eventsearch.Reader
}

// New returns an inspector for the tables in db and the broker behind nc. If nc is nil, answers
// leave out facts that only the broker knows, and say so. New does no I/O and cannot fail: if the
// Config has a fault, each method returns it.
func New(db DB, nc *nats.Conn, cfg Config) *Inspector {
	i := &Inspector{db: db, broker: brokerClient{nc}, retention: cmp.Or(cfg.Retention, 72*time.Hour)}
	if i.schema, i.err = schema.Name(cfg.Schema); i.err == nil {
		i.sql, i.held, i.events = load(i.schema), held.NewReader(i.schema), eventsearch.NewReader(i.schema)
	}
	return i
}

// inTx calls do with a view: a read-only transaction that shows the database at one moment.
func (i *Inspector) inTx(ctx context.Context, do func(db *view) error) error {
	if i.err != nil {
		return postroom.Unrecoverable(i.err)
	}
	return snapshot.Read(ctx, i.db, func(ctx context.Context, tx pgx.Tx) error {
		if err := schema.Require(ctx, tx, i.schema); err != nil {
			return err
		}
		return do(&view{ctx: ctx, tx: tx, schema: i.schema, sql: &i.sql, held: i.held, events: i.events})
	})
}

// explain adds advice to an error of the database.
func (i *Inspector) explain(err error) error {
	return remedy.Explain(err, remedy.Use{Grant: "operator", Schema: i.schema, DB: i.db})
}

// Status returns the state of the system: how many events are not published or are held, which
// relay leads, and which processes live. Its findings say what is wrong.
func (i *Inspector) Status(ctx context.Context) (*Status, error) {
	s := &Status{}
	var subs []subscription
	var types []usedSubject
	var hooks []string
	var stuck []sagas.Stuck
	var silent []filters.Finding
	err := i.inTx(ctx, func(m *view) (err error) {
		if err := s.readRelay(m); err != nil {
			return err
		}
		if s.Discarded, err = one(m, "discarded events", m.sql.DiscardedCount, func(row pgx.CollectableRow, n *int64) error { return row.Scan(n) }); err != nil {
			return err
		}
		//guard:a-bound-of-the-discarded-says-so false
		s.MoreDiscarded = s.Discarded >= countedDiscarded
		if s.Replays, err = rows(m, "replays", m.sql.RunningReplays, scanReplayStatus); err != nil {
			return err
		}
		if s.Republishes, err = rows(m, "republishes", m.sql.RunningRepublishes, scanRepublishStatus); err != nil {
			return err
		}
		if s.Processes, err = readProcesses(m); err != nil {
			return err
		}
		if subs, err = readSubscriptions(m); err != nil {
			return err
		}
		if types, err = readTypes(m); err != nil {
			return err
		}
		if stuck, err = sagas.StuckOf(m.ctx, m.tx, m.schema); err != nil {
			return err
		}
		if silent, err = filters.Findings(m.ctx, m.tx, m.schema); err != nil {
			return err
		}
		hooks, err = endpointNotes(m.ctx, m.tx, m.sql)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("inspect: status: %w", i.explain(err))
	}
	views, streams := i.broker.handlerViews(ctx, &s.Broker, subs, false), i.broker.types(ctx, &s.Broker, subs)
	faults := i.broker.streamFaults(ctx, &s.Broker, namesOf(types, true)) // before findings, because it may set the broker's fault
	l := findings(s, subs, views)
	risks, seen := l.checkStreams(faults), namesOf(types, false)
	for _, one := range stuck {
		text, do := one.Finding()
		l.add(FoundSagaStuck, "", text, do)
	}
	for _, f := range silent {
		l.add(FoundNoMatch, "", f.Text, f.Remedy)
	}
	s.Notes = append(l.checkTypes(subs, streams, seen), unhandledNotes(subs, streams, seen)...)
	s.Findings, s.Notes = l.all, slices.Concat(s.Notes, s.pauseNotes(views), risks, hooks)
	return s, nil
}

// RelayStatus returns the part of Status that is about the relays: its fields Relay, Held, Pauses,
// Findings and Notes. The rights of a relay's role suffice for it.
func (i *Inspector) RelayStatus(ctx context.Context) (*Status, error) {
	s := &Status{}
	if err := i.inTx(ctx, s.readRelay); err != nil {
		return nil, fmt.Errorf("inspect: status of the relays: %w", i.explain(err))
	}
	l := &findingList{all: []Finding{}}
	l.checkRelay(s)
	s.Findings, s.Notes = l.all, []string{}
	if note := s.relayNote(); note != "" {
		s.Notes = append(s.Notes, note)
	}
	return s, nil
}

// Handlers returns the state of each handler, sorted by name. A handler is listed if it is
// subscribed, if a living process runs it, or if events are held for it.
func (i *Inspector) Handlers(ctx context.Context) (*Handlers, error) {
	var subs []subscription
	var processes []Process
	var held []HeldSummary
	var pauses map[string]*Pause
	err := i.inTx(ctx, func(m *view) (err error) {
		if subs, err = readSubscriptions(m); err != nil {
			return err
		}
		if pauses, err = readPauses(m); err != nil {
			return err
		}
		if processes, err = readProcesses(m); err != nil {
			return err
		}
		held, err = readHeld(m)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("inspect: handlers: %w", i.explain(err))
	}
	h := &Handlers{Handlers: []Handler{}}
	views := i.broker.handlerViews(ctx, &h.Broker, subs, true)
	for _, name := range handlerNames(subs, processes, held) {
		one := handler(name, subs, processes, held, views)
		one.Pause = pauses[name]
		h.Handlers = append(h.Handlers, one)
	}
	return h, nil
}

// Event returns what happened to the event with this id and source. If source is empty, the answer
// has the events of all sources with this id. Event searches the broker for at most half a second.
// It returns [ErrNotFound] if it finds nothing.
//
// A search for inbox rows needs source and id. So give the source if the event may have left only
// an inbox row. If a subscription has a DedupeKey, Event finds the inbox row only while the event
// is held, or after it was discarded.
func (i *Inspector) Event(ctx context.Context, source, id string) (*EventTrace, error) {
	j := newEventTrace(id)
	if source != "" {
		j.Sources = []string{source}
	}
	var subs []subscription
	err := i.inTx(ctx, func(m *view) (err error) {
		if subs, err = readSubscriptions(m); err != nil {
			return err
		}
		return m.readByID(j, source)
	})
	if err != nil {
		return nil, fmt.Errorf("inspect: event: %w", i.explain(err))
	}
	i.broker.search(ctx, j, subs)
	if err := i.inTx(ctx, func(m *view) error { return m.readLedger(j) }); err != nil {
		return nil, fmt.Errorf("inspect: event: %w", i.explain(err))
	}
	j.noteUndecided(subs)
	j.noteNoHandler(subs)
	if j.empty(source) {
		return nil, fmt.Errorf("inspect: event %s: %w: looked %s", eventName(source, id), ErrNotFound, j.placesSearched(source))
	}
	return j, nil
}

// Keys returns the keys that have held events, each with its first event. This event blocks the
// other events of the key.
func (i *Inspector) Keys(ctx context.Context, f KeyFilter) (*Keys, error) {
	page := &Keys{Keys: []Key{}}
	err := i.inTx(ctx, func(m *view) error {
		if f.Key != "" {
			return readKey(m, page, f)
		}
		after := KeyPosition{Handler: f.Handler}
		if f.After != nil {
			after = *f.After
		}
		all, err := rows(m, "keys", m.sql.Keys, scanKey, f.Handler, string(f.State), after.Handler, after.Key, limit(f.Limit)+1)
		if err != nil {
			return err
		}
		page.fill(all, limit(f.Limit))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("inspect: keys: %w", i.explain(err))
	}
	return page, nil
}

// Tables returns the size of each table, the age of its oldest row, and what hinders vacuum.
func (i *Inspector) Tables(ctx context.Context) (*Tables, error) {
	t := &Tables{}
	err := i.inTx(ctx, func(m *view) (err error) {
		if t.Tables, err = rows(m, "sizes", m.sql.TableSizes, scanTable); err != nil {
			return err
		}
		if err := readOldest(m, t.Tables, i.retention); err != nil {
			return err
		}
		if t.Sweep, err = readSweep(m); err != nil {
			return err
		}
		if t.Vacuum.Blockers, err = rows(m, "old transactions", m.sql.VacuumBlockers, scanVacuumBlocker); err != nil {
			return err
		}
		sees, err := one(m, "rights", m.sql.SeesAllSessions, func(row pgx.CollectableRow, to *bool) error { return row.Scan(to) })
		t.Vacuum.Partial = !sees
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("inspect: tables: %w", i.explain(err))
	}
	return t, nil
}

// Audit returns the recorded actions of operators and programs, the latest action first.
func (i *Inspector) Audit(ctx context.Context, f AuditFilter) (*AuditPage, error) {
	page := &AuditPage{Entries: []AuditEntry{}}
	err := i.inTx(ctx, func(m *view) error {
		all, err := readAudit(m, f)
		if err != nil {
			return err
		}
		page.fill(all, f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("inspect: audit: %w", i.explain(err))
	}
	return page, nil
}

// A view is the database at one moment.
type view struct {
	ctx    context.Context // ends when inTx returns
	tx     pgx.Tx
	schema string
	sql    *statements
	held   held.Reader
	events eventsearch.Reader
}

// rows returns the rows of a statement. The function scan reads each row.
func rows[T any](m *view, what, sql string, scan func(row pgx.CollectableRow, to *T) error, args ...any) ([]T, error) {
	r, _ := m.tx.Query(m.ctx, sql, args...) // CollectRows returns the error of Query
	all, err := pgx.CollectRows(r, func(row pgx.CollectableRow) (T, error) {
		var to T
		err := scan(row, &to)
		return to, err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return all, nil
}

// one returns the only row of a statement.
func one[T any](m *view, what, sql string, scan func(row pgx.CollectableRow, to *T) error, args ...any) (T, error) {
	all, err := rows(m, what, sql, scan, args...)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("read %s: %d rows, want 1", what, len(all))
	}
	if err != nil {
		var none T
		return none, err
	}
	return all[0], nil
}
