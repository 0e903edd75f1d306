package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/verdict"
)

// walk is the walk-through, scene by scene.
type walk struct {
	*deployment

	first Movement // the charge of the first scene
}

// play runs two processes of the service and shows what can happen to a request.
func (d *deployment) play(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, d.opt.timeout)
	defer cancel()
	defer func() {
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = verdict.NewUndecided("not complete after %s: %v", d.opt.timeout, err)
		}
	}()
	if err := d.startAll(ctx); err != nil {
		return err
	}
	w := &walk{deployment: d}
	for _, scene := range []struct {
		title string
		play  func(context.Context) error
	}{
		{"a charge, and the same request again, at the other process", w.firstAndReplay},
		{"the same key with another amount, from another merchant, and requests without key or token", w.others},
		{fmt.Sprintf("%d requests with one key at once, at both processes", d.opt.twins), w.twins},
		{"the service is killed after the provider was called, and before that is recorded", w.crash(charge, afterCall)},
		{"a refund, the same again, and one that is too large", w.refund},
		{"two refunds with two keys at once, of which only one can succeed", w.race},
		{"the service is killed after a refund is committed, and before its answer is kept", w.crash(refund, afterCommit)},
		{"a charge and a refund that the provider declines", w.decline},
	} {
		d.story.Tell("%s:", scene.title)
		if err := scene.play(ctx); err != nil {
			return err
		}
	}
	return d.published(ctx)
}

// say sends a request and prints the answer.
func (w *walk) say(ctx context.Context, process int, q ask) answer {
	a := w.clients.send(ctx, w.url(process), q)
	w.story.Tell("  %s: POST %s %s, key %q, process %d → %s", q.merchant, q.kind.path, q.body, q.key, w.children[process].PID(), a)
	return a
}

// want returns an error if an answer is not the one that a scene expects.
func want(a answer, status int, code string) error {
	if a.err != nil || a.status != status || a.code() != code {
		return fmt.Errorf("the answer is %s, want %d %s", a, status, code)
	}
	return nil
}

func charged(amount int64) string { return fmt.Sprintf(`{"amount":%d}`, amount) }

func refunded(charge string, amount int64) string {
	return fmt.Sprintf(`{"charge":%q,"amount":%d}`, charge, amount)
}

func (w *walk) firstAndReplay(ctx context.Context) error {
	q := ask{merchant: "ann", kind: charge, key: "order-1", body: charged(4200)}
	a := w.say(ctx, 0, q)
	if err := want(a, http.StatusCreated, ""); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(a.body), &w.first); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	again := w.say(ctx, 1, q)
	if !again.replayed() || again.body != a.body {
		return fmt.Errorf("the second answer is %s, want a replay of %s", again, a)
	}
	return nil
}

func (w *walk) others(ctx context.Context) error {
	changed := w.say(ctx, 0, ask{merchant: "ann", kind: charge, key: "order-1", body: charged(9900)})
	other := w.say(ctx, 1, ask{merchant: "bob", kind: charge, key: "order-1", body: charged(1500)})
	return errors.Join(
		want(changed, http.StatusUnprocessableEntity, "idempotency_key_payload_mismatch"),
		want(other, http.StatusCreated, ""),
		want(w.say(ctx, 0, ask{merchant: "ann", kind: charge, body: charged(4200)}), http.StatusBadRequest, "missing_idempotency_key"),
		want(w.say(ctx, 0, ask{merchant: "eve", kind: charge, key: "order-1", body: charged(4200)}), http.StatusUnauthorized, "unauthorized"),
	)
}

// twins sends one request many times at once. The provider does not answer until the service has
// answered 409 to one of the requests. So the requests overlap on any machine.
func (w *walk) twins(ctx context.Context) error {
	met := make(chan struct{})
	w.provider.onCall(func(string) {
		select {
		case <-met:
		case <-ctx.Done():
		}
	})
	defer w.provider.onCall(nil)
	q := ask{merchant: "ann", kind: charge, key: "order-2", body: charged(10000)}
	answers := make([]answer, w.opt.twins)
	var all sync.WaitGroup
	var once sync.Once
	for n := range answers {
		all.Go(func() {
			answers[n] = w.clients.send(ctx, w.url(n%len(w.jobs)), q)
			if answers[n].status == http.StatusConflict {
				once.Do(func() { close(met) })
			}
		})
	}
	all.Wait()
	said := make(map[string]int)
	for _, a := range answers {
		said[a.String()]++
	}
	for text, n := range said {
		w.story.Tell("  %d × %s", n, text)
	}
	if a := w.say(ctx, 0, q); !a.replayed() {
		return fmt.Errorf("the answer is %s, want a replay", a)
	}
	return ctx.Err()
}

// crash kills a process at a point of a request. The client repeats the request at the other
// process. When the claim of the dead process has ended, the other process continues the request.
func (w *walk) crash(k kind, point string) func(context.Context) error {
	return func(ctx context.Context) error {
		q := ask{merchant: "ann", kind: k, key: "crash-" + k.name, body: charged(3000), crash: point}
		if k.undoes {
			q.body = refunded(w.first.ID, 100)
		}
		if a := w.say(ctx, 0, q); a.err == nil {
			return fmt.Errorf("the process was not killed: %s", a)
		}
		q.crash = ""
		w.say(ctx, 1, q)
		a, err := w.clients.insist(ctx, w.url(1), q)
		if err != nil {
			return err
		}
		w.story.Tell("  … and again, until → %s", a)
		return errors.Join(want(a, http.StatusCreated, ""), w.restart(ctx, 0))
	}
}

func (w *walk) refund(ctx context.Context) error {
	q := ask{merchant: "ann", kind: refund, key: "back-1", body: refunded(w.first.ID, 1200)}
	err := want(w.say(ctx, 0, q), http.StatusCreated, "")
	if a := w.say(ctx, 1, q); !a.replayed() {
		err = errors.Join(err, fmt.Errorf("the second answer is %s, want a replay", a))
	}
	large := ask{merchant: "ann", kind: refund, key: "back-2", body: refunded(w.first.ID, 4000)}
	strange := ask{merchant: "bob", kind: refund, key: "back-1", body: refunded(w.first.ID, 1200)}
	return errors.Join(err,
		want(w.say(ctx, 0, large), http.StatusUnprocessableEntity, "refund_exceeds_charge"),
		want(w.say(ctx, 1, strange), http.StatusNotFound, "charge_not_found"),
	)
}

// race sends two refunds of 2000 cents at once, when 3000 cents of the charge are left.
func (w *walk) race(ctx context.Context) error {
	var all sync.WaitGroup
	answers := make([]answer, 2)
	for n := range answers {
		all.Go(func() {
			answers[n] = w.say(ctx, n, ask{merchant: "ann", kind: refund, key: fmt.Sprint("race-", n+1), body: refunded(w.first.ID, 2000)})
		})
	}
	all.Wait()
	if answers[0].status > answers[1].status {
		answers[0], answers[1] = answers[1], answers[0]
	}
	return errors.Join(
		want(answers[0], http.StatusCreated, ""),
		want(answers[1], http.StatusUnprocessableEntity, "refund_exceeds_charge"),
	)
}

// decline sends a charge and a refund that the provider declines. Then the reserved amount is free
// again, and the last refund takes all that is left of the charge.
func (w *walk) decline(ctx context.Context) error {
	q := ask{merchant: "ann", kind: charge, key: "order-3", body: charged(1066)}
	err := want(w.say(ctx, 0, q), http.StatusPaymentRequired, "payment_declined")
	again := w.say(ctx, 1, q)
	if !again.replayed() {
		err = errors.Join(err, fmt.Errorf("the second answer is %s, want a replay", again))
	}
	return errors.Join(err,
		want(w.say(ctx, 0, ask{merchant: "ann", kind: refund, key: "back-3", body: refunded(w.first.ID, 866)}), http.StatusPaymentRequired, "payment_declined"),
		want(w.say(ctx, 1, ask{merchant: "ann", kind: refund, key: "back-4", body: refunded(w.first.ID, 900)}), http.StatusCreated, ""),
	)
}

// published waits until the relay has published everything.
func (d *deployment) published(ctx context.Context) error {
	const patience = 3 * time.Minute
	return childproc.Eventually(ctx, patience, "all events to be published", func(ctx context.Context) (bool, error) {
		var events int
		if err := d.Pool.QueryRow(ctx, "SELECT count(*) FROM postroom.outbox").Scan(&events); err != nil {
			return false, fmt.Errorf("count events: %w", err)
		}
		length, err := demo.StreamLength(ctx, d.NATS, stream)
		return length >= events, err
	})
}
