package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/postroom/postroom/internal/childproc"
)

// ask is a request that a merchant sends.
type ask struct {
	merchant string
	kind     kind
	key      string
	body     string
	crash    string // the point at which the request kills the process that serves it; empty for none
}

// answer is the answer to a request. If err is set, the client got no complete answer.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

// kept reports whether an answer is final, that is, whether the guard has stored it.
func (a answer) kept() bool { return a.err == nil && a.header.Get("Idempotency-Status") != "" }

func (a answer) replayed() bool { return a.err == nil && a.header.Get("Idempotent-Replayed") == "true" }

// code returns the code in the answer's problem details, or an empty text.
func (a answer) code() string {
	var problem struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &problem) // an answer without problem details has no code
	return problem.Code
}

func (a answer) String() string {
	switch {
	case a.err != nil:
		return "no answer"
	case a.replayed():
		return fmt.Sprintf("%d replayed %s", a.status, cmp.Or(a.code(), strings.TrimSpace(a.body)))
	}
	return fmt.Sprintf("%d %s", a.status, cmp.Or(a.code(), strings.TrimSpace(a.body)))
}

// told is a final answer that a client got.
type told struct {
	merchant, kind, key string
	status              int
	body                string
}

// clients are the merchants' programs. They remember the answers that they got, for the proof.
type clients struct {
	http *http.Client

	mu   sync.Mutex
	told []told

	requests, replayed, inProgress, mismatches int64
}

func newClients() *clients {
	return &clients{http: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 200}}}
}

// send sends one request to a process of the service.
func (c *clients) send(ctx context.Context, url string, q ask) answer {
	a := c.post(ctx, url, q)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	switch {
	case a.replayed():
		c.replayed++
	case a.code() == "idempotency_in_progress":
		c.inProgress++
	case a.code() == "idempotency_key_payload_mismatch":
		c.mismatches++
	}
	if a.kept() {
		c.told = append(c.told, told{q.merchant, q.kind.name, q.key, a.status, a.body})
	}
	return a
}

func (c *clients) post(ctx context.Context, url string, q ask) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+q.kind.path, strings.NewReader(q.body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+q.merchant+"-token")
	if q.key != "" {
		req.Header.Set("Idempotency-Key", q.key)
	}
	if q.crash != "" {
		req.Header.Set(crashHeader, q.crash)
	}
	req.GetBody = nil // otherwise the transport itself would repeat a request that has a key
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err}
}

// insist sends a request again, with its key, until a final answer comes. insist does not wait as
// long as Retry-After asks: the service has no other clients whom repeated requests could disturb.
func (c *clients) insist(ctx context.Context, url string, q ask) (answer, error) {
	for {
		a := c.send(ctx, url, q)
		if a.kept() {
			return a, nil
		}
		if !childproc.Sleep(ctx, 100*time.Millisecond) {
			return a, fmt.Errorf("%s with key %s was not answered for good, but at last: %s: %w", q.kind.path, q.key, a, context.Cause(ctx))
		}
	}
}
