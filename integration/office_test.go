package integration

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

// refusalPatience is how long these tests wait for what takes seconds.
const refusalPatience = time.Minute

// refusalRig is a log, a broker that refuses some events, and a relay between them.
type refusalRig struct {
	*testing.T

	pool *pgxpool.Pool
	nc   *nats.Conn
	js   jetstream.JetStream
	name string         // all names of streams and subjects begin with it
	next map[string]int // by key, the number of its next event

	failures atomic.Int64 // failed publishes that relays logged
}

// Enabled, Handle, WithAttrs and WithGroup make a refusalRig the handler of the relays' logs. The
// tests provoke the refusals, so they are only counted.
func (o *refusalRig) Enabled(context.Context, slog.Level) bool { return true }

func (o *refusalRig) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "event ") && r.Level >= slog.LevelWarn {
		o.failures.Add(1)
	}
	return nil
}

func (o *refusalRig) WithAttrs([]slog.Attr) slog.Handler { return o }
func (o *refusalRig) WithGroup(string) slog.Handler      { return o }

func openRefusalRig(t *testing.T, nc *nats.Conn) *refusalRig {
	t.Helper()
	js := devtest.JetStream(t, nc)
	return &refusalRig{T: t, pool: devtest.Pool(t), nc: nc, js: js, name: nats.NewInbox()[len("_INBOX."):], next: map[string]int{}}
}

// subject returns the subject of a kind of events.
func (o *refusalRig) subject(kind string) string { return o.name + "." + kind }

// stream makes or changes the stream of a kind of events.
func (o *refusalRig) stream(kind string, cfg jetstream.StreamConfig) {
	o.Helper()
	if cfg.AllowAtomicPublish || cfg.AllowMsgCounter {
		devtest.NeedsNATS(o, o.nc, 12)
	}
	cfg.Name, cfg.Subjects = o.name+"-"+kind, []string{o.subject(kind)}
	if cfg.AllowAtomicPublish {
		cfg.Subjects = append(cfg.Subjects, natsjs.LeaseSubjects(cfg.Name))
	}
	if _, err := o.js.CreateOrUpdateStream(o.Context(), cfg); err != nil {
		o.Fatal(err)
	}
}

// letter is an event to be written. Its id is the key and a number that counts the events of
// the key.
type letter struct {
	kind, key string
	size      int // of its data
}

// write commits letters in their order, in one transaction.
func (o *refusalRig) write(letters ...letter) {
	o.Helper()
	events := make([]postroom.Event, len(letters))
	for i, l := range letters {
		ev := postroom.NewEvent(o.subject(l.kind), strings.Repeat("x", l.size))
		ev.Key, ev.ID = l.key, fmt.Sprintf("%s-%d", l.key, o.next[l.key])
		o.next[l.key]++
		events[i] = ev
	}
	err := pgx.BeginFunc(o.Context(), o.pool, func(tx pgx.Tx) error {
		return outbox.New(outbox.Config{Source: "/office"}).Write(o.Context(), tx, events...)
	})
	if err != nil {
		o.Fatal(err)
	}
}

// several returns n letters of a key.
func several(n int, kind, key string) []letter {
	return slices.Repeat([]letter{{kind: kind, key: key}}, n)
}

// relay starts a relay. The returned function stops it, or the test's end does.
func (o *refusalRig) relay(cfg relay.Config) (stop func()) {
	o.Helper()
	cfg.Logger = slog.New(o)
	r := relay.New(o.pool, natsjs.NewPublisher(o.nc), cfg)
	ctx, cancel := context.WithCancel(context.WithoutCancel(o.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-done; err != nil {
				o.Errorf("Run = %v", err)
			}
		}
	}
	o.Cleanup(stop)
	return stop
}

// stored returns the ids of the events in the stream of a kind, in their order
// there.
func (o *refusalRig) stored(kind string) (ids []string) {
	o.Helper()
	s, err := o.js.Stream(o.Context(), o.name+"-"+kind)
	if err != nil {
		o.Fatal(err)
	}
	reader, err := s.OrderedConsumer(o.Context(), jetstream.OrderedConsumerConfig{HeadersOnly: true, FilterSubjects: []string{o.subject(kind)}})
	if err != nil {
		o.Fatal(err)
	}
	for total := o.count(kind); len(ids) < total; {
		batch, err := reader.Fetch(1000, jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			o.Fatal(err)
		}
		for m := range batch.Messages() {
			ids = append(ids, m.Headers().Get("ce-id"))
		}
		if err := batch.Error(); err != nil {
			o.Fatal(err)
		}
	}
	return ids
}

// waitForStored waits until the stream of a kind has n messages.
func (o *refusalRig) waitForStored(kind string, n int) {
	o.Helper()
	devtest.Eventually(o.T, refusalPatience, fmt.Sprintf("%d messages of %s", n, kind), func() bool { return o.count(kind) >= n })
}

func (o *refusalRig) count(kind string) int {
	o.Helper()
	s, err := o.js.Stream(o.Context(), o.name+"-"+kind)
	if err != nil {
		return 0
	}
	info, err := s.Info(o.Context(), jetstream.WithSubjectFilter(o.subject(kind)))
	if err != nil {
		return 0
	}
	return int(info.State.Subjects[o.subject(kind)]) //nolint:gosec // few
}

// wantInOrder fails unless the stream of a kind has every event of each key once, in order.
func (o *refusalRig) wantInOrder(kind string, keys ...string) {
	o.Helper()
	ids := o.stored(kind)
	last := map[string]int{}
	for _, id := range ids {
		i := strings.LastIndexByte(id, '-')
		n, err := strconv.Atoi(id[i+1:])
		if err != nil {
			o.Fatal(err)
		}
		if n != last[id[:i]] {
			o.Errorf("%s stands in the stream where event %d of its key should", id, last[id[:i]])
		}
		last[id[:i]] = n + 1
	}
	for _, key := range keys {
		if last[key] != o.next[key] {
			o.Errorf("%d events of %s are in the stream, %d were written", last[key], key, o.next[key])
		}
	}
}

// heldEvent is a row of held.
type heldEvent struct {
	ID       string
	State    string // due, dead or waiting
	Class    string
	Attempts int
	Failures int
	Classes  int // the number of classes among its failures
	After    time.Duration
	At       time.Time // when it was held
}

func (o *refusalRig) held() []heldEvent {
	o.Helper()
	rows, _ := o.pool.Query(o.Context(), `
		SELECT event_id, CASE WHEN dead_at IS NOT NULL THEN 'dead' WHEN next_at IS NOT NULL THEN 'due' ELSE 'waiting' END,
		       coalesce(class, ''), attempts, coalesce(jsonb_array_length(failures), 0),
		       (SELECT count(DISTINCT f ->> 'class') FROM jsonb_array_elements(failures) f),
		       coalesce(dead_at, next_at, held_at) - coalesce(first_failed_at, held_at), held_at
		FROM postroom.held ORDER BY pos`)
	held, err := pgx.CollectRows(rows, pgx.RowToStructByPos[heldEvent])
	if err != nil {
		o.Fatal(err)
	}
	return held
}

// waitForHeld waits until n events are held, and returns them.
func (o *refusalRig) waitForHeld(n int) (held []heldEvent) {
	o.Helper()
	devtest.Eventually(o.T, refusalPatience, fmt.Sprintf("%d events to be held", n), func() bool {
		held = o.held()
		return len(held) == n
	})
	return held
}

// overrideNextAt makes held events due that wait for their time. TestASubjectHasNoStream and the first
// attempts of TestUnknownRefusalIsAnAttempt wait for it.
func (o *refusalRig) overrideNextAt() {
	o.Helper()
	o.exec("UPDATE postroom.held SET next_at = now() WHERE next_at > now()")
}

// overrideDeath makes dead events due, as a replay does, without its job and its audit.
func (o *refusalRig) overrideDeath() {
	o.Helper()
	o.exec("UPDATE postroom.held SET dead_at = NULL, next_at = now(), replays = replays + 1 WHERE dead_at IS NOT NULL")
}

func (o *refusalRig) exec(sql string) {
	o.Helper()
	if _, err := o.pool.Exec(o.Context(), sql); err != nil {
		o.Fatal(err)
	}
}

// wantFirstHeld fails unless the first of the held events is as given and the others, all of
// its key, wait behind it untried.
func (o *refusalRig) wantFirstHeld(held []heldEvent, state, class string, attempts int) {
	o.Helper()
	for i, h := range held {
		if i == 0 {
			if h.State != state || h.Class != class || h.Attempts != attempts || h.Failures < 1 || h.Classes != 1 {
				o.Errorf("%s is held as %+v, want it %s with class %s and %d attempts", h.ID, h, state, class, attempts)
			}
			continue
		}
		if h.State != "waiting" || h.Attempts != 0 || h.Failures != 0 {
			o.Errorf("%s is held as %+v, want it waiting behind the first", h.ID, h)
		}
	}
}
