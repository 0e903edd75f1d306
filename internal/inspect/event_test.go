package inspect_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/held"
	"github.com/postroom/postroom/internal/inspect"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/outbox"
)

// raw stores a message of an event of source /shop, as a relay does.
func (p *rig) raw(kind, id string) { p.Helper(); p.rawOf("/shop", kind, id) }

func (p *rig) rawOf(source, kind, id string) {
	p.Helper()
	ev := p.event(id, kind, "")
	ev.Source, ev.LoggedAt, ev.Time, ev.Subject = source, time.Now(), time.Now(), ev.Type
	if _, err := p.js.PublishMsg(p.Context(), &nats.Msg{Subject: ev.Subject, Header: wire.Encode(ev), Data: []byte("c4nary")}); err != nil {
		p.Fatal(err)
	}
}

// The publish state of an event follows from the relay's row.
func TestEventOfTheLogHasThePublishState(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	open, err := p.pool.Begin(t.Context()) // this transaction takes seq 1, and commits last
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(t.Context()) }()
	shop := outbox.New(outbox.Config{Source: "/shop"})
	if err := shop.Write(t.Context(), open, p.event("late", "x", "")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"published", "pending", "held", "discarded"} {
		p.write(p.event(id, "x", ""))
	}
	p.exec("UPDATE postroom.relay SET high = 5, snap = pg_current_snapshot(), pending = '{[3,4)}'")
	p.holdOutgoing(4, "next_at", "now()")
	p.exec(`INSERT INTO postroom.archive (id, audit, handler, pos, dead_at, held_at, attempts, solitary, class, revision, replays, logged_at, source,
		event_id, type, subject, content_type, data) SELECT 1, 1, 'outbox', seq, now(), now(), 1, false, 'x', 0, 0, now(), source, event_id, type, subject, content_type, data
		FROM postroom.outbox WHERE event_id = 'discarded'`)
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.write(p.event("unpublished", "x", ""))
	for id, want := range map[string]inspect.PublishState{
		"late": inspect.Unpublished, "published": inspect.Published, "pending": inspect.Pending, "held": inspect.PublishHeld,
		"discarded": inspect.PublishDiscarded, "unpublished": inspect.Unpublished,
	} {
		if j := p.trace(p.alone(), "", id); len(j.LogEntries) != 1 || j.LogEntries[0].State != want {
			t.Errorf("%s is %+v, want %s", id, j.LogEntries, want)
		}
	}
	p.exec("UPDATE postroom.relay SET floor = 5") // as if the log was restored into another cluster, where ids of transactions mean nothing
	if j := p.trace(p.alone(), "", "late"); j.LogEntries[0].State != inspect.Published {
		t.Errorf("below the floor it is %s", j.LogEntries[0].State)
	}
}

// Events of three sources have one id. All are found. If a source is given, only its event is
// found.
func TestEventsWithOneID(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	for _, source := range []string{"/a", "/b", "/c"} {
		err := pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error {
			first := p.event("1", "x", "")
			first.CausationID = "cause" + source
			return outbox.New(outbox.Config{Source: source}).Write(t.Context(), tx, first, p.event("other", "x", ""), p.event(first.CausationID, "x", ""))
		})
		if err != nil {
			t.Fatal(err)
		}
		p.exec("INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('h', $1), ('g', $1)", source+" 1")
	}
	if j := p.trace(p.alone(), "", "1"); len(j.LogEntries) != 3 || len(j.Decisions) != 6 || !slices.Equal(j.Sources, []string{"/a", "/b", "/c"}) || len(j.CausedBy) != 3 {
		t.Errorf("of all sources: %+v", j)
	}
	if j := p.trace(p.alone(), "/b", "1"); len(j.LogEntries) != 1 || j.LogEntries[0].Source != "/b" || len(j.Decisions) != 2 {
		t.Errorf("of /b: %+v", j)
	}
}

// In a consumer's database only inbox rows are left of an event. The time in its id and the stream
// lead to its source.
func TestEventOfAnotherService(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	id := postroom.NewEvent("x", 1).ID // a UUIDv7
	p.raw("placed", "before")
	p.raw("placed", id)
	p.exec("INSERT INTO postroom.subscription (handler, stream, stream_created, subjects) VALUES ('h', $1, now(), $2), ('g', $1, now(), $2)",
		p.stream, []string{p.stream + ".placed"})
	p.exec("INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('h', $1)", "/shop "+id)

	j := p.trace(p.inspector(), "", id)
	if len(j.Streams) != 1 || !j.Streams[0].Found || j.Streams[0].Seq != 2 || j.Streams[0].Source != "/shop" {
		t.Errorf("in the stream: %+v", j.Streams)
	}
	if len(j.Decisions) != 1 || j.Decisions[0].Handler != "h" || !slices.Equal(j.Undecided, []string{"g"}) || len(j.Notes) != 1 {
		t.Errorf("decided: %+v, undecided %v, notes %v", j.Decisions, j.Undecided, j.Notes)
	}
	if j := p.trace(p.alone(), "/shop", id); len(j.Decisions) != 1 { // with the source, and without a broker
		t.Errorf("decided: %+v", j.Decisions)
	}
	if _, err := p.alone().Event(t.Context(), "", id); !errors.Is(err, inspect.ErrNotFound) {
		t.Errorf("without source and broker: %v", err)
	}
	other := postroom.NewEvent("x", 1).ID
	_, err := p.inspector().Event(t.Context(), "", other)
	if !errors.Is(err, inspect.ErrNotFound) || !strings.Contains(err.Error(), "in stream "+p.stream+" from 20") {
		t.Errorf("another: %v", err)
	}
}

// A delivery of a webhook is made when the event is fanned out, which may be much later than the
// event. The event is in the stream before that.
func TestEventOfAnotherServiceThatWasFannedOutLate(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	id := postroom.NewEvent("x", 1).ID
	p.raw("placed", id)
	p.exec("INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('hooks', $1)", "ep_1 /shop "+id)
	p.exec(`INSERT INTO postroom.held (handler, dedupe_key, next_at, logged_at, source, event_id, type, subject, content_type, data)
		VALUES ('hooks', $1, now(), now() + interval '1 hour', '/shop', $2, 'x', $3, 'text/plain', '')`, "ep_1 /shop "+id, id, p.stream+".placed")
	if j := p.trace(p.inspector(), "/shop", id); len(j.Streams) != 1 || !j.Streams[0].Found || j.Streams[0].Seq != 1 {
		t.Errorf("in the stream: %+v", j.Streams)
	}
}

// If an event is not in the stream, the error says so, and names what was searched.
func TestSearchThatFindsNothing(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.write(p.event("lost", "placed", ""))
	p.exec("UPDATE postroom.relay SET high = 1, snap = pg_current_snapshot()")
	for n := range 5 {
		p.raw("placed", fmt.Sprint(n))
	}
	p.raw("other", "lost")                  // on another subject
	p.rawOf("/elsewhere", "placed", "lost") // another event
	j := p.trace(p.inspector(), "", "lost")
	if len(j.Streams) != 1 || j.Streams[0].Found || !j.Streams[0].Complete || j.Streams[0].Examined != 6 {
		t.Errorf("in the stream: %+v", j.Streams)
	}
	if consumers := p.consumers(); consumers > 0 {
		t.Errorf("%d consumers are left", consumers)
	}
}

func (p *rig) consumers() int {
	p.Helper()
	stream, err := p.js.Stream(p.Context(), p.stream)
	if err != nil {
		p.Fatal(err)
	}
	info, err := stream.Info(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	return info.State.Consumers
}

// A long stream is not read to its end: a search ends after half a second.
func TestSearchOfALongStreamIsBoundedInTime(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.write(p.event("lost", "placed", ""))
	p.exec("UPDATE postroom.relay SET high = 1, snap = pg_current_snapshot()")
	const n = 40_000
	for range n {
		if err := p.nc.Publish(p.stream+".placed", nil); err != nil {
			t.Fatal(err)
		}
	}
	p.eventually("the stream to have them all", func() bool {
		stream, err := p.js.Stream(t.Context(), p.stream)
		return err == nil && stream.CachedInfo().State.Msgs == n
	})
	before := time.Now()
	j := p.trace(p.inspector(), "", "lost")
	if took := time.Since(before); took > devtest.Patience(t, 5*time.Second) {
		t.Errorf("it took %s", took)
	}
	if s := j.Streams[0]; s.Found || s.Examined == 0 || s.Complete != (s.Examined == n) {
		t.Errorf("in the stream: %+v", s)
	}
}

// An event shows its edits, replays, discards and steps, and who made them.
func TestEventShowsEditsReplaysAndSteps(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.hold("pay", "1", "dead_at, class, revision, attempts, failures, chain, pos",
		`now(), 'panic', 1, 12, '[{"at": "2026-01-01T00:00:00+00:00", "class": "panic", "text": "boom", "frame": "main.pay", "stack": "…"}]', 'k', 1`)
	p.exec("INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('mail', 'welcome:7'), ('other', 'welcome:7')") // the key of a DedupeKey function
	p.exec(`INSERT INTO postroom.inbox (handler, dedupe_key, failures, result) VALUES ('ship', '/shop 1', '[{"at": "2026-01-01T00:00:00+00:00", "class": "error", "text": "not yet"}]', 'parcel 7')`)
	p.exec(`INSERT INTO postroom.archive (id, audit, handler, dedupe_key, dead_at, held_at, attempts, solitary, class, revision, replays, logged_at, source,
		event_id, type, subject, content_type, data) VALUES (77, 5, 'mail', 'welcome:7', now(), now(), 1, false, 'x', 0, 0, now(), '/shop', '1', 'a.b', 'a.b', 'text/plain', 'c4nary')`)
	p.exec(`INSERT INTO postroom.receipt (handler, dedupe_key, step, revision, key, unanswered, done_at, result)
		VALUES ('pay', '/shop 1', 'charge', 0, 'idem-1', 0, now(), 'c4nary'), ('pay', '/shop 1', 'ship', 1, 'idem-2', 2, NULL, NULL)`)
	p.exec("INSERT INTO postroom.revision (held, revision, audit, event_id, content_type, data) VALUES (1, 0, 1, '1', 'text/plain', 'c4nary')")
	p.exec(`INSERT INTO postroom.replay (actor, reason, filter, attempts, canary, stop_at, as_new, phase, items) VALUES ('ann', 'fixed', '{}', 1, 0, 1, false, 'rest', 1)`)
	p.exec(`INSERT INTO postroom.replay_event (replay, n, through, held, handler, source, event_id, dead_at, released_at, outcome, ended_at)
		VALUES (1, 1, 1, 1, 'pay', '/shop', '1', now(), now(), 'failed', now())`)
	p.exec(`INSERT INTO postroom.audit (actor, action, reason, events, handler, source, event_id) VALUES
		('ann', 'edit', 'typo', 1, 'pay', '/shop', '1'), ('bob', 'discard', 'test', 1, 'mail', '/shop', '1'), ('bob', 'discard', 'test', 1, 'mail', '/elsewhere', '1')`)

	j := p.trace(p.alone(), "/shop", "1")
	if len(j.Steps) != 2 || j.Steps[0].Key != "idem-1" || j.Steps[0].DoneAt.IsZero() || j.Steps[1].Unanswered != 2 || !j.Steps[1].DoneAt.IsZero() {
		t.Errorf("steps: %+v", j.Steps)
	}
	if len(j.Revisions) != 1 || j.Revisions[0].AuditID != 1 || j.Revisions[0].Bytes != 6 {
		t.Errorf("revisions: %+v", j.Revisions)
	}
	if len(j.Replays) != 1 || j.Replays[0].Outcome != "failed" || j.Replays[0].Actor != "ann" || j.Replays[0].EndedAt.IsZero() {
		t.Errorf("replays: %+v", j.Replays)
	}
	if len(j.Audit) != 2 || j.Audit[0].Action != "edit" || j.Audit[1].Actor != "bob" {
		t.Errorf("audit: %+v", j.Audit)
	}
	if len(j.Discarded) != 1 || j.Discarded[0].AuditID != 5 || j.Discarded[0].State != held.Discarded || j.Discarded[0].DiscardedAt.IsZero() {
		t.Errorf("discarded: %+v", j.Discarded)
	}
	if f := j.Held[0].Failures; len(f) != 1 || f[0].Frame != "main.pay" || f[0].Stack != "…" || !f[0].At.Equal(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("failures: %+v", f)
	}
	var decided []string
	for _, d := range j.Decisions {
		decided = append(decided, d.Handler+" "+d.DedupeKey+" "+string(d.State))
	}
	slices.Sort(decided)
	if want := []string{"mail welcome:7 discarded", "pay /shop 1 dead", "ship /shop 1 "}; !slices.Equal(decided, want) {
		t.Errorf("decided: %v, want %v", decided, want)
	}
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "c4nary") {
		t.Errorf("it shows data: %s", text)
	}
	said := ""
	for _, m := range j.Timeline() {
		said += m.Where + ": " + m.Text + "\n"
	}
	for _, want := range []string{
		"pay: step charge begun, key idem-1", "pay: step charge done", "pay: step ship begun, key idem-2, revision 1", "edit by ann: typo (revision 0 was replaced)",
		"put into replay 1 by ann: fixed", "released by replay 1", "replay 1: failed", "mail: discarded (audit 5)",
		"pay: failed: panic: boom", "pay: dead after 12 attempts, panic", "pay: held, key k",
		"ship: failed: error: not yet", "ship: took effect: parcel 7",
	} {
		if strings.Count(said, want) != 1 {
			t.Errorf("want %q once in the timeline:\n%s", want, said)
		}
	}
}

// If the broker refused an event and later took it, the event shows why. If held has some of
// the same failures, each is shown once.
func TestEventShowsRefusalsBeforeItWasPublished(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.write(p.event("1", "x", ""))
	p.exec("UPDATE postroom.relay SET high = 1, snap = pg_current_snapshot()")
	const first, second = `{"at": "2026-01-01T00:00:00+00:00", "class": "js_10077", "text": "full"}`, `{"at": "2026-01-02T00:00:00+00:00", "class": "js_10023", "text": "no room"}`
	p.exec("INSERT INTO postroom.refused VALUES (1, $1)", "["+first+", "+second+"]")
	p.holdOutgoing(1, "next_at, republish, class, attempts, failures", "now(), 1, 'js_10023', 1, '["+second+"]'")
	j := p.trace(p.alone(), "/shop", "1")
	if f := j.LogEntries[0].Failures; len(f) != 2 || f[0].Class != "js_10077" || f[1].Text != "no room" {
		t.Errorf("failures: %+v", f)
	}
	said := ""
	for _, m := range j.Timeline() {
		said += m.Where + ": " + m.Text + "\n"
	}
	for _, want := range []string{"outbox: failed: js_10077: full", "js_10023: no room"} {
		if strings.Count(said, want) != 1 {
			t.Errorf("want %q once in the timeline:\n%s", want, said)
		}
	}
}

// An event shows the requests to publish events again that have it, and no others.
func TestRequestsToPublishAgain(t *testing.T) {
	t.Parallel()
	p := newRig(t)
	p.write(p.event("1", "x", "k"), p.event("2", "x", "k"))
	const request = `INSERT INTO postroom.republish (actor, reason, kind, types, keys, since, lo, hi, seqs, pending, events, rate, digest, passed, state, ended_at)
		VALUES ($1, 'lost', 'range', $2, $3, $4, 1, 2, $5::int8multirange, $6::int8multirange, 1, 1000, $1, $7, $8, CASE WHEN $8 <> 'running' THEN now() END)`
	types, later := []string{p.stream + ".x"}, time.Now().Add(time.Hour)
	for _, r := range []struct {
		actor         string
		types, keys   []string
		since         *time.Time
		seqs, pending any
		passed        int
		state         string
	}{
		{"all", nil, nil, nil, nil, "{}", 2, "done"},
		{"typed", types, []string{"k"}, nil, "{[1,3)}", "{}", 1, "running"},
		{"owing", nil, nil, nil, nil, "{[2,3)}", 2, "cancelled"},
		{"other type", []string{"a.b"}, nil, nil, nil, "{}", 2, "done"},
		{"other key", nil, []string{"l"}, nil, nil, "{}", 2, "done"},
		{"other seqs", nil, nil, nil, "{[1,2)}", "{}", 2, "done"},
		{"later", nil, nil, &later, nil, "{}", 2, "done"},
	} {
		p.exec(request, r.actor, r.types, r.keys, r.since, r.seqs, r.pending, r.passed, r.state)
	}
	j := p.trace(p.alone(), "/shop", "2")
	var got []string
	for _, r := range j.Republishes {
		got = append(got, fmt.Sprintf("%d %s %s %s %t", r.RequestID, r.Actor, r.Reason, r.State, r.Passed))
	}
	if want := []string{"1 all lost done true", "2 typed lost running false", "3 owing lost cancelled false"}; !slices.Equal(got, want) {
		t.Errorf("requests: %q, want %q", got, want)
	}
	said := ""
	for _, m := range j.Timeline() {
		said += m.Where + ": " + m.Text + "\n"
	}
	for _, want := range []string{
		"operator: request 1 by all to publish it again: lost", "republish: request 1 to publish again: done; the relay was done with this event",
		"operator: request 2 by typed", "republish: request 3 to publish again: cancelled before this event was published again",
	} {
		if strings.Count(said, want) != 1 {
			t.Errorf("want %q once in the timeline:\n%s", want, said)
		}
	}
}
