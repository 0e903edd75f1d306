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

// Request is a request that a vendor got.
type Request struct {
	Method, Path string
	Header       http.Header
	Key          string // the Idempotency-Key header
	Body         []byte
}

// Answer is the answer of a vendor.
type Answer struct {
	Status int // zero is 200
	Body   []byte
}

// External is a vendor for tests: an HTTP server that misbehaves as you tell it, and that remembers
// keys as good vendors do. It is safe for concurrent use.
type External struct {
	// URL is the server's URL, without a slash at its end.
	URL string

	// Forgetful makes a vendor that knows no keys: it does the work for each request. Set it before
	// the first request.
	Forgetful bool

	// OnAnswer, if it is not nil, is called with each answer when the work is done, before the
	// answer is sent. Use it for a vendor that also answers by a webhook. Set it before the first
	// request.
	OnAnswer func(r Request, a Answer)

	work func(r Request) Answer

	mu       sync.Mutex
	next     []Behaviour
	requests []Request
	done     map[string]Answer // by key
	works    []Request
}

// NewExternal returns a vendor. It calls work for each request that has no key, or a key that it
// has not seen. If work is nil, the vendor answers 200. The server is closed when the test ends.
func NewExternal(t testing.TB, work func(r Request) Answer) *External {
	t.Helper()
	if work == nil {
		work = func(Request) Answer { return Answer{} }
	}
	e := &External{work: work, done: map[string]Answer{}}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections) // the connections first, because requests may wait for their callers
	e.URL = server.URL
	return e
}

// Next says how the vendor behaves for the next requests, one after the other. Later requests get
// [Answers].
func (e *External) Next(all ...Behaviour) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.next = append(e.next, all...)
}

// Requests returns the requests that arrived so far.
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

// ServeHTTP handles one request.
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

// receive records a request and returns the behaviour for it.
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

// answer returns the answer to a request. If the work for it is not done yet, answer does it.
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
