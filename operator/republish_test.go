package operator_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/operator"
)

// overrideCreatedAt writes events that were logged a minute apart, the last one now.
func overrideCreatedAt(t *testing.T, pool *pgxpool.Pool) (times []time.Time) {
	t.Helper()
	mustExec(t, pool, `UPDATE postroom.outbox SET created_at = now() - (SELECT count(*) FROM postroom.outbox o WHERE o.seq > outbox.seq) * interval '10 minutes'`)
	rows, _ := pool.Query(t.Context(), "SELECT created_at FROM postroom.outbox ORDER BY seq")
	times, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		t.Fatal(err)
	}
	return times
}

func TestRepublishFiltersByTimeTypeAndKey(t *testing.T) {
	t.Parallel()
	pool := devtest.Pool(t)
	for n, id := range letters(12) {
		ev := named(id)
		ev.Type = []string{"order.placed", "order.paid", "order.shipped"}[n%3]
		ev.Key = []string{"", "k", "l", "m"}[n%4]
		if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return shop.Write(t.Context(), tx, ev) }); err != nil {
			t.Fatal(err)
		}
	}
	// The log has gaps, as after rollbacks, and times that are a little out of order.
	mustExec(t, pool, "DELETE FROM postroom.outbox WHERE event_id IN ('e003', 'e008')")
	log := operator.New(pool, operator.Config{})
	term := lead(t, pool)
	_, seqs, _ := read(t, term, 100)
	record(t, term, seqs...)
	at := overrideCreatedAt(t, pool) // e000 e001 e002 e004 e005 e006 e007 e009 e010 e011
	mustExec(t, pool, "UPDATE postroom.outbox SET created_at = created_at - interval '10 minutes 1 second' WHERE event_id = 'e006'")

	tests := []struct {
		name string
		o    operator.RepublishRequest
		want []string
	}{
		{"all", operator.RepublishRequest{All: true}, []string{"e000", "e001", "e002", "e004", "e005", "e006", "e007", "e009", "e010", "e011"}},
		{"since", operator.RepublishRequest{Since: at[8]}, []string{"e010", "e011"}},
		{"since, with one out of order", operator.RepublishRequest{Since: at[4]}, []string{"e005", "e007", "e009", "e010", "e011"}},
		{"until, which is not included", operator.RepublishRequest{Until: at[2]}, []string{"e000", "e001"}},
		{"until, with one out of order", operator.RepublishRequest{Until: at[4]}, []string{"e000", "e001", "e002", "e004", "e006"}},
		{"between", operator.RepublishRequest{Since: at[1], Until: at[3]}, []string{"e001", "e002"}},
		{"a type", operator.RepublishRequest{Types: []string{"order.paid"}}, []string{"e001", "e004", "e007", "e010"}},
		{"two types, one twice", operator.RepublishRequest{Types: []string{"order.paid", "order.placed", "order.paid"}}, []string{"e000", "e001", "e004", "e006", "e007", "e009", "e010"}},
		{"a key", operator.RepublishRequest{Keys: []string{"k"}}, []string{"e001", "e005", "e009"}},
		{"everything at once", operator.RepublishRequest{Since: at[1], Until: at[9], Types: []string{"order.placed"}, Keys: []string{"k", "l"}}, []string{"e006", "e009"}},
	}
	for _, tt := range tests {
		p, err := log.PreviewRepublish(t.Context(), tt.o)
		if err != nil || p.Events != int64(len(tt.want)) {
			t.Errorf("%s: preview has %d events, %v; want %d", tt.name, p.Events, err, len(tt.want))
		}
		r := startRepublish(t, log, tt.o)
		var got []string
		for {
			ids, page := again(t, term, 3)
			got = append(got, ids...)
			publishAgain(t, term, page.Events...)
			if page.ID == 0 {
				break
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		wantRepublish(t, log, r.ID, operator.RepublishDone, int64(len(tt.want)), 0, 0)
	}
	_, err := log.Republish(t.Context(), operator.RepublishRequest{Types: []string{"order.lost"}}, postroom.Audit{Actor: "ann"})
	if !errors.Is(err, operator.ErrNoEvents) {
		t.Errorf("a republish of nothing = %v, want ErrNoEvents", err)
	}
}

// Events that retention removed cannot be published again, and the republish says so.
func TestRepublishReportsRemovedEvents(t *testing.T) {
	t.Parallel()
	pool, log, term := publishedLog(t, letters(6)...)
	at := overrideCreatedAt(t, pool)
	prune(t, term, time.Since(at[2])+5*time.Minute) // e000 and e001
	wantLog(t, pool, letters(6)[2:]...)

	tests := []struct {
		name   string
		since  time.Time
		events int64
		gone   bool
	}{
		{"from the beginning", time.Time{}, 4, true},
		{"from what is gone", at[1], 4, true},
		{"from just before the log begins", at[2].Add(-time.Second), 4, true},
		{"from where it begins", at[2], 4, false},
		{"from later", at[3], 3, false},
	}
	for _, tt := range tests {
		p, err := log.PreviewRepublish(t.Context(), operator.RepublishRequest{Since: tt.since})
		if err != nil || p.Events != tt.events || p.Log.Gone != tt.gone || !p.Log.BeginsAt.Equal(at[2]) || p.Log.FirstSeq == 0 {
			t.Errorf("%s: %+v, %v; want %d events, gone %t", tt.name, p, err, tt.events, tt.gone)
		}
	}
	r := startRepublish(t, log, operator.RepublishRequest{Since: at[0]})
	if r.Log == nil || !r.Log.Gone || r.Events != 4 {
		t.Errorf("Republish = %+v, want that some events are gone", r)
	}
	ids, _ := again(t, term, 10)
	wantIDs(t, ids, letters(6)[2:]...)

	mustExec(t, pool, "DELETE FROM postroom.outbox")
	empty, err := log.Republish(t.Context(), operator.RepublishRequest{Since: at[0].Add(-time.Hour)}, postroom.Audit{Actor: "ann"})
	if !errors.Is(err, operator.ErrNoEvents) || empty.Log == nil || !empty.Log.Gone {
		t.Errorf("of an empty log: %+v, %v; want ErrNoEvents and that all is gone", empty, err)
	}
}

// If a request is repeated while its republish runs, there is no second republish. After the end of
// the republish, the request publishes new copies.
func TestTheSameOrderIsOneRepublish(t *testing.T) {
	t.Parallel()
	pool, log, term := publishedLog(t, letters(3)...)
	now := time.Now()
	order := operator.RepublishRequest{Since: now.Add(-time.Hour), Types: []string{"order.placed", "order.paid"}, Name: "since=1h"}
	repeated := order
	repeated.Types = []string{"order.paid", "order.placed", "order.paid"} // the same set
	repeated.Rate, repeated.Since = 7, now.Add(-59*time.Minute)

	var all sync.WaitGroup
	made := make([]operator.Republish, 8)
	for i := range made {
		all.Go(func() {
			o, by := order, postroom.Audit{Actor: "ann", Reason: "why"}
			if i%2 == 1 {
				o, by.Actor = repeated, "bob"
			}
			var err error
			if made[i], err = log.Republish(t.Context(), o, by); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	fresh := 0
	for _, r := range made {
		if r.ID != made[0].ID {
			t.Errorf("republishes %d and %d of one order", made[0].ID, r.ID)
		}
		if !r.AlreadyRunning {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("%d of 8 orders made a republish, want 1", fresh)
	}
	var count int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.audit WHERE action = 'republish' AND (details ->> 'republish')::bigint = $1", made[0].ID).Scan(&count); err != nil || count != 1 {
		t.Errorf("%d audit rows, %v; want 1", count, err)
	}
	other := order
	other.Name = "since=2h"
	nameless := order
	nameless.Name = ""
	later := nameless
	later.Since = now.Add(-59 * time.Minute)
	seen := []int64{made[0].ID}
	for _, o := range []operator.RepublishRequest{other, nameless, later} {
		r := startRepublish(t, log, o)
		if slices.Contains(seen, r.ID) {
			t.Errorf("another order is the same republish %d", r.ID)
		}
		seen = append(seen, r.ID)
	}

	_, page := again(t, term, 10)
	publishAgain(t, term, page.Events...)
	wantRepublish(t, log, made[0].ID, operator.RepublishDone, 3, 0, 0)
	if r := startRepublish(t, log, order); r.ID == made[0].ID || r.AlreadyRunning {
		t.Errorf("after its end the order is %+v, want a new republish", r)
	}
}

// A request for the last hours has other events when it is repeated later. The republish that runs
// does not take its place.
func TestARepublishOfOtherEventsIsNotTheSame(t *testing.T) {
	t.Parallel()
	pool, log, term := publishedLog(t, letters(3)...)
	order := operator.RepublishRequest{Since: time.Now().Add(-2 * time.Hour), Name: "since=2h"}
	first := startRepublish(t, log, order)
	mustExec(t, pool, "UPDATE postroom.outbox SET created_at = now() - interval '3 h' WHERE seq = 1")
	later := order
	later.Since = time.Now().Add(-2 * time.Hour)
	if r := startRepublish(t, log, later); r.ID != first.ID || !r.AlreadyRunning {
		t.Errorf("with one event less: %+v, want republish %d", r, first.ID)
	}
	write(t, pool, "d")
	_, seqs, _ := read(t, term, 1000)
	record(t, term, seqs...)
	if r, err := log.Republish(t.Context(), later, postroom.Audit{Actor: "bob"}); !errors.Is(err, operator.ErrRepublishRunning) || !strings.Contains(err.Error(), fmt.Sprintf("republish %d has the events with seqs 1 to 3", first.ID)) {
		t.Errorf("with one event more: %+v, %v, want ErrRepublishRunning", r, err)
	}
	if _, err := log.CancelRepublish(t.Context(), first.ID, postroom.Audit{Actor: "bob"}); err != nil {
		t.Fatal(err)
	}
	if r := startRepublish(t, log, later); r.AlreadyRunning || r.Last != 4 {
		t.Errorf("when none runs: %+v", r)
	}
}

func TestRepublishRefusesBadOrders(t *testing.T) {
	t.Parallel()
	pool, log, _ := publishedLog(t, "a")
	now := time.Now()
	for name, o := range map[string]operator.RepublishRequest{
		"a rate below 0":        {All: true, Rate: -1},
		"too high a rate":       {All: true, Rate: 1e9},
		"all, and a type":       {All: true, Types: []string{"a"}},
		"until before since":    {Since: now, Until: now.Add(-time.Hour)},
		"an empty type":         {Types: []string{""}},
		"a key that is no text": {Keys: []string{"\xff"}},
		"no rate at all":        {All: true, Rate: math.NaN()},
	} {
		if _, err := log.Republish(t.Context(), o, postroom.Audit{Actor: "ann"}); err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
	if _, err := log.Republish(t.Context(), operator.RepublishRequest{Name: "lost since", Keys: []string{}}, postroom.Audit{Actor: "ann"}); !errors.Is(err, operator.ErrNoFilter) {
		t.Errorf("Republish without a condition = %v, want ErrNoFilter", err)
	}
	for name, by := range map[string]postroom.Audit{
		"no actor":                  {},
		"a name that is too long":   {Actor: strings.Repeat("a", 256)},
		"a name that is no text":    {Actor: "\xff"},
		"a reason that is too long": {Actor: "ann", Reason: strings.Repeat("a", 4097)},
		"a reason that is no text":  {Actor: "ann", Reason: "\x00"},
	} {
		_, errOrder := log.Republish(t.Context(), operator.RepublishRequest{All: true}, by)
		_, errSeqs := log.RepublishSeqs(t.Context(), []int64{1}, 0, by)
		if _, errCancel := log.CancelRepublish(t.Context(), 1, by); errOrder == nil || errSeqs == nil || errCancel == nil {
			t.Errorf("%s: %v, %v, %v, want three errors", name, errOrder, errSeqs, errCancel)
		}
	}
	if _, err := log.RepublishSeqs(t.Context(), nil, 0, postroom.Audit{Actor: "ann", Reason: "missing"}); !errors.Is(err, operator.ErrNoEvents) {
		t.Errorf("RepublishSeqs of nothing = %v, want ErrNoEvents", err)
	}
	wantAudit(t, pool)
	if _, err := log.CancelRepublish(t.Context(), 4711, postroom.Audit{Actor: "ann"}); !errors.Is(err, operator.ErrNoRepublish) {
		t.Errorf("CancelRepublish of none = %v", err)
	}
	if _, err := log.FindRepublish(t.Context(), 4711); !errors.Is(err, operator.ErrNoRepublish) {
		t.Errorf("FindRepublish of none = %v", err)
	}
	r := startRepublish(t, log, operator.RepublishRequest{All: true})
	if _, err := log.CancelRepublish(t.Context(), r.ID, postroom.Audit{Actor: "bob", Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	wantAudit(t, pool, "ann republish 1 lost", "bob cancel_republish 1 no")
	all, next, err := log.Republishes(t.Context(), postroom.Page{Limit: 10})
	if err != nil || next != "" || len(all) != 1 || all[0].State != operator.RepublishCancelled {
		t.Errorf("Republishes = %+v, %v", all, err)
	}
	if all, _, err = log.Republishes(t.Context(), postroom.Page{After: strconv.FormatInt(r.ID, 10)}); err != nil || len(all) != 0 {
		t.Errorf("Republishes before the first = %+v, %v", all, err)
	}
}

// If the name of the schema is not valid, every method returns an error that says so, and sends no
// statement.
func TestAnImpossibleSchema(t *testing.T) {
	t.Parallel()
	s, by := operator.New(devtest.EmptyPool(t), operator.Config{Schema: "no schema"}), postroom.Audit{Actor: "ann", Reason: "why"}
	for name, call := range map[string]func() error{
		"Check":            func() error { return s.Check(t.Context()) },
		"HasLeader":        func() error { _, err := s.HasLeader(t.Context()); return err },
		"PreviewRepublish": func() error { _, err := s.PreviewRepublish(t.Context(), operator.RepublishRequest{}); return err },
		"Republish":        func() error { _, err := s.Republish(t.Context(), operator.RepublishRequest{All: true}, by); return err },
		"RepublishSeqs":    func() error { _, err := s.RepublishSeqs(t.Context(), []int64{1}, 1, by); return err },
		"CancelRepublish":  func() error { _, err := s.CancelRepublish(t.Context(), 1, by); return err },
		"FindRepublish":    func() error { _, err := s.FindRepublish(t.Context(), 1); return err },
		"Republishes":      func() error { _, _, err := s.Republishes(t.Context(), postroom.Page{Limit: 1}); return err },
		"Pause":            func() error { return s.Pause(t.Context(), "h", 0, by) },
		"PauseRelay":       func() error { return s.PauseRelay(t.Context(), 0, by) },
		"Resume":           func() error { return s.Resume(t.Context(), "h", by) },
		"ResumeRelay":      func() error { return s.ResumeRelay(t.Context(), by) },
		"Pauses":           func() error { _, err := s.Pauses(t.Context()); return err },
		"Handlers":         func() error { _, err := s.Handlers(t.Context()); return err },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "config: Schema") {
			t.Errorf("%s: %v, want what is wrong with the Config", name, err)
		}
	}
}

// The owner of the tables can write times that Go cannot represent. A preview works, and shows the
// other times.
func TestPreviewOfInfiniteTimes(t *testing.T) {
	t.Parallel()
	pool, log, _ := publishedLog(t, letters(4)...)
	mustExec(t, pool, "UPDATE postroom.outbox SET created_at = CASE WHEN seq = 2 THEN '-infinity' ELSE 'infinity' END::timestamptz")
	p, err := log.PreviewRepublish(t.Context(), operator.RepublishRequest{})
	if err != nil || p.Events != 4 || p.First != 1 || p.Last != 4 || !p.Earliest.IsZero() || !p.Latest.IsZero() || p.Log.Gone {
		t.Errorf("without any time: %+v, %v, want four events", p, err)
	}
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	mustExec(t, pool, "UPDATE postroom.outbox SET created_at = $1 WHERE seq = 3", at)
	p, err = log.PreviewRepublish(t.Context(), operator.RepublishRequest{Since: at.Add(-time.Hour), Until: at.Add(time.Minute)})
	if err != nil || p.Events != 1 || p.First != 3 || !p.Earliest.Equal(at) || !p.Latest.Equal(at) {
		t.Errorf("with one time: %+v, %v, want the third event", p, err)
	}
	if p, err = log.PreviewRepublish(t.Context(), operator.RepublishRequest{}); err != nil || p.Events != 4 || !p.Earliest.Equal(at) || !p.Latest.Equal(at) {
		t.Errorf("with one time, all: %+v, %v, want four events", p, err)
	}
}

// A row that was written while the clock was ahead hides no events from a request with an end.
func TestPreviewOfTimesInTheFuture(t *testing.T) {
	t.Parallel()
	pool, log, _ := publishedLog(t, letters(15)...)
	for ahead := range 15 {
		mustExec(t, pool, `UPDATE postroom.outbox SET created_at = CASE WHEN seq = $1 THEN now() + interval '10 years'
			ELSE now() - interval '20 h' + seq * interval '1 h' END`, ahead+1)
		until := time.Now().Add(-6*time.Hour - 30*time.Minute) // after seq 13
		want := int64(13)
		if ahead < 13 {
			want--
		}
		if p, err := log.PreviewRepublish(t.Context(), operator.RepublishRequest{Until: until}); err != nil || p.Events != want {
			t.Errorf("seq %d is ahead: %d events, %v, want %d", ahead+1, p.Events, err, want)
		}
	}
}

// A long transaction, or a clock that was set back a little: the times do not rise with the seqs. The
// running republish has seqs 1 and 3, and lacks seq 2.
func TestARunningRepublishThatLacksAnEventInTheMiddle(t *testing.T) {
	t.Parallel()
	pool, log, _ := publishedLog(t, letters(3)...)
	mustExec(t, pool, "UPDATE postroom.outbox SET created_at = now() - interval '1 h' + CASE seq WHEN 2 THEN interval '1 s' ELSE interval '-1 s' END")
	order := operator.RepublishRequest{Until: time.Now().Add(-time.Hour), Name: "until=1h"}
	first := startRepublish(t, log, order)
	later := order
	later.Until = time.Now().Add(-time.Hour + time.Minute)
	r, err := log.Republish(t.Context(), later, postroom.Audit{Actor: "bob"})
	if !errors.Is(err, operator.ErrRepublishRunning) {
		t.Errorf("republish %d has %d events (seqs %d to %d), and Republish says that %d (running %t) has all three: %v", first.ID, first.Events, first.First, first.Last, r.ID, r.AlreadyRunning, err)
	}
}
