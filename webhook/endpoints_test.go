package webhook_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/webhook"
)

var ann = postroom.Audit{Actor: "ann", Reason: "the customer asked for it"}

func TestEndpointsAreAddedAndChanged(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	store := webhook.NewEndpoints(pool, webhook.EndpointsConfig{})
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(store.Check(t.Context()))
	id, secret, err := store.Add(t.Context(), webhook.EndpointSpec{URL: "https://example.com/hooks?token=zzz"}, ann)
	check(err)
	if key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(secret), "whsec_")); err != nil || len(key) < 24 {
		t.Errorf("the secret has %d bytes, %v", len(key), err)
	}
	given := webhook.Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	second, got, err := store.Add(t.Context(), webhook.EndpointSpec{ID: "b", Account: "acme", URL: "https://example.com", Types: []string{"order.placed"}, Secret: given}, ann)
	check(err)
	if second != "b" || got != given {
		t.Errorf("added %s with another secret than was given", second)
	}
	if _, _, err := store.Add(t.Context(), webhook.EndpointSpec{ID: "b", URL: "https://example.com"}, ann); !errors.Is(err, webhook.ErrEndpointExists) {
		t.Errorf("the same id again: %v", err)
	}
	check(store.Disable(t.Context(), "b", ann))
	rotated, err := store.Rotate(t.Context(), id, "", ann)
	check(err)
	if rotated == secret || string(rotated) == "" {
		t.Error("Rotate returned no new secret")
	}

	all, err := store.List(t.Context(), []string{}...)
	check(err)
	if len(all) != 2 || all[0].ID != id || all[0].RotatedAt.IsZero() || !all[0].DisabledAt.IsZero() || all[1].Account != "acme" || all[1].DisabledReason != ann.Reason || all[1].DisabledAt.IsZero() {
		t.Errorf("endpoints: %+v", all)
	}
	check(store.Enable(t.Context(), "b", ann))
	if of, err := store.List(t.Context(), "acme"); err != nil || len(of) != 1 || of[0].DisabledReason != "" || !of[0].DisabledAt.IsZero() {
		t.Errorf("endpoints of acme: %+v, %v", of, err)
	}
	shown, err := json.Marshal(all)
	check(err)
	for _, s := range []webhook.Secret{secret, given, rotated} {
		if text := fmt.Sprintf("%v %s %#v %+v", s, s, s, webhook.EndpointSpec{Secret: s}); strings.Contains(text, string(s)) || strings.Contains(string(shown), string(s)) {
			t.Errorf("a secret is shown: %s %s", text, shown)
		}
	}
	var actions string
	check(pool.QueryRow(t.Context(), "SELECT string_agg(action || ' ' || actor, ', ' ORDER BY id) FROM postroom.audit WHERE details ->> 'endpoint' IN ('b', $1)", id).Scan(&actions))
	if want := "webhook add ann, webhook add ann, webhook disable ann, webhook rotate ann, webhook enable ann"; actions != want {
		t.Errorf("the audit has %q, want %q", actions, want)
	}
	for _, err := range []error{
		store.Disable(t.Context(), "c", ann), store.Enable(t.Context(), "c", ann), failed(store.Rotate(t.Context(), "c", "", ann)),
	} {
		if !errors.Is(err, webhook.ErrUnknownEndpoint) {
			t.Errorf("an unknown endpoint: %v", err)
		}
	}
}

func failed[T any](_ T, err error) error { return err }

func TestAddRefusesBadEndpoints(t *testing.T) {
	t.Parallel()
	store := webhook.NewEndpoints(devtest.Pool(t), webhook.EndpointsConfig{})
	valid := func(change func(e *webhook.EndpointSpec)) webhook.EndpointSpec {
		e := webhook.EndpointSpec{URL: "https://example.com"}
		change(&e)
		return e
	}
	for _, tt := range []struct {
		want string
		e    webhook.EndpointSpec
	}{
		{"begin with https", valid(func(e *webhook.EndpointSpec) { e.URL = "http://example.com" })},
		{"contains a user", valid(func(e *webhook.EndpointSpec) { e.URL = "https://a:hunter2@example.com" })},
		{"no host", valid(func(e *webhook.EndpointSpec) { e.URL = "https:///x" })},
		{"a fragment", valid(func(e *webhook.EndpointSpec) { e.URL = "https://example.com/#hunter2" })},
		{"is not valid", valid(func(e *webhook.EndpointSpec) { e.URL = "https://exa\x00mple.com/hunter2" })},
		{"ID must be", valid(func(e *webhook.EndpointSpec) { e.ID = "a b" })},
		{"Account must be", valid(func(e *webhook.EndpointSpec) { e.Account = strings.Repeat("a", 256) })},
		{"Account begins or ends with white space", valid(func(e *webhook.EndpointSpec) { e.Account = "a " })},
		{"Account has a control character", valid(func(e *webhook.EndpointSpec) { e.Account = "a\nb" })},
		{"not a valid event type", valid(func(e *webhook.EndpointSpec) { e.Types = []string{"a b"} })},
		{"is not whsec_", valid(func(e *webhook.EndpointSpec) { e.Secret = "hunter2" })},
		{"has 3 bytes", valid(func(e *webhook.EndpointSpec) { e.Secret = "whsec_aGh1" })},
	} {
		_, _, err := store.Add(t.Context(), tt.e, ann)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v, want %q in it", err, tt.want)
		}
	}
	if _, _, err := store.Add(t.Context(), webhook.EndpointSpec{URL: "https://example.com"}, postroom.Audit{}); err == nil || !strings.Contains(err.Error(), "Actor is empty") {
		t.Errorf("without an actor: %v", err)
	}
	if err := store.Disable(t.Context(), "x", postroom.Audit{Actor: "ann"}); err == nil || !strings.Contains(err.Error(), "Reason is empty") {
		t.Errorf("without a reason: %v", err)
	}
	if err := webhook.NewEndpoints(nil, webhook.EndpointsConfig{Schema: "a b"}).Enable(t.Context(), "x", ann); err == nil || !strings.Contains(err.Error(), "Schema") {
		t.Errorf("with a wrong schema: %v", err)
	}
}

// An endpoint that is added in a transaction that rolls back does not exist.
func TestEndpointInATransaction(t *testing.T) {
	t.Parallel()
	pool, rolledBack := devtest.Pool(t), errors.New("rolled back")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, _, err := webhook.NewEndpoints(tx, webhook.EndpointsConfig{}).Add(t.Context(), webhook.EndpointSpec{URL: "https://example.com"}, ann)
		return errors.Join(err, rolledBack)
	})
	if all, _ := webhook.NewEndpoints(pool, webhook.EndpointsConfig{}).List(t.Context()); !errors.Is(err, rolledBack) || len(all) != 0 {
		t.Errorf("%v, and %d endpoints", err, len(all))
	}
}

// An endpoint is removed with its URL and its secrets. The event that waits for it becomes dead, and
// the audit says who removed the endpoint.
func TestRemoveAnEndpoint(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, nil), newReceiver(t)
	to.answer(500)
	for _, id := range []string{"leaves", "stays"} {
		r.add(webhook.EndpointSpec{ID: id, URL: to.URL})
	}
	r.run()
	r.emit("e1", nil)
	r.failed("leaves")
	if err := r.store.Remove(t.Context(), "leaves", postroom.Audit{Actor: "ann"}); err == nil || !strings.Contains(err.Error(), "Reason is empty") {
		t.Errorf("without a reason: %v", err)
	}
	if err := r.store.Remove(t.Context(), "leaves", ann); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Remove(t.Context(), "leaves", ann); !errors.Is(err, webhook.ErrUnknownEndpoint) {
		t.Errorf("removed again: %v", err)
	}
	r.overrideNextAtAndPause()
	r.eventually("the waiting event to be dead", func() bool {
		d, _ := r.heldOf("leaves")
		return d.Dead && d.Class == "permanent" && strings.Contains(d.Text, "there is no such endpoint")
	})
	if got := one[string](r, "SELECT string_agg(id, ' ') FROM postroom.webhook_endpoint"); got != "stays" {
		t.Errorf("endpoints: %s", got)
	}
	if n := one[int](r, "SELECT count(*) FROM postroom.audit WHERE action = 'webhook remove' AND details ->> 'endpoint' = 'leaves'"); n != 1 {
		t.Errorf("%d rows in the audit, want 1", n)
	}
}

// An endpoint is removed while a request to it runs, and the request fails. Its event is dead at once,
// because there is nothing to wait for, and the failure says what happened.
func TestRemoveAnEndpointDuringARequest(t *testing.T) {
	t.Parallel()
	r, to := newRig(t, nil), newReceiver(t)
	to.answer(500)
	begun, answer := make(chan struct{}, 10), make(chan struct{})
	to.before = func() {
		begun <- struct{}{}
		<-answer
	}
	r.add(webhook.EndpointSpec{ID: "leaves", URL: to.URL})
	r.run()
	end := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(end)
	r.emit("e1", nil)
	devtest.Receive(t, patience, "the request", begun)
	if err := r.store.Remove(t.Context(), "leaves", ann); err != nil {
		t.Fatal(err)
	}
	end()
	if d := r.failed("leaves"); !d.Dead || d.Class != "permanent" || !strings.Contains(d.Text, "answered 500") || !strings.Contains(d.Text, "there is no such endpoint") {
		t.Errorf("%+v, want a dead event whose failure says that the endpoint is gone", d)
	}
}

// An event was delivered, but this could not be recorded at once. Meanwhile its endpoint is removed or
// disabled. The event is done, and not dead: an operator who replays dead events would otherwise deliver
// it again.
func TestADeliveredEventIsDoneAfterItsEndpointIsGone(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*webhook.Endpoints, context.Context, string, postroom.Audit) error{
		"removed": (*webhook.Endpoints).Remove, "disabled": (*webhook.Endpoints).Disable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, to := newRig(t, nil), newReceiver(t)
			r.add(webhook.EndpointSpec{ID: "ep", URL: to.URL})
			r.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$`)
			r.exec(`CREATE TRIGGER refuse BEFORE DELETE ON postroom.held FOR EACH ROW WHEN (OLD.handler = 'webhooks') EXECUTE FUNCTION refuse()`)
			r.run()
			r.emit("e1", nil)
			r.failed("ep")
			if err := end(r.store, t.Context(), "ep", ann); err != nil {
				t.Fatal(err)
			}
			r.exec("DROP TRIGGER refuse ON postroom.held")
			r.overrideNextAtAndPause()
			r.eventually("the event to be done or dead", func() bool { return one[int](r, "SELECT count(*) FROM postroom.held WHERE dead_at IS NULL") == 0 })
			if d, _ := r.heldOf("ep"); d.Dead || len(to.requests()) != 1 {
				t.Errorf("%+v after %d requests, want an event that is done after one", d, len(to.requests()))
			}
		})
	}
}
