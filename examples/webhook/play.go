package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/postroom/postroom/examples/internal/demo"
)

// play serves, sends and disturbs until all webhooks took effect. The end of ctx
// means that no more are sent.
func (d *deployment) play(ctx context.Context) error {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.opt.timeout)
	defer cancel()
	serving := make(chan error, 1)
	go func() { serving <- d.web.Serve(d.listener) }() // ends with Shutdown
	d.worker.start()
	d.story.Tell("a provider sends %s webhooks of %s payments, several times each and in no order, to %s",
		demo.Grouped(int64(len(d.provider.deliveries))), demo.Grouped(int64(d.opt.payments)), d.provider.url)

	troubled, stopTrouble := context.WithCancel(work)
	defer stopTrouble()
	made := make(chan error, 1)
	go func() { made <- (&trouble{deployment: d}).run(troubled) }()
	sending, stopSending := context.WithCancel(work)
	defer stopSending()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		d.provider.send(sending, d.opt.senders, ctx.Done())
	}()

	err := d.watch(work, sent, made, stopTrouble)
	stopTrouble()
	stopSending()
	<-sent
	if trouble := <-made; err == nil {
		err = trouble
	}
	d.story.End()
	err = errors.Join(err, d.worker.stop())
	down := d.web.Shutdown(context.WithoutCancel(work))
	if served := <-serving; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve: %w", served))
	}
	return errors.Join(err, down)
}

// watch shows how far everything is, until the provider is done and nothing is owed.
// It leaves what made receives in it.
func (d *deployment) watch(ctx context.Context, sent <-chan struct{}, made <-chan error, stopTrouble func()) error {
	var last state
	deliveries := int64(len(d.provider.deliveries))
	return demo.Watch(ctx, d.opt.timeout, 20*time.Millisecond, func(ctx context.Context) (demo.Progress, error) {
		if err := d.worker.failed(); err != nil {
			return demo.Progress{}, err
		}
		all := demo.IsClosed(sent) // asked before the state, which is complete then
		if all {
			stopTrouble() // what is left of it in an interrupted run
			d.worker.start()
		}
		now, hidden := readState(ctx, d.db.Pool)
		if hidden != nil {
			now = last // the database is away at times
		}
		last = now
		done := d.provider.finished.Load()
		d.story.Progress("answered %s of %s deliveries, stored %s, duplicates %s, refused %s, sent again %s; took effect %s, owed %s",
			demo.Grouped(done), demo.Grouped(deliveries), demo.Grouped(d.counts.stored.Load()), demo.Grouped(d.counts.duplicates.Load()),
			demo.Grouped(d.counts.refused.Load()), demo.Grouped(d.provider.again.Load()), demo.Grouped(now.Applied), demo.Grouped(now.Owed))
		return demo.Progress{
			Done:    all && len(made) > 0 && hidden == nil && now.Owed == 0,
			Mark:    [3]int64{now.Owed, now.Applied, done},
			Missing: fmt.Sprintf("%d of %d deliveries are answered, %d webhooks are owed", done, deliveries, now.Owed),
			Hidden:  hidden,
		}, nil
	})
}
