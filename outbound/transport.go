package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/guard"
)

// Transport is an [http.RoundTripper] that repeats requests if that is safe. It is safe for
// concurrent use. It has its own budgets and breakers, unless Config.Hosts is set. So use one
// Transport for each vendor, and not a new one for each call.
type Transport struct {
	cfg     Config
	err     error // the faults of the Config
	metrics *metrics
	hosts   *Hosts
}

// NewTransport returns a transport. It does no I/O and cannot fail: [Transport.Check] and every
// call return the faults of the Config.
func NewTransport(cfg Config) *Transport {
	cfg = cfg.defaults()
	t := &Transport{cfg: cfg, metrics: newMetrics(cfg), hosts: cfg.Hosts}
	if t.hosts == nil {
		t.hosts = NewHosts(cfg.Budget, cfg.Breaker)
	}
	if err := cfg.validate(); err != nil {
		t.err = fmt.Errorf("outbound: %w", err)
	}
	return t
}

// Check returns all faults of the Config, as an error that matches postroom.ErrUnrecoverable. It does no
// I/O: it takes a context like every Check, so that [postroom.Checks] takes it.
func (t *Transport) Check(context.Context) error { return postroom.Unrecoverable(t.err) }

// CloseIdleConnections closes the connections that are not in use, if Next supports that.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.cfg.Next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip carries out one operation. It does not change the request, and closes the request's
// body. If the last attempt had a response, RoundTrip returns the response, with its body open and
// complete. [CheckResponse] says whether the response is a failure, and why. If there was no
// response, the error is an [Error].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.err != nil {
		closeBody(req)
		return nil, t.err
	}
	op := &operation{t: t, req: req, body: &body{first: req.Body}, tries: tries{attemptsLeft: t.cfg.Attempts}, deadline: time.Now().Add(t.cfg.Total)}
	op.follow()
	if from, err := strayed(req); err != nil {
		return nil, op.refuse(from, err)
	}
	//guard:an-upgrade-takes-no-secret-along 2 true
	if req.Header.Get("Upgrade") != "" && !op.foreign {
		return op.upgrade()
	}
	if req.Context().Value(attemptOf{}) != nil {
		//guard:one-layer-repeats remove
		op.attemptsLeft = 1 // another Transport around this one repeats attempts
	}
	if err := op.prepare(); err != nil {
		if req.Context().Err() != nil && errors.Is(err, req.Context().Err()) {
			return op.finish(result{err: err, class: ClassCanceled}, ReasonCanceled)
		}
		if req.Response != nil { // the request was valid before the redirect
			return nil, op.refuse(req.Response, err)
		}
		return op.finish(result{err: err, class: ClassInvalid}, ReasonRequest)
	}
	return op.run()
}

// upgrade passes a request for another protocol on. No limit applies to an upgraded connection.
func (op *operation) upgrade() (*http.Response, error) {
	p := new(probe)
	resp, err := op.t.cfg.Next.RoundTrip(op.req.WithContext(httptrace.WithClientTrace(op.req.Context(), p.trace())))
	op.attempts++
	op.body = nil // Next has closed it
	if op.req.URL != nil {
		op.host = &host{name: hostOf(op.req.URL)}
	}
	if err == nil && resp != nil {
		told := toldOf(resp)
		op.class, op.later = classOf(op.req.Method, resp, told)
		op.reason, op.delivered = ReasonFinal, true
		//guard:a-repetition-of-an-upgrade-is-a-doubt 1 false
		if p.wrote.Load() > 1 || !op.t.cfg.Protocol.rejected(resp, told) {
			op.unsure = true
		}
		resp.Request = op.req.WithContext(context.WithValue(op.req.Context(), resultOf{}, op)) // for CheckResponse
		return resp, nil
	}
	if err == nil {
		err = errNothing
	}
	err = guard.Seal(err) // a user's code may have made the error
	_, native := op.t.cfg.Next.(*http.Transport)
	class, again := classOfError(err, native, p.asked.Load())
	//guard:an-upgrade-that-was-sent-may-have-acted false
	if !p.unsent(err) {
		op.delivered, op.unsure = true, true
	}
	return op.finish(result{err: err, class: class, later: again}, ReasonFinal)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// breakerIs logs a change of a breaker and records it in the metrics, while the breaker is locked.
func (t *Transport) breakerIs(h *host, state gobreaker.State) {
	t.metrics.breakerIs(h.name, state)
	switch state {
	case gobreaker.StateOpen:
		t.cfg.Logger.Warn("circuit breaker opened: calls fail at once", "host", h.name, "for", h.breaker.openFor)
	case gobreaker.StateClosed:
		t.cfg.Logger.Info("circuit breaker closed", "host", h.name)
	}
}

// hostOf returns the host of a URL, and the port if it is not the default port of the scheme.
func hostOf(u *url.URL) string {
	name, port := strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), u.Port()
	if port == "" || port == portOf(u) {
		return name
	}
	return net.JoinHostPort(name, port)
}

func portOf(u *url.URL) string {
	if strings.EqualFold(u.Scheme, "https") {
		return "443"
	}
	return "80"
}

// sameOrigin reports whether secrets for one URL may be sent to another URL. The host must be the
// same. Also, scheme and port must be the same, or change from port 80 to https with port 443.
func sameOrigin(from, to *url.URL) bool {
	if !strings.EqualFold(from.Hostname(), to.Hostname()) {
		return false
	}
	before, after := cmp.Or(from.Port(), portOf(from)), cmp.Or(to.Port(), portOf(to))
	//guard:a-secret-keeps-its-tls 1.1 true
	return strings.EqualFold(from.Scheme, to.Scheme) && before == after ||
		//guard:a-port-is-another-host = @1
		strings.EqualFold(to.Scheme, "https") && before == "80" && after == "443"
}
