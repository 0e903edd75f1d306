package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/eventtype"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/schema"
)

// loadSettings returns the server's settings that the checks use. It loads them once, as all load
// functions do.
func (e *examination) loadSettings(ctx context.Context) (map[string]string, error) {
	return e.settings.get(func() (map[string]string, error) {
		type setting struct{ Name, Value string }
		all, err := query[setting](ctx, e, e.d.sql.Settings, settingNames)
		values := make(map[string]string, len(all))
		for _, s := range all {
			values[s.Name] = s.Value
		}
		return values, err
	})
}

// loadRoleSettings returns the settings of this database, and of other roles that write to the
// tables. If there are no tables, it returns none, because only the rights on the tables show which
// roles write.
func (e *examination) loadRoleSettings(ctx context.Context) ([]roleSetting, error) {
	if e.noTables != "" {
		return nil, nil
	}
	return e.roles.get(func() ([]roleSetting, error) {
		return query[roleSetting](ctx, e, e.d.sql.RoleSettings, settingNames)
	})
}

// eachSetting calls f with the value of a setting for this role, and with its values for other
// roles and for this database.
func (e *examination) eachSetting(ctx context.Context, name string, f func(of, value string)) error {
	own, err := e.loadSettings(ctx)
	if err != nil {
		return err
	}
	if value, ok := own[name]; ok { // not every server has every setting
		f("", value)
	}
	others, err := e.loadRoleSettings(ctx)
	for _, s := range others {
		if s.Name == name && (s.Role != "" || !sameSetting(s.Value, own[name])) {
			f(s.of(), s.Value)
		}
	}
	return err
}

// databaseClock measures the clock of the database. It uses the fastest of several answers.
func (e *examination) databaseClock(ctx context.Context) (clock, error) {
	return e.clock.get(func() (clock, error) {
		var best clock
		err := e.read(ctx, func(tx pgx.Tx) error {
			for i := range 3 {
				before := time.Now()
				var told time.Time
				if err := tx.QueryRow(ctx, e.d.sql.Clock).Scan(&told, &e.role); err != nil {
					return fmt.Errorf("read the database's clock: %w", err)
				}
				if c := measureClock(before, told, time.Now()); i == 0 || c.uncertainty < best.uncertainty {
					best = c
				}
			}
			return nil
		})
		return best, err
	})
}

func (e *examination) loadSubscriptions(ctx context.Context) ([]subscription, error) {
	return e.subs.get(func() ([]subscription, error) {
		var all []subscription
		err := e.read(ctx, func(tx pgx.Tx) error {
			var instance string
			if err := tx.QueryRow(ctx, e.d.sql.Instance).Scan(&instance); err != nil {
				return fmt.Errorf("read who this Postroom is: %w", err)
			}
			found, _ := tx.Query(ctx, e.d.sql.Subscriptions) // CollectRows reports the error
			var err error
			all, err = pgx.CollectRows(found, pgx.RowToStructByPos[subscription])
			for i := range all {
				all[i].instance = instance
			}
			return err
		})
		return all, err
	})
}

func (e *examination) loadProcesses(ctx context.Context) ([]process, error) {
	return e.processes.get(func() ([]process, error) { return query[process](ctx, e, e.d.sql.Processes) })
}

// inspector returns an inspector that asks only the database, in transactions like those of read.
func (e *examination) inspector() *inspect.Inspector {
	return inspect.New(looks{e.d}, nil, inspect.Config{Schema: e.d.name})
}

// looks begins transactions for an inspector.
type looks struct{ d *Doctor }

// BeginTx is described in [inspect.DB].
func (l looks) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	return l.d.look(ctx, options)
}

// loadStatus returns what package inspect finds in the database.
func (e *examination) loadStatus(ctx context.Context) (*inspect.Status, error) {
	return e.status.get(func() (*inspect.Status, error) { return e.inspector().Status(ctx) })
}

// loadSubjects returns the subjects in use.
func (e *examination) loadSubjects(ctx context.Context) ([]usedSubject, error) {
	return e.subjects.get(func() ([]usedSubject, error) {
		return query[usedSubject](ctx, e, schema.In(e.d.name, eventtype.UsedSQL))
	})
}

// usedSubject is a subject of an event in this database.
type usedSubject struct {
	Subject  string
	Outgoing bool // the log has an event with it
}

func (e *examination) js() (jetstream.JetStream, error) {
	js, err := jetstream.New(e.d.nc)
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	return js, nil
}

// loadStreams returns the streams that handlers read, the streams that store the subjects of the
// newest events, and the streams that the Config names. If there are tables, the last element is
// not a stream: it has no name, and its field missing lists the subjects that no stream stores.
func (e *examination) loadStreams(ctx context.Context) ([]*stream, error) {
	return e.streams.get(func() ([]*stream, error) {
		js, err := e.js()
		if err != nil {
			return nil, err
		}
		var all []*stream
		use := func(name string) *stream {
			if i := slices.IndexFunc(all, func(s *stream) bool { return s.name == name }); i >= 0 {
				return all[i]
			}
			s := findStream(ctx, js, name)
			all = append(all, s)
			return s
		}
		for _, name := range e.d.cfg.Streams {
			use(name)
		}
		if e.noTables != "" {
			return all, nil
		}
		subs, err := e.loadSubscriptions(ctx)
		if err != nil {
			return nil, err
		}
		for _, sub := range subs {
			s := use(sub.Stream)
			s.handlers = append(s.handlers, sub)
		}
		missing, err := e.useSubjects(ctx, js, use, &all)
		return append(all, &stream{missing: missing}), err
	})
}

// useSubjects adds the streams that store the subjects of the log, and returns the subjects that no
// stream stores.
func (e *examination) useSubjects(ctx context.Context, js jetstream.JetStream, use func(string) *stream, all *[]*stream) (missing []string, err error) {
	subjects, err := e.loadSubjects(ctx)
	if err != nil {
		return nil, err
	}
	for _, subject := range subjects {
		if !subject.Outgoing {
			continue
		}
		i := slices.IndexFunc(*all, func(s *stream) bool { return s.takes(subject.Subject) })
		if i >= 0 {
			(*all)[i].log = true
			continue
		}
		within, cancel := context.WithTimeout(ctx, brokerTimeout)
		name, err := js.StreamNameBySubject(within, subject.Subject)
		cancel()
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			missing = append(missing, subject.Subject)
		case err != nil:
			return missing, fmt.Errorf("look for the stream of %s: %w", subject.Subject, err)
		default:
			use(name).log = true
		}
		if len(missing) == maxMissing {
			break
		}
	}
	return missing, nil
}

// each calls f for each stream that the broker described. It adds a skipped finding for each stream
// that could not be examined.
func (e *examination) each(ctx context.Context, f func(s *stream)) error {
	all, err := e.loadStreams(ctx)
	for _, s := range all {
		switch {
		case s.err != nil:
			e.skip(s.name, e.remedyOf(s.err), "could not be checked: %v", s.err)
		case s.info != nil:
			f(s)
		}
	}
	return err
}

func (e *examination) loadLosses(ctx context.Context) (Losses, error) {
	return e.losses.get(func() (Losses, error) {
		var found Losses
		all, err := e.loadStreams(ctx)
		for _, s := range all {
			for _, sub := range s.handlers {
				found.Handlers = append(found.Handlers, e.withUndecided(ctx, s, sub, s.handlerPosition(ctx, sub)))
			}
		}
		tails, tailErr := compareTails(ctx, e, all)
		found.Streams = tails
		return found, errors.Join(err, tailErr)
	})
}
