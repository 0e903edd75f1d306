//go:build linux || darwin

package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/integration/checker"
	"github.com/postroom/postroom/internal/childproc"
)

// nurse is an operator who handles dead events while faults are injected. It repairs handlers and replays the
// events at which they failed, discards some events, and leaves other events dead. If an earlier
// operator process was killed, this work may be half done, and replays may be open.
type nurse struct {
	*worker

	pool  *pgxpool.Pool
	store *deadletter.Store
}

func runOperator(ctx context.Context, w *worker) error {
	pool, err := w.connect(ctx, w.Books, 3)
	if err != nil {
		return err
	}
	defer pool.Close()
	shop, err := w.connect(ctx, w.Shop, 2)
	if err != nil {
		return err
	}
	defer shop.Close()
	var meddling sync.WaitGroup
	meddling.Go(func() { newMeddler(w, pool, shop).run(ctx) })
	defer meddling.Wait()
	o := &nurse{worker: w, pool: pool, store: deadletter.New(pool, deadletter.Config{})}
	for childproc.Sleep(ctx, 300*time.Millisecond) {
		work, cancel := context.WithTimeout(ctx, 15*time.Second)
		err := errors.Join(o.runReplays(work), o.lookAfter(work))
		cancel()
		if err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "an operator's round failed", "error", err)
		}
	}
	return nil
}

// runReplays runs all open replays, such as those that a killed operator process left.
func (o *nurse) runReplays(ctx context.Context) error {
	jobs, _, err := o.store.Replays(ctx, deadletter.ReplayFilter{Running: true}, postroom.Page{})
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if _, err := o.store.RunReplay(ctx, j.ID, deadletter.RunOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// lookAfter decides about all dead events, page by page, and discards or replays them.
func (o *nurse) lookAfter(ctx context.Context) error {
	var after string
	for {
		dead, next, err := o.store.List(ctx, deadletter.Filter{}, postroom.Page{Limit: 100, After: after})
		if err != nil {
			return err
		}
		release, discarded, err := o.sort(ctx, dead)
		if err != nil {
			return err
		}
		if err := errors.Join(o.discard(ctx, discarded), o.replay(ctx, release)); err != nil {
			return err
		}
		if after = next; len(dead) < 100 {
			return nil
		}
	}
}

// sort decides which events are replayed and which are discarded, and repairs handlers.
func (o *nurse) sort(ctx context.Context, dead []deadletter.Letter) (release, discarded []deadletter.Letter, err error) {
	for _, l := range dead {
		whole, err := o.store.Get(ctx, l.ID)
		if errors.Is(err, deadletter.ErrNotFound) {
			continue // another operator has replayed or discarded it meanwhile
		}
		if err != nil {
			return nil, nil, err
		}
		b, err := Read(whole.Data)
		if err != nil {
			return nil, nil, err
		}
		fate := cure
		if b.Poison == l.Handler {
			fate = b.Fate
		}
		switch fate {
		case discard:
			discarded = append(discarded, l)
		case cure:
			if b.Poison == l.Handler {
				_, err := o.pool.Exec(ctx, "INSERT INTO cure (handler, event) VALUES ($1, $2) ON CONFLICT DO NOTHING", l.Handler, l.EventID)
				if err != nil {
					return nil, nil, err
				}
			}
			release = append(release, l)
		}
	}
	return release, discarded, nil
}

var by = postroom.Audit{Actor: "chaos", Reason: "mended"}

func (o *nurse) replay(ctx context.Context, all []deadletter.Letter) error {
	if len(all) == 0 {
		return nil
	}
	r := checker.Record{What: checker.Release, Phase: checker.Invoked, Events: acted(all)}
	o.journal.Note(r)
	job, err := o.store.CreateReplay(ctx, deadletter.Filter{IDs: ids(all)}, deadletter.ReplayOptions{StopAt: new(1.0), Attempts: 3}, by)
	if errors.Is(err, deadletter.ErrNoMatch) {
		return nil // another replay has them, or they are no longer dead
	}
	if err != nil {
		r.Phase, r.Error = checker.Unknown, err.Error()
		o.journal.Note(r)
		return err
	}
	if job.Events == len(all) {
		r.Phase = checker.OK
		o.journal.Note(r)
	}
	_, err = o.store.RunReplay(ctx, job.ID, deadletter.RunOptions{})
	return err
}

func (o *nurse) discard(ctx context.Context, all []deadletter.Letter) error {
	if len(all) == 0 {
		return nil
	}
	r := checker.Record{What: checker.Discard, Phase: checker.Invoked, Events: acted(all)}
	o.journal.Note(r)
	_, err := o.store.Discard(ctx, deadletter.Filter{IDs: ids(all)}, deadletter.ChangeOptions{}, by)
	if errors.Is(err, deadletter.ErrNoMatch) {
		return nil // another replay has them, or they are no longer dead
	}
	if err != nil {
		return fmt.Errorf("discard: %w", err)
	}
	r.Phase = checker.OK
	o.journal.Note(r)
	return nil
}

// acted returns events in the form of the history.
func acted(all []deadletter.Letter) (events []checker.Event) {
	for _, l := range all {
		events = append(events, checker.Event{ID: l.EventID, Handler: l.Handler, Class: l.Class})
	}
	return events
}

func ids(all []deadletter.Letter) (list []int64) {
	for _, l := range all {
		list = append(list, l.ID)
	}
	return list
}
