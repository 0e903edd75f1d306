package pglog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/postroomtest"
)

// The connection of a relay breaks at any statement: before it, or after the server has carried it
// out, so that the relay does not know that it led, recorded or pruned. The next term begins where
// the database says: nothing is owed twice, no failure is noted twice, and nothing is lost.
func TestTermsWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	var sent map[string]int
	failure := &eventlog.Failure{Class: "refused", Text: "no", Attempts: 1, Dead: true}
	later := &eventlog.Failure{Class: "refused", Text: "no", Attempts: 1, After: time.Hour}
	lead := func(ctx context.Context, pool *pgxpool.Pool) (eventlog.Term, error) {
		return pglog.New(pool).Lead(ctx, "test", time.Minute)
	}
	postroomtest.Crash(t, postroomtest.Scenario{
		Setup: func(ctx context.Context, pool *pgxpool.Pool) error {
			sent = make(map[string]int)
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				keyed := func(id string) postroom.Event { return postroom.Event{ID: id, Type: "a", Key: "k", Data: []byte("{}")} }
				return shop.Write(ctx, tx, named("a"), named("b"), named("dead"), named("waits"), keyed("k1"), keyed("k2"),
					postroom.Event{ID: "scheduled", Type: "a", NotBefore: time.Now().Add(time.Hour), Data: []byte("{}")})
			})
		},
		Run: func(ctx context.Context, pool *pgxpool.Pool) (err error) {
			term, err := lead(ctx, pool)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, term.Release(context.WithoutCancel(ctx), eventlog.Progress{})) }()
			for {
				page, err := term.Read(ctx, 100, nil)
				if err != nil {
					return err
				}
				var p eventlog.Progress
				for _, ev := range page.Events {
					switch ev.ID {
					case "dead":
						p.Held = append(p.Held, eventlog.Deferral{Seq: ev.Seq, Failure: failure})
					case "waits":
						p.Held = append(p.Held, eventlog.Deferral{Seq: ev.Seq, Failure: later})
					case "k1":
						p.Held = append(p.Held, eventlog.Deferral{Seq: ev.Seq, Key: "k", Failure: later})
					case "k2":
						p.Held = append(p.Held, eventlog.Deferral{Seq: ev.Seq, Key: "k"})
					case "scheduled":
					default:
						sent[ev.ID]++
						p.Published = append(p.Published, ev.Seq)
					}
				}
				if p.Empty() {
					break
				}
				if err := term.Record(ctx, p); err != nil {
					return err
				}
			}
			_, _, err = term.Prune(ctx, time.Nanosecond)
			return err
		},
	}, func(ctx context.Context, pool *pgxpool.Pool) error {
		var held string
		err := pool.QueryRow(ctx, `SELECT string_agg(concat_ws(' ', event_id, chain, attempts, coalesce(jsonb_array_length(failures), 0), dead_at IS NOT NULL, next_at IS NOT NULL), ', ' ORDER BY pos)
			FROM postroom.held`).Scan(&held)
		want := "dead 1 1 t f, waits 1 1 f t, k1 k 1 1 f t, k2 k 0 0 f f, scheduled 0 0 f t"
		if err == nil && (held != want || sent["a"] == 0 || sent["b"] == 0) {
			err = fmt.Errorf("held: %s, want %s; sent %v", held, want, sent)
		}
		return err
	})
}

// An operator's order to republish is stored, or a relay carries it out, and an answer is lost. The
// order is stored once, and each of its events counts once.
func TestRepublishesWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	var id int64
	postroomtest.Crash(t, postroomtest.Scenario{
		Setup: func(ctx context.Context, pool *pgxpool.Pool) error {
			id = 0
			write(t, pool, "a", "b")
			term, err := pglog.New(pool).Lead(ctx, "test", time.Minute)
			if err != nil {
				return err
			}
			_, seqs, _ := read(t, term, 100)
			return errors.Join(term.Record(ctx, eventlog.Progress{Published: seqs}), term.Release(ctx, eventlog.Progress{}))
		},
		Run: func(ctx context.Context, pool *pgxpool.Pool) (err error) {
			if id == 0 {
				r, err := operator.New(pool, operator.Config{}).Republish(ctx, operator.RepublishRequest{All: true}, postroom.Audit{Actor: "ann"})
				if err != nil {
					return err
				}
				id = r.ID
			}
			term, err := pglog.New(pool).Lead(ctx, "test", time.Minute)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, term.Release(context.WithoutCancel(ctx), eventlog.Progress{})) }()
			for {
				page, err := term.ReadRepublish(ctx, 1)
				if err != nil || page.ID == 0 {
					return err
				}
				var p eventlog.Progress
				for _, ev := range page.Events {
					p.Republished = append(p.Republished, eventlog.RepublishResult{RepublishID: ev.RepublishID, Seq: ev.Seq})
				}
				if err := term.Record(ctx, p); err != nil {
					return err
				}
			}
		},
	}, func(ctx context.Context, pool *pgxpool.Pool) error {
		all, _, err := operator.New(pool, operator.Config{}).Republishes(ctx, postroom.Page{Limit: 10})
		if err == nil && (len(all) != 1 || all[0].State != operator.RepublishDone || all[0].Published != 2) {
			err = fmt.Errorf("republishes: %+v", all)
		}
		return err
	})
}
