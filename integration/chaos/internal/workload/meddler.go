//go:build linux || darwin

package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/integration/checker"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/schema"
)

// Healed is the name of a file in the directory of the journals. If the file exists, there are no
// more faults, and operators only finish their work.
const Healed = "healed"

// meddler does what operators do besides their work on dead events. It pauses and resumes handlers
// and relays. It cancels and reschedules events that are held or scheduled. Its pauses end by
// themselves, because the operator may be killed.
type meddler struct {
	*worker

	books    desk
	shop     desk
	handlers *operator.Store
	relays   *operator.Store
	luck     *rand.Rand
}

// desk is a database, with the store that changes its held events.
type desk struct {
	pool *pgxpool.Pool
	held *held.Store
}

func newMeddler(w *worker, books, shop *pgxpool.Pool) *meddler {
	return &meddler{
		worker: w, books: desk{books, held.NewStore(books, schema.DefaultName)}, shop: desk{shop, held.NewStore(shop, schema.DefaultName)},
		handlers: operator.New(books, operator.Config{}), relays: operator.New(shop, operator.Config{}),
		luck: rand.New(rand.NewPCG(w.Seed, uint64(os.Getpid()))), //nolint:gosec // made from a seed on purpose
	}
}

var (
	pausedBy = postroom.Audit{Actor: "chaos", Reason: "maintenance"}
	heldBy   = postroom.Audit{Actor: "chaos", Reason: "no longer wanted"}
)

// run acts until ctx ends, or until the file Healed exists.
func (m *meddler) run(ctx context.Context) {
	for childproc.Sleep(ctx, 150*time.Millisecond) {
		if _, err := os.Stat(filepath.Join(m.Journal, Healed)); err == nil {
			return
		}
		work, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := m.round(work)
		cancel()
		if err != nil && ctx.Err() == nil {
			m.log.WarnContext(ctx, "an operator could not meddle", "error", err)
		}
	}
}

// round takes one action.
func (m *meddler) round(ctx context.Context) error {
	paused := Handlers()[m.luck.IntN(len(Handlers()))]
	handler, at := paused, m.books
	length := time.Second + time.Duration(m.luck.IntN(1500))*time.Millisecond
	if m.luck.IntN(4) == 0 {
		at, handler = m.shop, checker.Outgoing
	}
	switch m.luck.IntN(8) {
	case 0:
		return m.pause(paused, func() error { return m.handlers.Pause(ctx, paused, length, pausedBy) })
	case 1:
		return resumed(m.handlers.Resume(ctx, paused, pausedBy))
	case 2:
		return m.pause(Relays, func() error { return m.relays.PauseRelay(ctx, length, pausedBy) })
	case 3:
		return resumed(m.relays.ResumeRelay(ctx, pausedBy))
	case 4, 5:
		return m.each(ctx, at, handler, checker.Reschedule, func(set held.Set) (held.Result, error) {
			return at.held.RescheduleIn(ctx, set, length/2, heldBy, nil)
		})
	default:
		return m.each(ctx, at, handler, checker.Cancel, func(set held.Set) (held.Result, error) { return at.held.Cancel(ctx, set, heldBy, nil) })
	}
}

// resumed returns err. If err says that there is no pause to end, it returns nil.
func resumed(err error) error {
	if errors.Is(err, operator.ErrNotPaused) {
		return nil
	}
	return err
}

// pause pauses a handler, or the relays, and records that.
func (m *meddler) pause(what string, pause func() error) error {
	if err := pause(); err != nil {
		return err
	}
	m.journal.Note(checker.Record{What: checker.Pause, Phase: checker.OK, Shape: what})
	return nil
}

// each changes a few events that are held for a handler, or scheduled, one by one, and records the
// results. It cannot change an event that a process already runs. It leaves out failed outgoing
// events, which the broker may have stored, and events that wait behind those.
func (m *meddler) each(ctx context.Context, at desk, handler string, what checker.What, act func(held.Set) (held.Result, error)) error {
	rows, err := at.pool.Query(ctx, `SELECT id, event_id FROM postroom.held
		WHERE handler = $1 AND dead_at IS NULL AND (handler <> 'outbox' OR key IS NULL AND class IS NULL) AND (convert_from(data, 'UTF8')::jsonb ->> 'key')::int < $2
		ORDER BY random() LIMIT 5`, handler, Keys)
	if err != nil {
		return err
	}
	defer rows.Close()
	type row struct {
		id    int64
		event string
	}
	var all []row
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.id, &r.event); err != nil {
			return err
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, one := range all {
		r := checker.Record{What: what, Phase: checker.Invoked, Events: []checker.Event{{ID: one.event, Handler: handler}}}
		m.journal.Note(r)
		result, err := act(held.Set{IDs: []int64{one.id}})
		switch {
		case err != nil:
			r.Phase, r.Error = checker.Unknown, err.Error()
		case result.Events == 1:
			r.Phase = checker.OK
		default:
			r.Phase = checker.Failed
		}
		m.journal.Note(r)
		if err != nil && !errors.Is(err, held.ErrNoMatch) {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}
