package inspect_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/schema"
)

// All answers agree about a shop, its relay and its consumers. One event took effect and caused
// another event, one is dead, and one blocks its key.
func TestAnswersAgreeAboutAShop(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	billing := outbox.New(outbox.Config{Source: "/billing"})
	in := inbox.New(p.pool, p.nc, inbox.Config{})
	in.Handle(p.subscription("billing.charge", "placed"), postroom.HandlerFunc(func(ctx context.Context, tx pgx.Tx, ev postroom.Event) error {
		if err := failsSome(ctx, tx, ev); err != nil {
			return err
		}
		next := ev.Follow(p.stream+".charged", ev.ID)
		next.ID = "charge-of-" + ev.ID
		return billing.Write(ctx, tx, next)
	}))
	ordered := p.subscription("ledger.move", "moved")
	ordered.Order = inbox.HoldKey
	in.Handle(ordered, postroom.HandlerFunc(failsSome))

	p.write(p.event("good", "placed", "k1"), p.event("bad", "placed", "k2"))
	p.write(p.event("later", "moved", "k3"), p.event("next", "moved", "k3"), p.event("other", "moved", "k4"))
	p.relay()
	p.run(in)
	i := p.inspector()
	p.eventually("all to be decided, and published", func() bool {
		s := p.status(i)
		return s.Relay.EstimatedUnpublished == 0 && heldOf(s.Held, "billing.charge").Events(held.Dead) == 1 &&
			heldOf(s.Held, "ledger.move").Events() == 2 && len(s.Processes) == 1
	})
	p.wantStatus(i)
	p.wantHandlers(i)
	p.wantKeys(i)
	p.wantGood(i)
	p.wantBad(i)
}

func (p *rig) wantStatus(i *inspect.Inspector) {
	p.Helper()
	s := p.status(i)
	if !s.Relay.Leads || s.Relay.Owner == "" || s.Relay.Epoch != 1 || s.Relay.RemainingSeconds <= 0 || !s.Relay.OldestUnpublishedAt.IsZero() {
		p.Errorf("relay: %+v", s.Relay)
	}
	moves := heldOf(s.Held, "ledger.move")
	if moves.Events(held.Retrying) != 1 || moves.Events(held.Waiting) != 1 || moves.Keys != 1 {
		p.Errorf("held of ledger.move: %+v", moves)
	}
	if got, want := codes(s), []string{"dead billing.charge"}; !slices.Equal(got, want) {
		p.Errorf("findings: %v, want %v", got, want)
	}
	if h := s.Processes[0].Handlers; !slices.Equal(h, []string{"billing.charge", "ledger.move"}) || !s.Processes[0].Alive {
		p.Errorf("process: %+v", s.Processes[0])
	}
	if !s.Broker.Asked || s.Broker.Fault != "" {
		p.Errorf("broker: %+v", s.Broker)
	}
	text, err := json.Marshal(s)
	if err != nil || !strings.Contains(string(text), `"oldest_unpublished_age_seconds":0}`) || strings.Contains(string(text), "null") {
		p.Errorf("JSON: %s, %v", text, err)
	}
}

func (p *rig) wantHandlers(i *inspect.Inspector) {
	p.Helper()
	var h *inspect.Handlers
	p.eventually("the broker to have every acknowledgement", func() bool {
		var err error
		if h, err = i.Handlers(p.Context()); err != nil {
			p.Fatal(err)
		}
		return len(h.Handlers) == 2 && h.Handlers[0].Broker != nil && h.Handlers[0].Broker.AckPending == 0 && h.Handlers[1].Broker.Pending == 0
	})
	charge, move := h.Handlers[0], h.Handlers[1]
	if charge.Name != "billing.charge" || charge.Ordered || charge.Reader != nil || len(charge.Processes) != 1 {
		p.Errorf("billing.charge: %+v", charge)
	}
	if b := charge.Broker; b.LastSeq != 6 || b.Consumer == "" || b.Pending != 0 || b.LagSeconds != 0 || b.Fault != "" {
		p.Errorf("broker of billing.charge: %+v", b)
	}
	if !move.Ordered || move.Reader == nil || !move.Reader.Reads || move.Reader.Name != charge.Processes[0] || move.Held.Keys != 1 {
		p.Errorf("ledger.move: %+v", move)
	}
	if b := move.Broker; b.Consumer != "" || b.Pending != 0 || b.Fault != "" {
		p.Errorf("broker of ledger.move: %+v", b)
	}
	if !slices.Equal(move.Types, []string{p.stream + ".moved"}) || move.Stream != p.stream {
		p.Errorf("ledger.move reads %v of %s", move.Types, move.Stream)
	}
}

func (p *rig) wantKeys(i *inspect.Inspector) {
	p.Helper()
	k, err := i.Keys(p.Context(), inspect.KeyFilter{})
	if err != nil {
		p.Fatal(err)
	}
	if len(k.Keys) != 1 || k.Next != nil {
		p.Fatalf("keys: %+v", k)
	}
	got := k.Keys[0]
	if got.Handler != "ledger.move" || got.Key != "k3" || got.Behind != 1 || got.Head.EventID != "later" || got.Head.State != held.Retrying ||
		got.Head.Class != "error" || !strings.HasSuffix(got.Head.Failure, "the vendor is closed\nuntil tomorrow") || got.Head.Attempts != 1 || got.Head.Since.IsZero() {
		p.Errorf("key: %+v", got)
	}
}

func (p *rig) trace(i *inspect.Inspector, source, id string) *inspect.EventTrace {
	p.Helper()
	j, err := i.Event(p.Context(), source, id)
	if err != nil {
		p.Fatal(err)
	}
	return j
}

// wantGood checks the answers about an event that took effect.
func (p *rig) wantGood(i *inspect.Inspector) {
	p.Helper()
	j := p.trace(i, "", "good")
	if len(j.LogEntries) != 1 || j.LogEntries[0].State != inspect.Published || j.LogEntries[0].Key != "k1" || j.LogEntries[0].Bytes == 0 {
		p.Errorf("logged: %+v", j.LogEntries)
	}
	if len(j.Streams) != 1 || !j.Streams[0].Found || j.Streams[0].Stream != p.stream || j.Streams[0].Seq == 0 || j.Streams[0].MessageID != "/shop#good" {
		p.Errorf("in the stream: %+v", j.Streams)
	}
	if len(j.Decisions) != 1 || j.Decisions[0].Handler != "billing.charge" || j.Decisions[0].State != "" {
		p.Errorf("decided: %+v", j.Decisions)
	}
	if len(j.Caused) != 1 || j.Caused[0].EventID != "charge-of-good" || j.Caused[0].Source != "/billing" {
		p.Errorf("caused: %+v", j.Caused)
	}
	if len(j.Undecided)+len(j.Held)+len(j.Notes) > 0 || !slices.Equal(j.Sources, []string{"/shop"}) {
		p.Errorf("trace: %+v", j)
	}
	j = p.trace(i, "/billing", "charge-of-good")
	if len(j.CausedBy) != 1 || j.CausedBy[0].EventID != "good" || len(j.Decisions) != 0 {
		p.Errorf("cause: %+v, decided: %+v", j.CausedBy, j.Decisions)
	}
	var seen []string
	for _, m := range p.trace(i, "", "good").Timeline() {
		seen = append(seen, m.Where)
	}
	if want := []string{"log", "stream " + p.stream, "billing.charge", "log"}; !slices.Equal(seen, want) {
		slices.Sort(seen) // the broker has another clock
		if slices.Sort(want); !slices.Equal(seen, want) {
			p.Errorf("timeline: %v, want %v", seen, want)
		}
	}
}

// wantBad checks the answers about a dead event.
func (p *rig) wantBad(i *inspect.Inspector) {
	p.Helper()
	j := p.trace(i, "/shop", "bad")
	if len(j.Held) != 1 || j.Held[0].State != held.Dead || j.Held[0].Attempts != 1 || len(j.Held[0].Failures) != 1 ||
		!strings.HasSuffix(j.Held[0].Failures[0].Text, "the card was refused") || j.Held[0].Failures[0].At.IsZero() || j.Held[0].Class != "permanent" {
		p.Errorf("held: %+v", j.Held)
	}
	if len(j.Decisions) != 1 || j.Decisions[0].State != held.Dead {
		p.Errorf("decided: %+v", j.Decisions)
	}
	if !j.Streams[0].Found {
		p.Errorf("in the stream: %+v", j.Streams)
	}
	var text []string
	for _, m := range j.Timeline() {
		text = append(text, m.Text)
	}
	all := strings.Join(text, "\n")
	if !strings.Contains(all, "failed at attempt 1: permanent: ") || !strings.Contains(all, "dead after 1 attempt,") {
		p.Errorf("timeline:\n%s", all)
	}
}

func TestEventThatIsNowhereIsReported(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	_, err := p.inspector().Event(t.Context(), "", "nobody")
	if !errors.Is(err, inspect.ErrNotFound) || !strings.Contains(err.Error(), "give the source") {
		t.Errorf("Event = %v", err)
	}
	_, err = p.alone().Event(t.Context(), "/shop", "nobody")
	if !errors.Is(err, inspect.ErrNotFound) || !strings.Contains(err.Error(), "inbox of every handler") || !strings.Contains(err.Error(), "broker was not asked") {
		t.Errorf("Event = %v", err)
	}
}

func TestFaultsOfTheConfigAndTheSchema(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	_, err := inspect.New(p.pool, nil, inspect.Config{Schema: "pg_x"}).Status(t.Context())
	if !errors.Is(err, schema.ErrInvalidName) || !errors.Is(err, postroom.ErrUnrecoverable) {
		t.Errorf("Status = %v", err)
	}
	_, err = inspect.New(p.pool, nil, inspect.Config{Schema: "other"}).Status(t.Context())
	if !errors.Is(err, schema.ErrOutdated) {
		t.Errorf("Status = %v", err)
	}
	if _, err := schema.Migrate(t.Context(), p.pool, "other"); err != nil {
		t.Fatal(err)
	}
	other := inspect.New(p.pool, p.nc, inspect.Config{Schema: "other"})
	_, err1 := other.Status(t.Context())
	_, err2 := other.Handlers(t.Context())
	_, err3 := other.Keys(t.Context(), inspect.KeyFilter{})
	_, err4 := other.Tables(t.Context())
	_, err5 := other.Audit(t.Context(), inspect.AuditFilter{})
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Errorf("in another schema: %v", err)
	}
}

// An answer shows one moment, and its transaction cannot write.
func TestAnswersUseOneReadOnlySnapshot(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	conn, err := p.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	spy := &spy{db: conn.Conn()}
	if _, err := inspect.New(spy, nil, inspect.Config{}).Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	if spy.options.AccessMode != pgx.ReadOnly || spy.options.IsoLevel != pgx.RepeatableRead {
		t.Errorf("transaction: %+v", spy.options)
	}
	if _, err := conn.Exec(t.Context(), "CREATE TABLE after ()"); err != nil { // the settings ended with the transaction
		t.Error(err)
	}
	var setting string
	if err := conn.QueryRow(t.Context(), "SHOW enable_seqscan").Scan(&setting); err != nil || setting != "on" {
		t.Errorf("enable_seqscan is %s afterwards, %v", setting, err)
	}
}

type spy struct {
	db      inspect.DB
	options pgx.TxOptions
}

func (s *spy) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	s.options = options
	return s.db.BeginTx(ctx, options)
}
