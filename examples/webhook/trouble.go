package main

import (
	"context"
	_ "embed" // the statement
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/examples/internal/demo"
)

//go:embed sql/cut.sql
var cutSQL string

// away is for how long the database takes no connections.
const away = 700 * time.Millisecond

// trouble makes what goes wrong in the midst of a run: connections break, handlers
// are stopped and started, the database is away.
type trouble struct {
	*deployment

	done int // how much of it was made
}

// plannedTrouble is when each trouble is made, by the share of the deliveries that
// are answered, in percent. No delivery behind that is sent before.
var plannedTrouble = []struct {
	at   int64
	make func(*trouble, context.Context) error
}{
	{15, (*trouble).cut},
	{30, (*trouble).stopHandlers},
	{50, (*trouble).startHandlers},
	{65, (*trouble).takeDatabaseAway},
	{85, (*trouble).cut},
}

// run makes all trouble, each at its time, until ctx ends.
func (t *trouble) run(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for t.done < len(plannedTrouble) {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		next := plannedTrouble[t.done]
		if t.provider.finished.Load() < next.at*int64(len(t.provider.deliveries))/100 {
			continue
		}
		// What was begun is brought to its end, also where ctx ends: a database
		// that nobody can connect to cannot be looked at.
		if err := next.make(t, context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("make trouble: %w", err)
		}
		t.done++
	}
	return nil
}

// sendOn lets the deliveries behind the trouble that is being made go.
func (t *trouble) sendOn() { close(t.provider.gates[t.done]) }

// cut ends all connections to the database.
func (t *trouble) cut(ctx context.Context) error {
	t.sendOn()
	var n int
	err := t.admin(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, cutSQL, t.db.Name).Scan(&n)
	})
	if err == nil {
		t.story.Tell("all %d connections to the database were cut", n)
	}
	return err
}

// stopHandlers stops the inbox, as the stop of its process would. The endpoint
// needs none to run.
func (t *trouble) stopHandlers(context.Context) error {
	if err := t.worker.stop(); err != nil {
		return err
	}
	t.sendOn()
	t.story.Tell("the handlers are stopped; webhooks are stored and answered meanwhile")
	return nil
}

func (t *trouble) startHandlers(ctx context.Context) error {
	t.sendOn()
	var s state
	err := t.audit(ctx, func(conn *pgx.Conn) (err error) {
		s, err = readState(ctx, conn)
		return err
	})
	t.worker.start()
	if err != nil {
		return err
	}
	t.story.Tell("the handlers are started again: %s webhooks are owed", demo.Grouped(s.Owed))
	return nil
}

// takeDatabaseAway lets nobody connect to the database for a while.
func (t *trouble) takeDatabaseAway(ctx context.Context) error {
	before := t.counts.unavailable.Load()
	err := t.admin(ctx, func(conn *pgx.Conn) error {
		allow := func(yes bool) error {
			// A name cannot be a parameter.
			_, err := conn.Exec(ctx, fmt.Sprintf("ALTER DATABASE %s WITH ALLOW_CONNECTIONS %t", pgx.Identifier{t.db.Name}.Sanitize(), yes))
			return err
		}
		if err := allow(false); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, cutSQL, t.db.Name)
		t.sendOn()
		time.Sleep(away)
		return errors.Join(err, allow(true))
	})
	if err == nil {
		t.story.Tell("the database was away for %s: %s webhooks were answered with 503, and are sent again",
			away, demo.Grouped(t.counts.unavailable.Load()-before))
	}
	return err
}
