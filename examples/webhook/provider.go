package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/webhook"
)

// loseEvery is of how many answers one is lost on its way to the provider.
const loseEvery = 25

// provider is the payment provider: it sends webhooks until they are answered
// with 200, and exchanges its secret meanwhile.
type provider struct {
	url             string
	client          *http.Client
	secrets         [2]string // the old one and the new one
	deliveries      []delivery
	noGate          chan struct{}   // closed
	gates           []chan struct{} // one for each plannedTrouble; closed when it may be passed
	next            atomic.Int64
	finished        atomic.Int64 // deliveries that were answered for good
	requests, again atomic.Int64 // of all requests, those that were sent again

	mu    sync.Mutex
	books books
}

// books are what the provider remembers, for the proof.
type books struct {
	answered map[*hook]int // how often with 200
	changed  []string
	bad      []answeredBad
}

type answeredBad struct {
	id     string
	kind   kind
	answer int
}

func newProvider(url string, oldSecret, newSecret string, deliveries []delivery) *provider {
	p := &provider{url: url, secrets: [2]string{oldSecret, newSecret}, deliveries: deliveries, noGate: make(chan struct{}), books: books{answered: make(map[*hook]int)}}
	p.client = &http.Client{
		Timeout:   10 * time.Second,
		Transport: &lossy{next: &http.Transport{MaxIdleConnsPerHost: 100}},
	}
	close(p.noGate)
	for range plannedTrouble {
		p.gates = append(p.gates, make(chan struct{}))
	}
	return p
}

// send sends all, with so many senders at a time. It stops early when closing is
// closed, after the deliveries that are under way, and when ctx ends.
func (p *provider) send(ctx context.Context, senders int, closing <-chan struct{}) {
	defer p.client.CloseIdleConnections()
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			for i := p.next.Add(1) - 1; i < int64(len(p.deliveries)); i = p.next.Add(1) - 1 {
				select {
				case <-closing:
					return
				case <-ctx.Done():
					return
				case <-p.gate(i):
				}
				p.deliver(ctx, &p.deliveries[i], p.signer(int(i)))
				p.finished.Add(1)
			}
		})
	}
	all.Wait()
}

// gate returns what delivery i waits for: that the trouble before it is under way,
// however fast or slow this machine is.
func (p *provider) gate(i int64) <-chan struct{} {
	gate := p.noGate
	for n, trouble := range plannedTrouble {
		if i*100 >= trouble.at*int64(len(p.deliveries)) {
			gate = p.gates[n]
		}
	}
	return gate
}

// signer signs delivery i with the old secret at first, with both while the secret is exchanged,
// then with the new one.
func (p *provider) signer(i int) webhook.Scheme {
	switch third := 3 * i / len(p.deliveries); third {
	case 0:
		return webhook.Standard(p.secrets[0])
	case 1:
		return webhook.Standard(p.secrets[1], p.secrets[0])
	default:
		return webhook.Standard(p.secrets[1])
	}
}

// deliver sends one webhook until it is answered for good, and remembers that.
func (p *provider) deliver(ctx context.Context, d *delivery, signer webhook.Scheme) {
	p.begin(d)
	for attempt := 1; ; attempt++ {
		status, err := p.post(ctx, d, signer)
		if ctx.Err() != nil {
			return
		}
		if err == nil && status < http.StatusInternalServerError {
			p.remember(d, status)
			if d.then != nil && status == http.StatusOK {
				p.deliver(ctx, d.then, signer)
			}
			return
		}
		p.again.Add(1)
		select { // a provider waits for minutes and hours
		case <-ctx.Done():
		case <-time.After(min(time.Duration(attempt)*50*time.Millisecond, 500*time.Millisecond)):
		}
	}
}

// post sends one request and returns the status of its answer.
func (p *provider) post(ctx context.Context, d *delivery, signer webhook.Scheme) (int, error) {
	p.requests.Add(1)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(d.body))
	if err != nil {
		return 0, err
	}
	at, signed := time.Now(), d.body
	switch d.kind {
	case forged:
		signer = webhook.Standard(newSecret())
	case stale:
		at = at.Add(-webhook.Tolerance - time.Minute)
	case tampered:
		signed = d.hook.body
	}
	if err := webhook.Sign(signer, req.Header, webhook.Message{ID: d.id, Time: at}, signed); err != nil {
		return 0, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection can be used again
	return resp.StatusCode, resp.Body.Close()
}

// begin notes that a webhook is sent: from now on it has to take effect.
func (p *provider) begin(d *delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.kind == genuine {
		p.books.answered[d.hook] += 0
	}
}

func (p *provider) remember(d *delivery, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case d.kind != genuine && d.kind != changed:
		p.books.bad = append(p.books.bad, answeredBad{d.id, d.kind, status})
	case status != http.StatusOK: // the proof will tell
	case d.kind == changed:
		p.books.changed = append(p.books.changed, d.id)
	default:
		p.books.answered[d.hook]++
	}
}

// lossy is a network that loses some answers: the endpoint has done its work, and
// the provider does not know.
type lossy struct {
	next http.RoundTripper
	n    atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (l *lossy) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err != nil || l.n.Add(1)%loseEvery != 0 {
		return resp, err
	}
	_ = resp.Body.Close() // nobody will read it
	return nil, fmt.Errorf("read answer: %w", io.ErrUnexpectedEOF)
}
