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

// Behaviour says what a vendor does with one request.
type Behaviour int

// The behaviours of a vendor.
const (
	// Answers: the vendor does the work and answers.
	Answers Behaviour = iota

	// TimesOut: the vendor does nothing and does not answer. The caller waits until it gives up.
	TimesOut

	// AnswersLate: the vendor does the work, but answers only after the caller gave up.
	AnswersLate

	// AnswersTwice: the vendor does the work once, calls OnAnswer twice, and answers.
	AnswersTwice

	// Rejects: the vendor does nothing and answers 503 Service Unavailable.
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
	Status int // zero means 200
	Body   []byte
}

// External is a vendor for tests. It is an HTTP server that fails when the test tells it to, and
// that remembers idempotency keys as good vendors do. It is safe for concurrent use.
type External struct {
	// URL is the server's URL, without a slash at its end.
	URL string

	// Forgetful makes the vendor ignore keys: it does the work for each request. Set Forgetful
	// before the first request.
	Forgetful bool

	// OnAnswer may be nil. The vendor calls it with each answer when the work is done, before it
	// sends the answer. Use OnAnswer for a vendor that also answers with a webhook. Set it before
	// the first request.
	OnAnswer func(r Request, a Answer)

	work    func(r Request) Answer
	working sync.Mutex        // locked while the function work runs: once for each key
	done    map[string]Answer // the answers so far, by key; the mutex working guards the map

	mu       sync.Mutex
	next     []Behaviour
	requests []Request
	works    []Request
}

// NewExternal returns a vendor. The vendor calls the function work once for each key, and for each
// request without a key. It makes one call at a time. If the function is nil, the vendor answers
// 200. NewExternal closes the server when the test ends.
func NewExternal(t testing.TB, work func(r Request) Answer) *External {
	t.Helper()
	if work == nil {
		work = func(Request) Answer { return Answer{} }
	}
	e := &External{work: work, done: map[string]Answer{}}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections) // this runs first: otherwise Close would wait for requests whose callers have not given up
	e.URL = server.URL
	return e
}

// Next sets the behaviours of the vendor for the next requests, in this order. For later requests
// the behaviour is [Answers].
func (e *External) Next(all ...Behaviour) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.next = append(e.next, all...)
}

// Requests returns the requests that the vendor has got so far.
func (e *External) Requests() []Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.requests)
}

// Works returns the requests for which the vendor has done the work.
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
	_, _ = w.Write(answer.Body) // a caller that gave up does not read the body
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

// answer returns the answer to a request. If the work for the request is not done yet, it calls the
// function work.
func (e *External) answer(req Request) Answer {
	e.working.Lock()
	defer e.working.Unlock()
	known := req.Key != "" && !e.Forgetful
	if a, ok := e.done[req.Key]; ok && known {
		return a
	}
	a := e.work(req)
	a.Body = bytes.Clone(a.Body)
	if known {
		e.done[req.Key] = a
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.works = append(e.works, req)
	return a
}
