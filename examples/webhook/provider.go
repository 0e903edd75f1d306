package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/webhook"
)

// loseEvery says how many answers are lost on their way to the provider: one in loseEvery.
const loseEvery = 25

// provider is the payment provider. It sends each webhook until a final answer comes, and remembers
// the answers. This type also plays the attacker who sends forged webhooks.
type provider struct {
	url                      string
	client                   *http.Client
	all                      []delivery
	finished, requests, away atomic.Int64 // deliveries that ended; requests; requests that were answered 503

	mu      sync.Mutex
	sent    map[*hook]bool // true if the genuine webhook was sent: then it has to take effect
	answers [][]any        // the rows of the table answer
}

func newProvider(url string, all []delivery) *provider {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	return &provider{url: url, client: client, all: all, sent: make(map[*hook]bool)}
}

func newSecret() string { return base64.StdEncoding.EncodeToString([]byte(rand.Text())) }

// send sends the given deliveries, with a goroutine for each of the senders. It returns when each
// delivery has a final answer. If the channel closing is closed, send finishes the running
// deliveries and begins no others. It also stops if ctx ends.
func (p *provider) send(ctx context.Context, some []delivery, signer webhook.Scheme, senders int, closing <-chan struct{}) {
	var all sync.WaitGroup
	var next atomic.Int64
	for range senders {
		all.Go(func() {
			for i := next.Add(1); i <= int64(len(some)) && ctx.Err() == nil && !demo.IsClosed(closing); i = next.Add(1) {
				p.deliver(ctx, some[i-1], signer)
				p.finished.Add(1)
			}
		})
	}
	all.Wait()
}

// deliver sends one webhook until a final answer comes.
func (p *provider) deliver(ctx context.Context, d delivery, signer webhook.Scheme) {
	p.mu.Lock()
	p.sent[d.hook] = p.sent[d.hook] || d.kind == genuine
	p.answers = append(p.answers, []any{d.id, string(d.kind), 0})
	p.mu.Unlock()
	for attempt := 1; ; attempt++ {
		status, err := p.post(ctx, d, signer)
		if err == nil && status < http.StatusInternalServerError {
			p.mu.Lock()
			p.answers = append(p.answers, []any{d.id, string(d.kind), status})
			p.mu.Unlock()
			if d.kind == genuine && d.hook.n%changeEvery == 0 {
				p.deliver(ctx, delivery{changed, d.id, d.hook}, signer)
			}
			return
		}
		select { // a real provider waits for minutes or hours
		case <-ctx.Done():
			return
		case <-time.After(min(time.Duration(attempt)*50*time.Millisecond, 500*time.Millisecond)):
		}
	}
}

// post sends one request and returns the status of its answer. Some answers are lost: the endpoint
// has done its work, but the provider does not know that.
func (p *provider) post(ctx context.Context, d delivery, signer webhook.Scheme) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(d.body()))
	if err != nil {
		return 0, err
	}
	if d.kind == forged {
		signer = webhook.Standard(newSecret())
	}
	if err := webhook.Sign(signer, req.Header, webhook.Message{ID: d.id, Time: time.Now()}, d.body()); err != nil {
		return 0, err
	}
	nth := p.requests.Add(1)
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, err
	}
	if nth%loseEvery == 0 {
		return 0, errors.Join(io.ErrUnexpectedEOF, resp.Body.Close())
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		p.away.Add(1)
	}
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection can be used again
	return resp.StatusCode, resp.Body.Close()
}
