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

// Vendor is a vendor for tests. It is an HTTP server that fails when the test tells it to, and
// that remembers idempotency keys as good vendors do. It is safe for concurrent use.
type Vendor struct {
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

// NewVendor returns a vendor. The vendor calls the function work once for each key, and for each
// request without a key. It makes one call at a time. If the function is nil, the vendor answers
// 200. NewVendor closes the server when the test ends.
func NewVendor(t testing.TB, work func(r Request) Answer) *Vendor {
	t.Helper()
	if work == nil {
		work = func(Request) Answer { return Answer{} }
	}
	v := &Vendor{work: work, done: map[string]Answer{}}
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections) // this runs first: otherwise Close would wait for requests whose callers have not given up
	v.URL = server.URL
	return v
}

// Next sets the behaviours of the vendor for the next requests, in this order. For later requests
// the behaviour is [Answers].
func (v *Vendor) Next(all ...Behaviour) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.next = append(v.next, all...)
}

// Requests returns the requests that the vendor has got so far.
func (v *Vendor) Requests() []Request {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.requests)
}

// Works returns the requests for which the vendor has done the work.
func (v *Vendor) Works() []Request {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.works)
}

// ServeHTTP handles one request.
func (v *Vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller gave up
	}
	req := Request{Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone(), Key: r.Header.Get("Idempotency-Key"), Body: body}
	behaviour := v.receive(req)
	switch behaviour {
	case TimesOut:
		<-r.Context().Done()
		return
	case Rejects:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	answer := v.answer(req)
	if behaviour == AnswersLate {
		<-r.Context().Done()
	}
	times := 1
	if behaviour == AnswersTwice {
		times = 2
	}
	for range times {
		if v.OnAnswer != nil {
			v.OnAnswer(req, answer)
		}
	}
	if answer.Status != 0 {
		w.WriteHeader(answer.Status)
	}
	_, _ = w.Write(answer.Body) // a caller that gave up does not read the body
}

// receive records a request and returns the behaviour for it.
func (v *Vendor) receive(req Request) Behaviour {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.requests = append(v.requests, req)
	if len(v.next) == 0 {
		return Answers
	}
	b := v.next[0]
	v.next = v.next[1:]
	return b
}

// answer returns the answer to a request. If the work for the request is not done yet, it calls the
// function work.
func (v *Vendor) answer(req Request) Answer {
	v.working.Lock()
	defer v.working.Unlock()
	known := req.Key != "" && !v.Forgetful
	if a, ok := v.done[req.Key]; ok && known {
		return a
	}
	a := v.work(req)
	a.Body = bytes.Clone(a.Body)
	if known {
		v.done[req.Key] = a
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.works = append(v.works, req)
	return a
}
