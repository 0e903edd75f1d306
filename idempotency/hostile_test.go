package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/idempotency"
)

// endless is an error that contains itself.
type endless struct{}

func (e endless) Error() string   { return "endless" }
func (e endless) Unwrap() []error { return []error{e, e} }

// codec is a Codec that does something else while it is told to.
type codec struct {
	turn
	encode, decode func() error
}

func (c *codec) Encode(ctx context.Context, k idempotency.Key, body []byte) ([]byte, error) {
	if c.encode != nil {
		if err := c.encode(); err != nil {
			return nil, err
		}
	}
	return c.turn.Encode(ctx, k, body)
}

func (c *codec) Decode(ctx context.Context, k idempotency.Key, kept []byte) ([]byte, error) {
	if c.decode != nil {
		if err := c.decode(); err != nil {
			return nil, err
		}
	}
	return c.turn.Decode(ctx, k, kept)
}

// If a codec or an archive fails in any way, the guard rolls back and answers with a problem. No
// goroutine ends, and no connection is lost.
func TestCallbacksThatFail(t *testing.T) {
	t.Parallel()
	ways := map[string]func() error{
		"panics":            func() error { panic("no") },
		"goroutine ends":    func() error { runtime.Goexit(); return nil },
		"an endless error":  func() error { return endless{} },
		"an ordinary error": func() error { return errors.New("no") },
	}
	for name, fail := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &codec{encode: fail}
			archive := fail
			r := newRig(t, func(cfg *idempotency.Config) {
				cfg.Codec = c
				cfg.Archive = func(context.Context, pgx.Tx, []idempotency.Record) error { return archive() }
			})
			path := r.mount(idempotency.Route{}, r.refund)
			if w := r.post(path, "k"); w.Code != http.StatusInternalServerError || r.effects() != 0 {
				t.Errorf("an answer that cannot be encoded: %d, %d effects, want 500 and none", w.Code, r.effects())
			}
			c.encode = nil
			first := r.post(path, "k")
			c.decode = fail
			if w := r.post(path, "k"); w.Code != http.StatusServiceUnavailable {
				t.Errorf("an answer that cannot be decoded: %d, want 503", w.Code)
			}
			c.decode = nil
			r.wantReplay(first, r.post(path, "k"))
			r.wantCalls(2, 1)

			r.exec("UPDATE postroom.idempotency SET expires_at = now() - interval '1 hour'")
			if _, err := r.guard.Purge(t.Context(), 10); err == nil || !strings.Contains(err.Error(), "archive") {
				t.Errorf("Purge = %v, want the error of the archive", err)
			}
			archive = func() error { return nil }
			if n, err := r.guard.Purge(t.Context(), 10); n != 1 || err != nil {
				t.Errorf("Purge = %d, %v, want 1", n, err)
			}
			if n := r.pool.Stat().AcquiredConns(); n != 0 {
				t.Errorf("%d connections are still in use", n)
			}
		})
	}
}

// An error that contains itself ends an attempt in lease mode like any other.
func TestErrorThatContainsItselfEndsAnAttempt(t *testing.T) {
	t.Parallel()
	b := &bank{rig: newRig(t), answers: []error{endless{}, postroom.NotApplied(endless{})}}
	for range 2 {
		if _, err := b.pay(postroom.VendorWindow(callTimeout * 2)); !strings.Contains(err.Error(), "endless") {
			t.Errorf("%v, want the vendor's error", err)
		}
	}
	if _, err := b.pay(postroom.VendorWindow(callTimeout * 2)); err != nil || len(b.keys) != 3 {
		t.Errorf("%v after %d calls, want none and the third to succeed", err, len(b.keys))
	}
	lost := &bank{rig: newRig(t), answers: []error{postroom.NotApplied(endless{})}}
	lost.meant = func() { lost.exec("DELETE FROM postroom.idempotency") } // the claim, too
	if _, err := lost.pay(postroom.VendorWindow(callTimeout * 2)); !errors.Is(err, idempotency.ErrLeaseLost) {
		t.Errorf("%v, want the loss of the claim", err)
	}
	_, _, err := idempotency.DoLease(t.Context(), b.guard, idempotency.Operation{Scope: "p", Key: "k"}, func(ctx context.Context) (string, error) {
		return idempotency.Phase(ctx, "one", func(context.Context, pgx.Tx) (string, error) { return "", endless{} })
	})
	if err == nil || err.Error() != "endless" {
		t.Errorf("DoLease = %v, want the function's error", err)
	}
}

// odd is an error whose methods panic.
type odd struct{}

func (odd) Error() string { panic("Error") }
func (odd) Is(error) bool { panic("Is") }
func (odd) As(any) bool   { panic("As") }
func (odd) Unwrap() error { panic("Unwrap") }

// The cause of a context may be an error of any type. If its methods panic or do not return, the
// attempt ends with an error, in both modes.
func TestOddCausesEndNothing(t *testing.T) {
	t.Parallel()
	for name, strange := range map[string]error{"panics": odd{}, "contains itself": endless{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			ended := func(what string, err error) {
				t.Helper()
				if err == nil || strings.Contains(err.Error(), "it panicked") {
					t.Errorf("%s: %v, want an error", what, err)
				}
			}
			orPanic := func(f func() error) (err error) {
				defer func() {
					if v := recover(); v != nil {
						err = fmt.Errorf("it panicked: %v", v)
					}
				}()
				return f()
			}
			op := func(key string) idempotency.Operation { return idempotency.Operation{Scope: "s", Key: key} }
			ended("Do", orPanic(func() error {
				ctx, cancel := context.WithCancelCause(t.Context())
				_, _, err := idempotency.Do(ctx, r.guard, op("a"), func(context.Context, pgx.Tx) (int, error) { cancel(strange); return 1, nil })
				return err
			}))
			ended("Do whose statement is interrupted", orPanic(func() error {
				ctx, cancel := context.WithCancelCause(t.Context())
				_, _, err := idempotency.Do(ctx, r.guard, op("b"), func(ctx context.Context, tx pgx.Tx) (int, error) {
					cancel(strange)
					_, _ = tx.Exec(ctx, "SELECT 1")
					return 1, nil
				})
				return err
			}))
			ended("DoLease", orPanic(func() error {
				ctx, cancel := context.WithCancelCause(t.Context())
				_, _, err := idempotency.DoLease(ctx, r.guard, op("c"), func(ctx context.Context) (int, error) { cancel(strange); return 1, ctx.Err() })
				return err
			}))
			ended("Phase", orPanic(func() error {
				ctx, cancel := context.WithCancelCause(t.Context())
				_, _, err := idempotency.DoLease(ctx, r.guard, op("d"), func(ctx context.Context) (int, error) {
					return idempotency.Phase(ctx, "one", func(ctx context.Context, tx pgx.Tx) (int, error) {
						cancel(strange)
						_, err := tx.Exec(ctx, "SELECT 1")
						return 1, err
					})
				})
				return err
			}))
			ended("Call", orPanic(func() error {
				ctx, cancel := context.WithCancelCause(t.Context())
				_, _, err := idempotency.DoLease(ctx, r.guard, op("e"), func(ctx context.Context) (int, error) {
					return idempotency.Call(ctx, "one", func(ctx context.Context, _ string) (int, error) {
						cancel(strange)
						return 1, ctx.Err()
					}, postroom.VendorWindow(time.Hour))
				})
				return err
			}))
			ended("Call that does not begin", orPanic(func() error {
				ctx, cancel := context.WithCancelCause(t.Context())
				_, _, err := idempotency.DoLease(ctx, r.guard, op("f"), func(ctx context.Context) (int, error) {
					cancel(strange)
					return idempotency.Call(ctx, "one", func(context.Context, string) (int, error) { return 1, nil }, postroom.VendorWindow(time.Hour))
				})
				return err
			}))
			path := r.mount(idempotency.Route{CancelOnDisconnect: true}, func(w http.ResponseWriter, req *http.Request) {
				cancel, _ := req.Context().Value(cancelOf{}).(context.CancelCauseFunc)
				cancel(strange)
				w.WriteHeader(http.StatusCreated)
			})
			ended("a request", orPanic(func() error {
				ctx, cancel := context.WithCancelCause(t.Context())
				w := r.send(path, sending{key: "k", ctx: context.WithValue(ctx, cancelOf{}, cancel)})
				r.want(w, 503, "request_interrupted")
				return errors.New(w.Body.String())
			}))
		})
	}
}

type cancelOf struct{}
