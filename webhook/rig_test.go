package webhook_test

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/webhook"
)

var silent = slog.New(slog.DiscardHandler)

// rig is a sender with its database and receivers.
type rig struct {
	*testing.T

	pool   *pgxpool.Pool
	in     *inbox.Inbox
	sender *webhook.Sender
	store  *webhook.Endpoints
	cfg    webhook.SenderConfig
}

// newRig returns a sender that may send to this machine, unless change says otherwise.
func newRig(t *testing.T, change func(cfg *webhook.SenderConfig)) *rig {
	t.Helper()
	r := &rig{T: t, pool: devtest.Pool(t)}
	r.cfg = webhook.SenderConfig{
		Name: "webhooks", AllowedPrefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, RootCAs: authorities(t), Logger: silent,
	}
	if change != nil {
		change(&r.cfg)
	}
	r.store = webhook.NewEndpoints(r.pool, webhook.EndpointsConfig{})
	r.in = inbox.New(r.pool, nil, inbox.Config{IdlePoll: 20 * time.Millisecond, Logger: silent})
	r.sender = webhook.NewSender(r.in, r.cfg)
	r.in.Handle(inbox.Subscription{Name: "fanout"}, r.sender.FanOut())
	return r
}

// authorities returns the authorities of the certificates that httptest's servers have.
func authorities(t *testing.T) *x509.CertPool {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return pool
}

// run runs the inbox until the test ends or stop is called.
func (r *rig) run() (stop func()) { return r.runIn(r.Context()) }

// runIn is run, with the values of a context.
func (r *rig) runIn(values context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(values))
	done := make(chan error, 1)
	go func() { done <- r.in.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.Error(err)
		}
	})
	r.Cleanup(stop)
	return stop
}

func (r *rig) exec(sql string, args ...any) {
	r.Helper()
	if _, err := r.pool.Exec(r.Context(), sql, args...); err != nil {
		r.Fatalf("%s: %v", sql, err)
	}
}

// one returns the only value of a query.
func one[T any](r *rig, sql string, args ...any) (v T) {
	r.Helper()
	if err := r.pool.QueryRow(r.Context(), sql, args...).Scan(&v); err != nil {
		r.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (r *rig) eventually(what string, cond func() bool) {
	r.Helper()
	devtest.Eventually(r.T, 30*time.Second, what, cond)
}

// add adds an endpoint and returns its secret.
func (r *rig) add(e webhook.EndpointSpec) webhook.Secret {
	r.Helper()
	_, secret, err := r.store.Add(r.Context(), e, ann)
	if err != nil {
		r.Fatal(err)
	}
	return secret
}

// emit gives an event to the fan-out.
func (r *rig) emit(id string, change func(ev *postroom.Event)) {
	r.Helper()
	ev := postroom.Event{ID: id, Source: "/shop", Type: "order.placed", Key: "7", Data: []byte(`{"order": 7}`)}
	if change != nil {
		change(&ev)
	}
	if _, err := r.in.Accept(r.Context(), "fanout", ev); err != nil {
		r.Fatal(err)
	}
}

// overrideNextAtAndPause makes all deliveries due, and ends the pauses of all endpoints. A test that uses it sees
// neither the schedule nor a pause.
func (r *rig) overrideNextAtAndPause() {
	r.Helper()
	r.exec("UPDATE postroom.webhook_endpoint SET paused_until = NULL") // first: a worker that finds the pause snoozes the event again
	r.exec("UPDATE postroom.held SET next_at = now() WHERE handler = 'webhooks' AND next_at IS NOT NULL AND claimed_by IS NULL")
}

// delivery is a row of held.
type delivery struct {
	Attempts int
	Class    string
	Dead     bool
	Wait     float64 // seconds
	Text     string
}

// heldOf returns the delivery that is held for an endpoint, if there is one and it is not running.
func (r *rig) heldOf(endpoint string) (d delivery, ok bool) {
	r.Helper()
	err := r.pool.QueryRow(r.Context(), `SELECT attempts, coalesce(class, ''), dead_at IS NOT NULL, coalesce(extract(epoch FROM next_at - now()), 0)::float8,
		coalesce(failures -> -1 ->> 'text', '')
		FROM postroom.held WHERE handler = 'webhooks' AND key = $1 AND claimed_by IS NULL AND class IS NOT NULL`, endpoint).
		Scan(&d.Attempts, &d.Class, &d.Dead, &d.Wait, &d.Text)
	return d, err == nil
}

// failed waits until a delivery to an endpoint is held after it failed.
func (r *rig) failed(endpoint string) (d delivery) {
	r.Helper()
	r.eventually("a failure of "+endpoint, func() (ok bool) {
		d, ok = r.heldOf(endpoint)
		return ok
	})
	return d
}

// receiver is an endpoint's server.
type receiver struct {
	*httptest.Server

	before func() // if set, is called before an answer

	mu     sync.Mutex
	status int
	header http.Header
	got    []received
}

// received is a request.
type received struct {
	header http.Header
	body   []byte
}

// newReceiver returns a receiver that answers 204 until it is told otherwise.
func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{status: http.StatusNoContent}
	r.Server = httptest.NewTLSServer(r)
	r.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	if r.before != nil {
		r.before()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, received{req.Header, body})
	for name, values := range r.header {
		w.Header()[name] = values
	}
	w.WriteHeader(r.status)
}

func (r *receiver) answer(status int, header ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.header = status, http.Header{}
	for i := 0; i < len(header); i += 2 {
		r.header.Set(header[i], header[i+1])
	}
}

func (r *receiver) requests() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

// names is a DNS server in memory.
type names struct {
	mu    sync.Mutex
	count map[string]int
	of    func(name string, lookup int) (ip string, ok bool)
}

// resolver returns a resolver that asks of. of gets the number of the lookup, from 1. It may return
// several addresses, with spaces between them. If ok is false, the server fails.
func resolver(of func(name string, lookup int) (ip string, ok bool)) *net.Resolver {
	n := &names{count: make(map[string]int), of: of}
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go n.serve(server)
		return client, nil
	}}
}

func (n *names) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	var size [2]byte
	for {
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		answer := n.answer(query)
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// answer answers one question about an address.
func (n *names) answer(query []byte) []byte {
	name, at := "", 12
	for query[at] != 0 {
		length := int(query[at])
		name += string(query[at+1:at+1+length]) + "."
		at += 1 + length
	}
	question := query[12 : at+5]
	isA := binary.BigEndian.Uint16(query[at+1:]) == 1
	answer := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	n.mu.Lock()
	defer n.mu.Unlock()
	if isA {
		n.count[name]++
	}
	ip, ok := n.of(name, max(n.count[name], 1))
	switch {
	case !ok:
		answer[3] |= 2 // the server failed
	case ip == "":
		answer[3] |= 3 // no such name
	case isA:
		for _, ip := range strings.Fields(ip) {
			answer[7]++
			answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
			address := netip.MustParseAddr(ip).As4()
			answer = append(answer, address[:]...)
		}
	}
	return answer
}

// envelope is the body of a request.
type envelope struct {
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
	Binary    []byte          `json:"data_base64"`
}

func decoded(t *testing.T, body []byte) (v envelope) {
	t.Helper()
	if err := json.Unmarshal(body, &v); err != nil {
		t.Errorf("the body %q: %v", body, err)
	}
	return v
}

// replay replays dead events.
func (r *rig) replay(filter deadletter.Filter) <-chan deadletter.Replay {
	r.Helper()
	dead := deadletter.New(r.pool, deadletter.Config{})
	job, err := dead.CreateReplay(r.Context(), filter, deadletter.ReplayOptions{}, ann)
	if err != nil {
		r.Fatal(err)
	}
	done := make(chan deadletter.Replay, 1)
	go func() {
		job, err := dead.RunReplay(r.Context(), job.ID, deadletter.RunOptions{})
		if err != nil {
			r.Error(err)
		}
		done <- job
	}()
	return done
}
