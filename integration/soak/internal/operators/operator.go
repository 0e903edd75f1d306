//go:build linux || darwin

// Package operators has the scenario of an operator who asks questions about a large database.
package operators

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/integration/soak/internal/stage"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/natsjs"
)

// About says what the scenario does.
const About = `An operator asks ten questions, each with one command, and searches the dead events. The database
has ten million events in the log, five million rows in the table inbox, and 100,000 held events. Of
these, 20,000 are dead, and 30,000 wait behind 300 keys. A few statements load all of that. A relay
and an inbox run, and the stream has 120,000 messages. Each command runs three times, in its own
process, and the slowest time counts. It includes the time to connect. The exit statuses 0 and 3
count as answers.`

// Run runs the scenario.
func Run(ctx context.Context, r *stage.Stage) error {
	b, err := r.StartBrokers(ctx, 1)
	if err != nil {
		return err
	}
	c, err := r.Connect(ctx, b.URLs(), jetstream.StreamConfig{})
	if err != nil {
		return err
	}
	err = natsjs.EnsureStream(ctx, c.Conn, jetstream.StreamConfig{Name: stage.StreamName, Subjects: []string{"soak.*"}})
	if err != nil {
		return err
	}
	d, err := r.NewDatabase(ctx, true)
	if err != nil {
		return err
	}
	o := newOffice(r, d)
	if err := o.fill(ctx); err != nil {
		return err
	}
	clerk, err := buildClerk(ctx, r, d.URL, b.URLs())
	if err != nil {
		return err
	}
	return stage.WhileRelaying(ctx, r, d, c, stage.Watch{}, func(ctx context.Context) error {
		return o.whileHandling(ctx, c, func(ctx context.Context) error {
			if err := o.arrive(ctx, c); err != nil {
				return err
			}
			return o.questions(ctx, clerk)
		})
	})
}

// whileHandling calls the function do while an inbox runs all handlers of the office except builds.
func (o *office) whileHandling(ctx context.Context, c *stage.Client, do func(ctx context.Context) error) error {
	nc, err := nats.Connect(c.URLs, natsjs.ConnectOptions()...)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer nc.Close()
	in := inbox.New(o.db.Pool, nc, inbox.Config{Logger: o.stage.Logger})
	effect := postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect (event) VALUES ($1)", ev.ID)
		return err
	})
	takes := func(handler, kind string) inbox.Subscription {
		return inbox.Subscription{Name: handler, Stream: stage.StreamName, Types: []string{kind}, Workers: 3}
	}
	in.Handle(takes(charges, charged), effect)
	ordered := takes(moves, moved)
	ordered.Order = inbox.HoldKey
	in.Handle(ordered, effect)
	in.HandleExternal(takes(mails, mailed), func(ctx context.Context, attempt *inbox.Attempt) error {
		_, err := inbox.Step(ctx, attempt, "send", func(context.Context, string) (struct{}, error) { return struct{}{}, nil })
		return err
	})
	return stage.During(ctx, do, func(ctx context.Context) error {
		if err := in.Run(ctx); err != nil {
			return err
		}
		if ctx.Err() == nil {
			return errors.New("the inbox ended")
		}
		return nil
	})
}

// arrive writes new events, and waits until they are published and handled.
func (o *office) arrive(ctx context.Context, c *stage.Client) error {
	n := stage.Pick(o.stage, 120_000, 3000)
	if err := o.log(ctx, o.rows+1, n, 0, 0, 0); err != nil {
		return err
	}
	err := childproc.Eventually(ctx, 5*time.Minute, "new events to be handled", func(ctx context.Context) (done bool, err error) {
		stored, err := c.Stored(ctx, stage.StreamName)
		if err != nil || stored < n {
			return false, err
		}
		// This counts the effects of the two handlers that are not external. It also counts held
		// events, because the event of an external handler is held while the handler runs.
		err = o.db.Pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM effect) = $1 AND (SELECT count(*) FROM postroom.held) = $2
			AND (SELECT high >= $3 AND isempty(pending) FROM postroom.relay)`, n/3, o.held(), o.rows+n).Scan(&done)
		return done, err
	})
	if err != nil {
		return err
	}
	if err := o.tidy(ctx); err != nil {
		return err
	}
	o.fresh = n
	o.stage.Note("messages in the stream", "%s", figures.Grouped(n))
	return nil
}
