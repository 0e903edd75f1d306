package postroomtest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// Behaviour is how a vendor treats one request.
type Behaviour int

// The behaviours of a vendor.
const (
	// Answers: it does the work and answers.
	Answers Behaviour = iota

	// TimesOut: it does nothing, and the caller waits until it gives up.
	TimesOut

	// AnswersLate: it does the work, but the answer comes after the caller gave up.
	AnswersLate

	// AnswersTwice: it does the work once and answers, and calls OnAnswer twice.
	AnswersTwice

	// Rejects: it does nothing and answers 503 Service Unavailable.
	Rejects
)

// Request is one that a vendor got.
type Request struct {
	Method, Path string
	Header       http.Header
	Key          string // the Idempotency-Key header
	Body         []byte
}

// Answer is what a vendor answers.
type Answer struct {
	Status int // zero is 200
	Body   []byte
}

// External is a vendor for tests: an HTTP server that misbehaves as it is told, and that
// remembers keys as good vendors do. It is safe for concurrent use.
type External struct {
	// URL is the server's, without a slash at its end.
	URL string

	// Forgetful is a vendor that knows no keys: it does the work for each request. Set it
	// before the first one.
	Forgetful bool

	// OnAnswer, unless it is nil, is called with each answer when the work is done, before
	// the answer is sent: a vendor that answers by a webhook as well. Set it before the first
	// request.
	OnAnswer func(r Request, a Answer)

	work func(r Request) Answer

	mu       sync.Mutex
	next     []Behaviour
	requests []Request
	done     map[string]Answer // by key
	works    []Request
}

// NewExternal returns a vendor that does work for a request with a key that it has not seen,
// or with none. A nil work does nothing and answers 200. The server is gone when the test
// ends.
func NewExternal(t testing.TB, work func(r Request) Answer) *External {
	t.Helper()
	if work == nil {
		work = func(Request) Answer { return Answer{} }
	}
	e := &External{work: work, done: map[string]Answer{}}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections) // which come first: requests may wait for their callers
	e.URL = server.URL
	return e
}

// Next says how the vendor treats the next requests, one after the other. After them it
// answers.
func (e *External) Next(all ...Behaviour) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.next = append(e.next, all...)
}

// Requests returns the requests that came so far.
func (e *External) Requests() []Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.requests)
}

// Works returns the requests for which work was done.
func (e *External) Works() []Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.works)
}

// ServeHTTP treats one request.
func (e *External) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller gave up
	}
	req := Request{Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone(), Key: r.Header.Get("Idempotency-Key"), Body: body}
	behaviour := e.receive(req)
	switch behaviour {
	case TimesOut:
		<-r.Context().Done()
		return
	case Rejects:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	answer := e.answer(req)
	if behaviour == AnswersLate {
		<-r.Context().Done()
	}
	times := 1
	if behaviour == AnswersTwice {
		times = 2
	}
	for range times {
		if e.OnAnswer != nil {
			e.OnAnswer(req, answer)
		}
	}
	if answer.Status != 0 {
		w.WriteHeader(answer.Status)
	}
	_, _ = w.Write(answer.Body) // a caller that gave up does not read it
}

// receive notes a request and says how it is treated.
func (e *External) receive(req Request) Behaviour {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests = append(e.requests, req)
	if len(e.next) == 0 {
		return Answers
	}
	b := e.next[0]
	e.next = e.next[1:]
	return b
}

// answer returns the answer to a request, for which the work is done if it was not before.
func (e *External) answer(req Request) Answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := req.Key != "" && !e.Forgetful
	if a, ok := e.done[req.Key]; ok && known {
		return a
	}
	a := e.work(req)
	a.Body = bytes.Clone(a.Body)
	e.works = append(e.works, req)
	if known {
		e.done[req.Key] = a
	}
	return a
}
