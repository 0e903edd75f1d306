package pglog_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/operator"
	"github.com/postroom/postroom/relay/broker"
)

// entries returns the ids of the events that were published since the checkpoint, in their
// order, and of those that may be on their way.
func entries(t *testing.T, log *pglog.Log, after eventlog.Checkpoint, since time.Time) (ids []string, others map[string]bool) {
	t.Helper()
	others = map[string]bool{}
	next, err := log.Entries(t.Context(), after, since, false)
	if err != nil {
		t.Fatal(err)
	}
	for {
		page, err := next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return ids, others
		}
		for _, e := range page {
			if e.Source != "/shop" || e.Subject == "" || e.LoggedAt.IsZero() || e.Seq == 0 {
				t.Errorf("entry %+v", e)
			}
			if e.Published {
				ids = append(ids, e.ID)
			} else {
				others[e.ID] = true
			}
		}
	}
}

// relayHistory is a relay's life in small steps, with checkpoints between them.
type relayHistory struct {
	*testing.T
	pool *pgxpool.Pool
	log  *pglog.Log
	rng  *rand.Rand
	term *pglog.Term

	written int
	open    []pgx.Tx
	window  []broker.Event // read and not acknowledged

	acked     uint64              // the last sequence of the stream
	published map[string]uint64   // by id, its sequence
	marks     map[uint64][]string // the ids that were published then, by sequence
}

func (c *relayHistory) step() {
	switch c.rng.IntN(10) {
	case 0:
		if len(c.open) < 3 { // each has a connection
			c.open = append(c.open, openWith(c.T, c.pool, c.id()))
		}
	case 1:
		if len(c.open) > 0 {
			i := c.rng.IntN(len(c.open))
			if err := c.open[i].Commit(c.Context()); err != nil {
				c.Fatal(err)
			}
			c.open = slices.Delete(c.open, i, i+1)
		}
	case 2, 3:
		write(c.T, c.pool, c.id())
	case 4, 5:
		_, _, page := read(c.T, c.term, 1+c.rng.IntN(5))
		c.window = append(c.window, page.Events...)
	case 6, 7:
		c.ack(c.rng.IntN(4) == 0)
	case 8:
		c.refuse()
	case 9:
		if c.rng.IntN(4) == 0 { // another term reads unacknowledged events again
			if err := c.term.Abandon(); err != nil {
				c.Fatal(err)
			}
			c.term, c.window = lead(c.T, c.log), nil
		}
	}
}

func (c *relayHistory) id() string {
	c.written++
	return fmt.Sprint("e", c.written)
}

// ack records that some of the window is published, with or without a checkpoint.
func (c *relayHistory) ack(mark bool) {
	var p eventlog.Progress
	c.window = slices.DeleteFunc(c.window, func(ev broker.Event) bool {
		if c.rng.IntN(3) == 0 {
			return false
		}
		p.Published = append(p.Published, ev.Seq)
		c.acked++
		c.published[ev.ID] = c.acked
		return true
	})
	if len(p.Published) == 0 {
		return
	}
	p.Positions = []broker.StreamPosition{{Stream: "SHOP", Created: time.Unix(7, 5), Seq: c.acked, MessageID: "m"}}
	if mark {
		c.term.CheckpointNow()
	}
	c.marks[c.acked] = slices.Collect(maps.Keys(c.published)) // a checkpoint is also made when enough time has passed
	if err := c.term.Record(c.Context(), p); err != nil {
		c.Fatal(err)
	}
}

// refuse holds an event of the window, and makes the held events due.
func (c *relayHistory) refuse() {
	if len(c.window) > 0 {
		i := c.rng.IntN(len(c.window))
		hold(c.T, c.term, refusal(1), c.window[i])
		c.window = slices.Delete(c.window, i, i+1)
	}
	overrideNextAtOfDue(c.T, c.pool)
}

// Entries returns every event that was published after a checkpoint, and none that was
// published before. That includes events that became visible late, were in flight at the
// checkpoint, or were held.
func TestEntriesReturnsEventsPublishedSinceACheckpoint(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	c := &relayHistory{
		T: t, pool: pool, log: log, rng: devtest.Random(t, 0), term: lead(t, log),
		published: map[string]uint64{}, marks: map[uint64][]string{},
	}
	for range 1500 {
		c.step()
	}
	onTheirWay := []string{c.id(), c.id()}
	write(t, pool, append(onTheirWay, c.id())...) // of which only the last is acknowledged
	for range 3 {
		_, _, page := read(t, c.term, 1000)
		c.window = append(c.window, page.Events...)
	}
	c.window = []broker.Event{slices.MaxFunc(c.window, func(a, b broker.Event) int { return cmp.Compare(a.Seq, b.Seq) })}
	for len(c.window) > 0 {
		c.ack(false)
	}
	for _, tx := range c.open {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	marks, err := log.Checkpoints(t.Context(), "SHOP")
	if err != nil {
		t.Fatal(err)
	}
	if len(marks) < 20 {
		t.Fatalf("inconclusive: %d marks", len(marks))
	}
	marks = append(marks, eventlog.Checkpoint{}) // the zero checkpoint, when nothing was published
	for i, mark := range marks {
		if i > 0 && i < len(marks)-1 && mark.Position.Seq > marks[i-1].Position.Seq {
			t.Errorf("mark at %d comes after that at %d, want the newest first", mark.Position.Seq, marks[i-1].Position.Seq)
		}
		if mark.ID != 0 && (!mark.Position.Created.Equal(time.Unix(7, 5)) || mark.Position.MessageID != "m" || mark.Position.Stream != "SHOP") {
			t.Errorf("mark %+v", mark)
		}
		var want []string
		for id := range c.published {
			if !slices.Contains(c.marks[mark.Position.Seq], id) {
				want = append(want, id)
			}
		}
		got, others := entries(t, log, mark, time.Time{})
		for _, id := range onTheirWay {
			if !others[id] {
				t.Errorf("since mark %d: %s may be in flight, and is not reported", mark.Position.Seq, id)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			more := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return slices.Contains(want, id) })
			less := slices.DeleteFunc(want, func(id string) bool { return slices.Contains(got, id) })
			t.Errorf("since mark %d: %d events, among them %v, which were published before, and not %v", mark.Position.Seq, len(got), more, less)
		}
	}
	if got, err := log.Checkpoints(t.Context(), "OTHER"); err != nil || len(got) > 0 {
		t.Errorf("marks of another stream: %v, %v", got, err)
	}
}

// The positions of streams are stored together with the rest of the state, and survive the term.
func TestPlacesAreRecorded(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	write(t, pool, "a", "b")
	log := pglog.New(pool)
	term := lead(t, log)
	if got := term.Positions(); len(got) > 0 {
		t.Errorf("places %+v of a new log", got)
	}
	_, seqs, _ := read(t, term, 10)
	created := time.Date(2026, 2, 3, 4, 5, 6, 123456789, time.UTC)
	want := []broker.StreamPosition{{Stream: "SHOP", Created: created, Seq: 7, MessageID: "/shop#a"}}
	if err := term.Record(t.Context(), eventlog.Progress{Published: seqs[:1], Positions: want}); err != nil {
		t.Fatal(err)
	}
	if err := term.Release(t.Context(), eventlog.Progress{}); err != nil {
		t.Fatal(err)
	}
	term = lead(t, log)
	if got := term.Positions(); !slices.Equal(got, want) {
		t.Errorf("places %+v, want %+v", got, want)
	}
	// An event that the broker lost must be published again, in its order and before newer events.
	progress := eventlog.Progress{Lost: seqs[:1], Positions: []broker.StreamPosition{{Stream: "SHOP", Created: created, Seq: 3}}}
	if err := term.Record(t.Context(), progress); err != nil {
		t.Fatal(err)
	}
	if err := term.Abandon(); err != nil {
		t.Fatal(err)
	}
	write(t, pool, "c")
	term = lead(t, log)
	if got := term.Positions(); !slices.Equal(got, progress.Positions) {
		t.Errorf("places %+v, want %+v", got, progress.Positions)
	}
	var ids []string
	for range 2 {
		found, _, _ := read(t, term, 10)
		ids = append(ids, found...)
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(ids, want) {
		t.Errorf("read %v, want %v", ids, want)
	}
}

// Events are read from about the given time on.
func TestPublishedSinceATime(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	var ids []string
	for i := range 50 {
		ids = append(ids, fmt.Sprint("e", i))
	}
	write(t, pool, ids...)
	mustExec(t, pool, "DELETE FROM postroom.outbox WHERE seq % 3 = 1")
	mustExec(t, pool, "UPDATE postroom.outbox SET created_at = '2026-01-01Z'::timestamptz + seq * interval '1 hour'")
	publishAll(t, pool)
	log := pglog.New(pool)
	for _, hours := range []int{-5, 0, 1, 2, 25, 49, 50, 51, 90} {
		var want []string
		for i, id := range ids {
			if seq := i + 1; seq%3 != 1 && seq >= hours {
				want = append(want, id)
			}
		}
		since := time.Date(2026, 1, 1, hours, 0, 0, 0, time.UTC)
		if got, _ := entries(t, log, eventlog.Checkpoint{}, since); !slices.Equal(got, want) {
			t.Errorf("since %d h: %v, want %v", hours, got, want)
		}
	}
	if got, err := log.Sources(t.Context()); err != nil || !slices.Equal(got, []string{"/shop"}) {
		t.Errorf("Sources = %v, %v", got, err)
	}
}

// A comparison reads the state, then the end of the stream, then the log. A republish may publish
// its events after the end of the stream was read, and even end before the log is read. So these
// events are left out, and only these.
func TestEntriesLeavesOutWhatARepublishPublishesMeanwhile(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	term := lead(t, log)
	write(t, pool, "a", "b", "c", "d", "e")
	_, _, page := read(t, term, 10)
	var p eventlog.Progress
	seqs := map[string]int64{}
	for _, ev := range page.Events {
		seqs[ev.ID] = ev.Seq
		p.Published = append(p.Published, ev.Seq)
	}
	if err := term.Record(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	order := func(id string, passed int64) {
		mustExec(t, pool, `INSERT INTO postroom.republish (actor, kind, lo, hi, events, rate, digest, passed, seqs)
			VALUES ('ann', 'reconcile', $1, $1, 1, 1000, $2, $3, int8multirange(int8range($1, $1, '[]')))`, seqs[id], id, passed)
	}
	order("a", seqs["a"])   // its copy is in the stream
	order("b", seqs["b"]-1) // its copy will be published
	next, err := log.Entries(t.Context(), eventlog.Checkpoint{}, time.Time{}, false)
	if err != nil {
		t.Fatal(err)
	}
	order("c", seqs["c"]-1)
	mustExec(t, pool, `UPDATE postroom.republish SET state = 'done', passed = hi, published = 1, ended_at = now()`)
	found, err := next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range found {
		ids = append(ids, e.ID)
	}
	if want := []string{"a", "d", "e"}; !slices.Equal(ids, want) {
		t.Errorf("events to compare: %v, want %v", ids, want)
	}
}

// The relay may also publish held events after the end of the stream was read.
func TestEntriesLeavesOutHeldEventsThatArePublishedMeanwhile(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	term := lead(t, log)
	write(t, pool, "a", "b", "c")
	_, _, page := read(t, term, 10)
	a, b, c := page.Events[0], page.Events[1], page.Events[2]
	hold(t, term, refusal(1), a, b)
	publish := func(ev broker.Event) {
		t.Helper()
		err := term.Record(t.Context(), eventlog.Progress{
			Published: []int64{ev.Seq}, Positions: []broker.StreamPosition{{Stream: "SHOP", Created: time.Unix(7, 5), Seq: uint64(ev.Seq), MessageID: ev.ID}}, //nolint:gosec // a sequence
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	term.CheckpointNow()
	publish(c)
	publishHeld := func(id string) {
		t.Helper()
		mustExec(t, pool, "UPDATE postroom.held SET next_at = now() - interval '1 s' WHERE event_id = $1", id)
		_, _, page := read(t, term, 10)
		if len(page.Events) != 1 || page.Events[0].ID != id {
			t.Fatalf("due: %+v", page.Events)
		}
		publish(page.Events[0])
	}
	publishHeld("a") // it is in the stream when the comparison begins
	next, err := log.Entries(t.Context(), eventlog.Checkpoint{}, time.Time{}, false)
	if err != nil {
		t.Fatal(err)
	}
	publishHeld("b")
	found, err := next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range found {
		ids = append(ids, e.ID)
	}
	if want := []string{"a", "c"}; !slices.Equal(ids, want) {
		t.Errorf("events to compare: %v, want %v", ids, want)
	}
}

// A position that must still be compared is stored with the acknowledgement after it, and gets no
// checkpoint: the log knows of published events that the stream has only after the position.
func TestNoCheckpointOfAPositionWithLaterAcknowledgements(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	term := lead(t, log)
	write(t, pool, "a", "b")
	_, seqs, _ := read(t, term, 10)
	shop := broker.StreamPosition{Stream: "SHOP", Created: time.Unix(7, 5).UTC(), Seq: 3, MessageID: "c", NextSeq: 5, NextID: "e"}
	record := func(seq int64, all ...broker.StreamPosition) {
		t.Helper()
		term.CheckpointNow()
		if err := term.Record(t.Context(), eventlog.Progress{Published: []int64{seq}, Positions: all}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(stream string, n int) {
		t.Helper()
		if marks, err := log.Checkpoints(t.Context(), stream); err != nil || len(marks) != n {
			t.Errorf("checkpoints of %s: %+v, %v, want %d", stream, marks, err, n)
		}
	}
	record(seqs[0], shop)
	want("SHOP", 0)
	record(seqs[0], broker.StreamPosition{Stream: "OTHER", Seq: 1})
	want("SHOP", 0)
	want("OTHER", 1)
	stored, err := log.Positions(t.Context())
	for i := range stored {
		stored[i].Created = stored[i].Created.UTC()
	}
	if err != nil || !slices.Contains(stored, shop) {
		t.Errorf("stored %+v, %v, want %+v", stored, err, shop)
	}
	shop.Seq, shop.MessageID, shop.NextSeq, shop.NextID = shop.NextSeq, shop.NextID, 0, ""
	record(seqs[1], shop)
	want("SHOP", 1)
	want("OTHER", 2)
}

// Entries says when a scheduled event was written, and from what time on it can have been published.
func TestEntriesHasBothTimesOfAScheduledEvent(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	schedule(t, pool, "later", time.Hour)
	mustExec(t, pool, "UPDATE postroom.outbox SET created_at = '2026-01-01Z', not_before = '2026-01-02Z'")
	publishAll(t, pool)
	next, err := pglog.New(pool).Entries(t.Context(), eventlog.Checkpoint{}, time.Time{}, false)
	if err != nil {
		t.Fatal(err)
	}
	page, err := next(t.Context())
	if err != nil || len(page) != 1 {
		t.Fatalf("page %+v, %v", page, err)
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if e := page[0]; !e.CreatedAt.Equal(at) || !e.LoggedAt.Equal(at.AddDate(0, 0, 1)) {
		t.Errorf("created at %s, logged at %s, want %s and a day later", e.CreatedAt, e.LoggedAt, at)
	}
}

// A stream that loses its end may lose copies of a republish, and a copy may be all that it had: it was
// ordered because the stream had lost the event before. So events that a republish has published since a
// checkpoint are compared again, until the next checkpoint.
func TestCopiesSinceACheckpointAreCompared(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	write(t, pool, letters(4)...)
	term := lead(t, log)
	_, seqs, _ := read(t, term, 10)
	at := broker.StreamPosition{Stream: "SHOP", Created: time.Unix(7, 0), Seq: 4, MessageID: "m"}
	checkpoint := func(p eventlog.Progress) eventlog.Checkpoint {
		t.Helper()
		term.CheckpointNow()
		p.Positions = []broker.StreamPosition{at}
		if err := term.Record(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		all, err := log.Checkpoints(t.Context(), "SHOP")
		if err != nil || len(all) == 0 || all[0].Position.Seq != at.Seq {
			t.Fatalf("checkpoints %+v, %v, want one at %d", all, err, at.Seq)
		}
		return all[0]
	}
	first := checkpoint(eventlog.Progress{Published: seqs})
	if ids, _ := entries(t, log, first, time.Time{}); len(ids) != 0 {
		t.Errorf("before the republish: %v", ids)
	}
	r := startRepublish(t, log, operator.RepublishRequest{All: true})
	var copies []eventlog.RepublishResult
	_, page := again(t, term, 3)
	for _, ev := range page.Events {
		copies = append(copies, eventlog.RepublishResult{RepublishID: r.ID, Seq: ev.Seq})
	}
	copies[1].Dropped = true
	if err := term.Record(t.Context(), eventlog.Progress{Republished: copies}); err != nil {
		t.Fatal(err)
	}
	ids, _ := entries(t, log, first, time.Time{})
	wantIDs(t, ids, "e000", "e002")

	_, page = again(t, term, 3)
	at.Seq = 8
	second := checkpoint(eventlog.Progress{Republished: []eventlog.RepublishResult{{RepublishID: r.ID, Seq: page.Events[0].Seq}}})
	ids, _ = entries(t, log, first, time.Time{})
	wantIDs(t, ids, "e000", "e002", "e003")
	if ids, _ := entries(t, log, second, time.Time{}); len(ids) != 0 {
		t.Errorf("after the second checkpoint: %v", ids)
	}
}

// Events that a stream lost are published again, perhaps to another stream, to which their subjects have
// moved. If that one then loses its end, its newest checkpoint must have them, however old the checkpoint
// before the repair is.
func TestLostEventsSinceACheckpointAreCompared(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	log := pglog.New(pool)
	write(t, pool, letters(4)...)
	term := lead(t, log)
	_, seqs, _ := read(t, term, 10)
	at := broker.StreamPosition{Stream: "MOVED", Created: time.Unix(7, 0), Seq: 4, MessageID: "m"}
	for _, p := range []eventlog.Progress{
		{Published: seqs, Positions: []broker.StreamPosition{at}}, // the first recording of a term makes a checkpoint
		{Lost: seqs[1:2]},
	} {
		if err := term.Record(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	_, lost, _ := read(t, term, 10)
	at.Seq = 5
	if err := term.Record(t.Context(), eventlog.Progress{Published: lost, Positions: []broker.StreamPosition{at}}); err != nil {
		t.Fatal(err)
	}
	all, err := log.Checkpoints(t.Context(), "MOVED")
	if err != nil || len(all) == 0 || all[0].Position.Seq != 4 {
		t.Fatalf("checkpoints %+v, %v, want the newest at 4", all, err)
	}
	ids, _ := entries(t, log, all[0], time.Time{})
	wantIDs(t, ids, "e001")
}
