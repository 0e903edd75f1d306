package outbound_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbound"
)

// TestOutcomesDecideTheNumberOfAttempts makes each attempt end the same way, and counts the
// attempts.
func TestOutcomesDecideTheNumberOfAttempts(t *testing.T) {
	type ending struct {
		resp func() *http.Response
		err  error
	}
	answered := func(code int, headers ...string) ending {
		return ending{resp: func() *http.Response { return status(code, headers...) }}
	}
	failed := func(err error) ending { return ending{err: err} }
	const all = 5
	tests := []struct {
		name    string
		end     ending
		get     int // attempts by GET
		keyed   int // attempts by POST with a key
		keyless int // attempts by POST without a key
	}{
		{"200", answered(200), 1, 1, 1},
		{"204", answered(204), 1, 1, 1},
		{"400", answered(400), 1, 1, 1},
		{"401", answered(401), 1, 1, 1},
		{"403", answered(403), 1, 1, 1},
		{"404", answered(404), 1, 1, 1},
		{"408", answered(408), all, all, 1},
		{"409", answered(409), 1, 1, 1},
		{"409 with Retry-After", answered(409, "Retry-After", "1"), all, all, 1},
		{"422", answered(422), 1, 1, 1},
		{"400 with Retry-After", answered(400, "Retry-After", "1"), 1, 1, 1},
		{"425", answered(425), all, all, 1},
		{"429", answered(429), all, all, 1},
		{"500", answered(500), all, all, 1},
		{"500 of an earlier call", answered(500, "Idempotent-Replayed", "true"), all, 1, 1},
		{"501", answered(501), 1, 1, 1},
		{"502", answered(502), all, all, 1},
		{"503", answered(503), all, all, 1},
		{"504", answered(504), all, all, 1},
		{"505", answered(505), 1, 1, 1},
		{"520", answered(520), all, all, 1},
		{"connection refused", failed(errRefused), all, all, all},
		{"connection reset", failed(errReset), all, all, 1},
		{"end of file", failed(io.ErrUnexpectedEOF), all, all, 1},
		{"an unknown certificate", failed(x509.UnknownAuthorityError{}), 1, 1, 1},
		{"a wrapped one", failed(fmt.Errorf("dial: %w", x509.HostnameError{Certificate: &x509.Certificate{}})), 1, 1, 1},
	}
	for _, tt := range tests {
		for method, want := range map[string]int{"GET": tt.get, "PUT": tt.get, "POST": tt.keyless, "PATCH": tt.keyless, "POST keyed": tt.keyed} {
			if method == "PUT" && tt.name == "500 of an earlier call" {
				continue
			}
			t.Run(tt.name+" "+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					v := &vendor{answer: func(int, *http.Request) (*http.Response, error) {
						if tt.end.err != nil {
							return nil, tt.end.err
						}
						return tt.end.resp(), nil
					}}
					ctx := t.Context()
					verb := method
					if method == "POST keyed" {
						verb, ctx = "POST", outbound.WithKey(ctx, "k1")
					}
					resp, err := client(v, outbound.Config{}).Do(request(ctx, t, verb, "x"))
					if err == nil {
						_ = resp.Body.Close()
					}
					if v.count() != want {
						t.Errorf("%d attempts, want %d (%v)", v.count(), want, err)
					}
					if open := v.open.Load(); open != 0 {
						t.Errorf("%d bodies are still open", open)
					}
				})
			})
		}
	}
}

func TestConflictOfACallThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vendor{answer: func(n int, _ *http.Request) (*http.Response, error) {
			if n == 2 {
				return status(201), nil
			}
			resp := status(409, "Content-Type", "application/problem+json")
			resp.Body = io.NopCloser(strings.NewReader(`{"code":"idempotency_in_progress"}`))
			return resp, nil
		}}
		got, err := client(v, outbound.Config{}).Fetch(request(outbound.WithKey(t.Context(), "k"), t, "POST", "x"))
		if err != nil || string(got) != "answer" || v.count() != 2 {
			t.Errorf("Fetch = %q, %v after %d attempts", got, err, v.count())
		}
	})
}

// The caller can still read the part of the body that the transport has read.
func TestConflictKeepsItsBody(t *testing.T) {
	const text = `{"code":"already_charged","charge":"ch_1"}`
	v := &vendor{answer: func(int, *http.Request) (*http.Response, error) {
		resp := status(409, "Content-Type", "application/json")
		resp.Body = io.NopCloser(strings.NewReader(text))
		return resp, nil
	}}
	resp, err := client(v, outbound.Config{}).HTTP().Do(request(t.Context(), t, "POST", "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got, err := io.ReadAll(resp.Body); string(got) != text || err != nil {
		t.Errorf("body %q, %v", got, err)
	}
}

func TestProtocolsDecide(t *testing.T) {
	tests := []struct {
		name     string
		protocol outbound.Protocol
		code     int
		headers  []string
		want     int
	}{
		{"Stripe says no", outbound.Stripe(), 500, []string{"Stripe-Should-Retry", "false"}, 1},
		{"Stripe says yes", outbound.Stripe(), 409, []string{"Stripe-Should-Retry", "true"}, 5},
		{"Stripe says nothing", outbound.Stripe(), 503, nil, 5},
		{"Adyen's failure that passes", outbound.Adyen(), 422, []string{"transient-error", "true"}, 5},
		{"Adyen's failure that stays", outbound.Adyen(), 422, nil, 1},
		{"Adyen's conflict", outbound.Adyen(), 409, []string{"Retry-After", "1"}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := always(tt.code, tt.headers...)
				_, err := client(v, outbound.Config{Protocol: tt.protocol}).Do(request(outbound.WithKey(t.Context(), "k"), t, "POST", "x"))
				if err == nil || v.count() != tt.want {
					t.Errorf("%d attempts, %v; want %d", v.count(), err, tt.want)
				}
			})
		})
	}
}

func TestDecideComesBeforeTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := func(*http.Response, error) outbound.Decision { return outbound.Stop }
		v := always(503)
		_, err := client(v, outbound.Config{Decide: stop}).Do(request(t.Context(), t, "GET", ""))
		if err == nil || v.count() != 1 {
			t.Errorf("%d attempts, %v; want 1", v.count(), err)
		}
		retry := func(*http.Response, error) outbound.Decision { return outbound.Retry }
		v = always(404)
		if _, err := client(v, outbound.Config{Decide: retry}).Do(request(t.Context(), t, "GET", "")); !errors.Is(err, outbound.ErrAttempts) || v.count() != 5 {
			t.Errorf("%d attempts, %v; want 5", v.count(), err)
		}
		v = always(503)
		if _, err := client(v, outbound.Config{Decide: retry}).Do(request(t.Context(), t, "POST", "x")); err == nil || v.count() != 1 {
			t.Errorf("%d attempts of a POST without key, %v; want 1", v.count(), err)
		}
		if _, err := client(v, outbound.Config{}).Do(request(outbound.Repeatable(t.Context()), t, "POST", "x")); err == nil || v.count() != 6 {
			t.Errorf("%d attempts of a POST that is repeatable, %v; want 5", v.count()-1, err)
		}
	})
}

// TestErrorsTellAHandlerWhatToDo checks what an external handler returns for each error.
func TestErrorsTellAHandlerWhatToDo(t *testing.T) {
	tests := []struct {
		name      string
		answer    func(n int, req *http.Request) (*http.Response, error)
		notDone   bool
		notSent   bool
		permanent bool
		after     time.Duration
		class     outbound.Class
		reason    outbound.Reason
	}{
		{"connection refused", func(int, *http.Request) (*http.Response, error) { return nil, errRefused }, true, true, false, 0, outbound.ClassConnection, outbound.ReasonAttempts},
		{"connection reset", func(int, *http.Request) (*http.Response, error) { return nil, errReset }, false, false, false, 0, outbound.ClassConnection, outbound.ReasonAttempts},
		{"reset, then refused", func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return nil, errReset
			}
			return nil, errRefused
		}, false, false, false, 0, outbound.ClassConnection, outbound.ReasonAttempts},
		{"a fault of the request", inTurn(400).answer, true, false, true, 0, outbound.ClassInvalid, outbound.ReasonFinal},
		{"out of order, then a fault of the request", inTurn(503, 400).answer, false, false, true, 0, outbound.ClassInvalid, outbound.ReasonFinal},
		{"a wrong password", inTurn(401).answer, true, false, true, 0, outbound.ClassAuth, outbound.ReasonFinal},
		{"out of order", inTurn(503).answer, false, false, false, 0, outbound.ClassUnavailable, outbound.ReasonAttempts},
		{"too many requests, for long", always(429, "Retry-After", "3600").answer, true, false, false, time.Hour, outbound.ClassRateLimited, outbound.ReasonWait},
		{"too many requests", inTurn(429).answer, true, false, false, 0, outbound.ClassRateLimited, outbound.ReasonAttempts},
		{"conflict after a doubt", inTurn(500, 409).answer, false, false, false, 0, outbound.ClassConflict, outbound.ReasonFinal},
		{"timeouts", hangs, false, false, false, 0, outbound.ClassTimeout, outbound.ReasonDeadline},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &vendor{answer: tt.answer}
				_, err := client(v, outbound.Config{}).Do(request(outbound.WithKey(t.Context(), "k"), t, "POST", "x"))
				var e *outbound.Error
				if !errors.As(err, &e) {
					t.Fatalf("Do = %v, want an *Error", err)
				}
				if e.Class != tt.class || e.Reason != tt.reason {
					t.Errorf("class %s, reason %s, want %s, %s: %v", e.Class, e.Reason, tt.class, tt.reason, err)
				}
				if got := errors.Is(err, postroom.ErrNotApplied); got != tt.notDone {
					t.Errorf("NotApplied = %v, want %v", got, tt.notDone)
				}
				if got := errors.Is(err, outbound.ErrNotSent); got != tt.notSent {
					t.Errorf("is ErrNotSent: %v, want %v", got, tt.notSent)
				}
				told := outbound.ForHandler(err)
				if got := errors.Is(told, postroom.ErrPermanent); got != tt.permanent {
					t.Errorf("permanent: %v, want %v", got, tt.permanent)
				}
				if got, _ := postroom.RetryDelay(told); got != tt.after {
					t.Errorf("retry after %s, want %s", got, tt.after)
				}
				if !errors.Is(told, err) {
					t.Errorf("ForHandler lost the error: %v", told)
				}
			})
		})
	}
	if got := outbound.ForHandler(nil); got != nil {
		t.Errorf("ForHandler(nil) = %v", got)
	}
	if got := outbound.ForHandler(context.Canceled); !errors.Is(got, context.Canceled) || errors.Is(got, postroom.ErrPermanent) {
		t.Errorf("ForHandler of another error = %v", got)
	}
}
