package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// provider moves money. It honours an Idempotency-Key: for one key it moves the money once, and
// always gives the same answer. For a quarter of the operations, the first call fails. For another
// quarter, the provider moves the money and loses the first answer. Then the caller does not know
// the result.
type provider struct {
	url    string
	server *http.Server
	served chan error
	tell   func(format string, args ...any)

	mu    sync.Mutex
	kept  map[string]*keyRecord // by key
	calm  bool                  // if true, nothing goes wrong
	asked func(key string)      // runs when a call reaches the provider; may be nil
}

// keyRecord is what the provider remembers of a key.
type keyRecord struct {
	n              int // the number of the operation
	kind           string
	asked          instruction
	answer         receipt
	done           bool
	calls, effects int
}

// The provider divides an operation's number by the constant every. If the remainder is outOfOrder,
// the operation's first call fails. If the remainder is losesAnswer, the first answer is lost.
const (
	every       = 4
	outOfOrder  = 1
	losesAnswer = 2
)

// isDeclined reports whether the provider declines an amount: it declines amounts that end in 66
// cents.
func isDeclined(amount int64) bool { return amount%100 == 66 }

// startProvider starts the provider at a free port. The provider calls tell to report its answers.
func startProvider(tell func(format string, args ...any)) (*provider, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	p := &provider{
		url: "http://" + listener.Addr().String(), tell: tell, kept: make(map[string]*keyRecord), served: make(chan error, 1),
	}
	p.server = &http.Server{Handler: p, ReadTimeout: 10 * time.Second}
	go func() { p.served <- p.server.Serve(listener) }() // ends with close
	return p, nil
}

func (p *provider) close() error {
	down := p.server.Close()
	if err := <-p.served; !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(fmt.Errorf("serve as the provider: %w", err), down)
	}
	return down
}

// ServeHTTP answers POST /v1/charges and POST /v1/refunds.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/v1/"), "s")
	key := r.Header.Get("Idempotency-Key")
	var asked instruction
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || key == "" || kind != charge.name && kind != refund.name {
		http.Error(w, "want an instruction with an Idempotency-Key", http.StatusBadRequest)
		return
	}
	if hook := p.hook(); hook != nil {
		hook(key)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k, first := p.note(key, kind, asked)
	said := fmt.Sprintf("    provider: %s of %d, call %d with its key", kind, asked.Amount, k.calls)
	switch {
	case k.asked != asked || k.kind != kind:
		http.Error(w, "the key was used for another instruction", http.StatusUnprocessableEntity)
		return
	case first && !p.calm && k.n%every == outOfOrder:
		p.tell("%s: 503, come again in a second", said)
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case k.done:
		p.tell("%s: %s, as it was told before", said, k.answer)
	default:
		k.do()
		p.tell("%s: %s", said, k.answer)
	}
	if first && !p.calm && k.n%every == losesAnswer {
		p.tell("    provider: and the answer is lost")
		panic(http.ErrAbortHandler) // closes the connection
	}
	status := http.StatusOK
	if k.answer.Declined != "" {
		status = http.StatusPaymentRequired
	}
	reply(w, status, "application/json", k.answer)
}

// note counts a call, and reports whether the call is the first with its key.
func (p *provider) note(key, kind string, asked instruction) (k *keyRecord, first bool) {
	k, known := p.kept[key]
	if !known {
		k = &keyRecord{n: len(p.kept) + 1, kind: kind, asked: asked}
		p.kept[key] = k
	}
	k.calls++
	return k, !known
}

// do moves the money, or declines.
func (k *keyRecord) do() {
	k.done = true
	if isDeclined(k.asked.Amount) {
		k.answer = receipt{Declined: "do not honour"}
		return
	}
	k.effects++
	k.answer = receipt{Ref: fmt.Sprintf("pp_%04d", k.n)}
}

func (r receipt) String() string {
	if r.Declined != "" {
		return "declined"
	}
	return "done as " + r.Ref
}

func (p *provider) hook() func(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// onCall makes the provider run the function do at the start of each call. If do is nil, the
// provider runs nothing.
func (p *provider) onCall(do func(key string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = do
}

// books returns the provider's records for the proof: key, kind, the provider's name for the
// movement, amount, calls and effects.
func (p *provider) books() [][]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all [][]any
	for key, k := range p.kept {
		all = append(all, []any{key, k.kind, k.answer.Ref, k.asked.Amount, k.calls, k.effects})
	}
	return all
}
