package inspect_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// rig is one test's database and stream.
type rig struct {
	*testing.T

	pool   *pgxpool.Pool
	nc     *nats.Conn
	js     jetstream.JetStream
	stream string // and the first token of its subjects
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOn(t, devtest.NATS(t))
}

func newRigOn(t *testing.T, nc *nats.Conn) *rig {
	t.Helper()
	p := &rig{T: t, pool: devtest.Pool(t), nc: nc, stream: nats.NewInbox()[len("_INBOX."):]}
	var err error
	p.js = devtest.JetStream(t, p.nc)
	err = natsjs.EnsureStream(t.Context(), p.nc, jetstream.StreamConfig{Name: p.stream, Subjects: []string{p.stream + ".>"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *rig) inspector() *inspect.Inspector {
	return inspect.New(p.pool, p.nc, inspect.Config{})
}

// alone is an inspector without a broker.
func (p *rig) alone() *inspect.Inspector { return inspect.New(p.pool, nil, inspect.Config{}) }

func (p *rig) exec(sql string, args ...any) {
	p.Helper()
	if _, err := p.pool.Exec(p.Context(), sql, args...); err != nil {
		p.Fatalf("%s: %v", sql, err)
	}
}

// write writes events of source /shop, of types <stream>.<kind>.
func (p *rig) write(events ...postroom.Event) {
	p.Helper()
	err := pgx.BeginFunc(p.Context(), p.pool, func(tx pgx.Tx) error {
		return outbox.New(outbox.Config{Source: "/shop"}).Write(p.Context(), tx, events...)
	})
	if err != nil {
		p.Fatal(err)
	}
}

func (p *rig) event(id, kind, key string) postroom.Event {
	p.Helper()
	ev := postroom.NewEvent(p.stream+"."+kind, id)
	ev.Key = key
	if id != "" {
		ev.ID = id
	}
	return ev
}

// run runs a relay or an inbox until the test ends, or stop is called.
func (p *rig) run(r postroom.Runner) (stop func()) {
	p.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-done; err != nil {
				p.Errorf("Run = %v", err)
			}
		}
	}
	p.Cleanup(stop)
	return stop
}

func (p *rig) relay() (stop func()) {
	return p.run(relay.New(p.pool, natsjs.NewPublisher(p.nc), relay.Config{}))
}

func (p *rig) subscription(name string, kinds ...string) inbox.Subscription {
	sub := inbox.Subscription{Name: name, Stream: p.stream, Workers: 2, Schedule: postroom.Backoff{time.Hour}, Attempts: 8}
	for _, k := range kinds {
		sub.Types = append(sub.Types, p.stream+"."+k)
	}
	return sub
}

// failsSome is a handler that fails for some events. If an id begins with "bad", the failure is
// permanent. If it begins with "later", it is not.
func failsSome(_ context.Context, _ pgx.Tx, ev postroom.Event) error {
	switch {
	case strings.HasPrefix(ev.ID, "bad"):
		return postroom.Permanent(errors.New("the card was refused"))
	case strings.HasPrefix(ev.ID, "later"):
		return errors.New("the vendor is closed\nuntil tomorrow")
	}
	return nil
}

func (p *rig) eventually(what string, cond func() bool) {
	p.Helper()
	devtest.Eventually(p.T, 20*time.Second, what, cond)
}

func (p *rig) status(i *inspect.Inspector) *inspect.Status {
	p.Helper()
	s, err := i.Status(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	return s
}

// codes returns the codes of findings, with their handlers.
func codes(s *inspect.Status) []string {
	all := []string{}
	for _, f := range s.Findings {
		all = append(all, strings.TrimSpace(f.Code+" "+f.Handler))
	}
	return all
}

func heldOf(all []inspect.HeldSummary, handler string) inspect.HeldSummary {
	for _, h := range all {
		if h.Handler == handler {
			return h
		}
	}
	return inspect.HeldSummary{}
}
