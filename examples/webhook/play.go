package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/postroom/postroom/examples/internal/narrate"
	"github.com/postroom/postroom/internal/verdict"
)

// play serves, sends and disturbs until all webhooks took effect. The end of ctx
// means that no more are sent.
func (d *demo) play(ctx context.Context) error {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.opt.timeout)
	defer cancel()
	serving := make(chan error, 1)
	go func() { serving <- d.web.Serve(d.listener) }() // ends with Shutdown
	d.worker.start()
	d.story.Tell("a provider sends %s webhooks of %s payments, several times each and in no order, to %s",
		narrate.Grouped(int64(len(d.provider.deliveries))), narrate.Grouped(int64(d.opt.payments)), d.provider.url)

	troubled, stopTrouble := context.WithCancel(work)
	defer stopTrouble()
	made := make(chan error, 1)
	go func() { made <- (&trouble{demo: d}).run(troubled) }()
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
func (d *demo) watch(ctx context.Context, sent <-chan struct{}, made <-chan error, stopTrouble func()) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last state
	var lastDone int64
	moved := time.Now()
	for {
		select {
		case <-ctx.Done():
			return verdict.NewUndecided("not complete after %s: %d of %d deliveries are answered, %d webhooks are owed",
				d.opt.timeout, lastDone, len(d.provider.deliveries), last.Owed)
		case <-tick.C:
		}
		if err := d.worker.failed(); err != nil {
			return err
		}
		all := isClosed(sent) // asked before the state, which is complete then
		if all {
			stopTrouble() // what is left of it in an interrupted run
			d.worker.start()
		}
		now, err := readState(ctx, d.pool)
		if err != nil {
			now = last // the database is away at times
		}
		done := d.provider.finished.Load()
		d.story.Progress("answered %s of %s deliveries, stored %s, duplicates %s, refused %s, sent again %s; took effect %s, owed %s",
			narrate.Grouped(done), narrate.Grouped(int64(len(d.provider.deliveries))), narrate.Grouped(d.endpoint.stored.Load()), narrate.Grouped(d.endpoint.duplicates.Load()),
			narrate.Grouped(d.endpoint.unverified.Load()), narrate.Grouped(d.provider.again.Load()), narrate.Grouped(now.Applied), narrate.Grouped(now.Owed))
		if now != last || done != lastDone {
			last, lastDone, moved = now, done, time.Now()
		}
		switch {
		case all && len(made) > 0 && err == nil && now.Owed == 0:
			return nil
		case time.Since(moved) > stallPatience:
			return errors.Join(verdict.NewUndecided("nothing has moved for %s: %d webhooks are owed", stallPatience, now.Owed), err)
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
