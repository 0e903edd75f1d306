package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/natsjs"
)

// river is a rig with a stream, and with ordered handlers that read the stream.
type river struct {
	*rig

	nc     *nats.Conn
	js     jetstream.JetStream
	stream string // and the first token of its subjects
}

func newRiver(n *rig) *river {
	n.Helper()
	nc := devtest.NATS(n)
	js := devtest.JetStream(n, nc)
	r := &river{rig: n, nc: nc, js: js, stream: nats.NewInbox()[len("_INBOX."):]}
	err := natsjs.EnsureStream(n.Context(), nc, jetstream.StreamConfig{Name: r.stream, Subjects: []string{r.stream + ".>"}})
	if err != nil {
		n.Fatal(err)
	}
	return r
}

// publish sends events of a key, as a relay does, each with a new message id. The events' ids are
// <key>-<number>.
func (r *river) publish(key string, from, to int) {
	r.Helper()
	for i := from; i <= to; i++ {
		id := name(key, i)
		ev := postroom.Event{
			ID: id, Source: "/shop", Type: r.stream + ".placed", Key: key, ContentType: "application/json", Data: []byte(`"` + id + `"`),
			LoggedAt: time.Now(), Time: time.Now(),
		}
		header := nats.Header(wire.Encode(ev))
		header.Del(wire.MsgID)
		if _, err := r.js.PublishMsg(r.Context(), &nats.Msg{Subject: ev.Type, Header: header, Data: ev.Data}); err != nil {
			r.Fatal(err)
		}
	}
}

func name(key string, i int) string { return fmt.Sprintf("%s-%05d", key, i) }

func names(key string, from, to int) (ids []string) {
	for i := from; i <= to; i++ {
		ids = append(ids, name(key, i))
	}
	return ids
}

// script says how each run of an event ends, and remembers which events ran.
type script struct {
	mu     sync.Mutex
	bad    map[string]bool
	gates  map[string]chan struct{}
	ran    []string
	busy   map[string]int // how many events of each key are running
	beside bool           // two events of a key ran at the same time
}

func newScript(bad ...string) *script {
	s := &script{bad: map[string]bool{}, gates: map[string]chan struct{}{}, busy: map[string]int{}}
	for _, id := range bad {
		s.bad[id] = true
	}
	return s
}

func (s *script) set(bad bool, ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.bad[id] = bad
	}
}

// gate makes an event wait until open is called.
func (s *script) gate(id string) (open func()) {
	gate := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gates[id] = gate
	return sync.OnceFunc(func() { close(gate) })
}

// runs returns how often an event was run.
func (s *script) runs(id string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.ran {
		if other == id {
			n++
		}
	}
	return n
}

var errBad = postroom.Permanent(errors.New("bad"))

func (s *script) begin(ev postroom.Event) (bad bool, gate chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran = append(s.ran, ev.ID)
	s.busy[ev.Key]++
	s.beside = s.beside || s.busy[ev.Key] > 1
	return s.bad[ev.ID], s.gates[ev.ID]
}

// handler applies all events that are not bad.
func (s *script) handler(name string) postroom.Handler {
	return postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		bad, gate := s.begin(ev)
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.busy[ev.Key]--
		}()
		if gate != nil {
			select {
			case <-gate:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if bad {
			return errBad
		}
		return apply(ctx, tx, name, ev)
	})
}

// handle runs an ordered handler named o.
func (r *river) handle(order inbox.Order, s *script) (stop func()) {
	r.Helper()
	in := inbox.New(r.pool, r.nc, inbox.Config{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), IdlePoll: 5 * time.Millisecond, AckWait: time.Second, DrainTimeout: 2 * time.Second,
	})
	in.Handle(inbox.Subscription{
		Name: "o", Stream: r.stream, Types: []string{r.stream + ".placed"}, Order: order, Workers: 4,
		Schedule: postroom.Backoff{10 * time.Millisecond}, Attempts: 8,
	}, s.handler("o"))
	return r.run(in)
}

func (r *river) eventually(what string, cond func() bool) {
	r.Helper()
	devtest.Eventually(r.T, patience, what, cond)
}

// states returns the state of each held event of a handler, by the event's id.
func (n *rig) states(handler string) map[string]string {
	n.Helper()
	rows, _ := n.pool.Query(n.Context(), `
		SELECT event_id, CASE WHEN claimed_by IS NOT NULL THEN 'running' WHEN dead_at IS NOT NULL THEN 'dead'
		                      WHEN next_at IS NOT NULL THEN 'due' ELSE 'waiting' END
		FROM postroom.held WHERE handler = $1`, handler)
	states := map[string]string{}
	var id, state string
	if _, err := pgx.ForEachRow(rows, []any{&id, &state}, func() error {
		states[id] = state
		return nil
	}); err != nil {
		n.Fatal(err)
	}
	return states
}

func (r *river) eventuallyHeld(want map[string]string) {
	r.Helper()
	r.eventuallyHeldBy("o", want)
}

// eventuallyHeldBy waits until a handler's held events have these states.
func (n *rig) eventuallyHeldBy(handler string, want map[string]string) {
	n.Helper()
	var got map[string]string
	defer func() {
		if n.Failed() {
			n.Logf("held: %v", got)
		}
	}()
	devtest.Eventually(n.T, patience, fmt.Sprintf("held to be %v", want), func() bool { got = n.states(handler); return maps.Equal(got, want) })
}

// all returns a map that gives each of the events the same state.
func all(state string, ids ...string) map[string]string {
	states := map[string]string{}
	for _, id := range ids {
		states[id] = state
	}
	return states
}

func with(states, more map[string]string) map[string]string {
	states = maps.Clone(states)
	maps.Copy(states, more)
	return states
}

// effects returns the effects on a key, in the order in which they were made.
func (n *rig) effects(key string) []string {
	n.Helper()
	return n.texts("SELECT id FROM effect WHERE id LIKE $1 || '-%' ORDER BY n", key)
}

func (n *rig) wantEffects(key string, want ...string) {
	n.Helper()
	if got := n.effects(key); !slices.Equal(got, want) {
		n.Errorf("effects of key %s: %v, want %v", key, got, want)
	}
}

func (n *rig) eventuallyEffects(key string, count int) {
	n.Helper()
	devtest.Eventually(n.T, patience, fmt.Sprintf("%d effects of key %s", count, key), func() bool { return len(n.effects(key)) >= count })
}

// only returns a filter for the event with an id.
func only(id string) deadletter.Filter { return deadletter.Filter{EventID: id} }

// discarded discards events.
func (n *rig) discarded(f deadletter.Filter, want int64) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), devtest.Patience(n, patience))
	defer cancel()
	if got, err := n.store.Discard(ctx, f, deadletter.ChangeOptions{}, n.by); err != nil || got != want {
		n.Fatalf("Discard = %d, %v; want %d", got, err, want)
	}
}

func (n *rig) reopened(f deadletter.Filter, want int64) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), devtest.Patience(n, patience))
	defer cancel()
	if got, err := n.store.Reopen(ctx, f, deadletter.ChangeOptions{}, n.by); err != nil || got != want {
		n.Fatalf("Reopen = %d, %v; want %d", got, err, want)
	}
}

// outcomes returns the outcomes of the events of a replay.
func (n *rig) outcomes(job deadletter.Replay) map[string]string {
	n.Helper()
	rows, _ := n.pool.Query(n.Context(), "SELECT event_id, coalesce(outcome, 'none') FROM postroom.replay_event WHERE replay = $1", job.ID)
	outcomes := map[string]string{}
	var id, outcome string
	if _, err := pgx.ForEachRow(rows, []any{&id, &outcome}, func() error {
		outcomes[id] = outcome
		return nil
	}); err != nil {
		n.Fatal(err)
	}
	return outcomes
}

func (n *rig) wantOutcomes(job deadletter.Replay, want map[string]string) {
	n.Helper()
	if got := n.outcomes(job); !maps.Equal(got, want) {
		n.Errorf("replay %d: %v, want %v", job.ID, got, want)
	}
}

// wantConsistent checks what must be true of held whenever no replay runs: no event waits without an
// event in front of it, and no key that a replay made is left.
func (n *rig) wantConsistent() {
	n.Helper()
	n.want("events that wait for nothing", 0, `SELECT count(*) FROM postroom.held h
		WHERE next_at IS NULL AND dead_at IS NULL AND NOT EXISTS (
			SELECT FROM postroom.held o WHERE o.handler = h.handler AND o.chain = h.chain AND o.pos < h.pos AND (o.next_at IS NOT NULL OR o.dead_at IS NOT NULL))`)
	n.want("keys of replays", 0, "SELECT count(*) FROM postroom.held WHERE chain LIKE 'replay %'")
}

// startReplay runs a replay in another goroutine.
func (n *rig) startReplay(job deadletter.Replay) <-chan deadletter.Replay {
	finished := make(chan deadletter.Replay, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(n.Context()), devtest.Patience(n, 2*patience))
		defer cancel()
		done, err := n.store.RunReplay(ctx, job.ID, deadletter.RunOptions{})
		if err != nil {
			n.Error(err)
		}
		finished <- done
	}()
	return finished
}
