package saga_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/sagas"
	"github.com/postroom/postroom/saga"
)

// When a step's deadline has passed, the outcome of the step is unknown, so its own Undo comes
// first. A later reply changes nothing.
func TestDeadline(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	_, payment := w.upTo("t1")
	due := w.overrideDeadlineAndAlarm("t1")
	w.give(due)
	refund := w.wants("payment.refund")[0]
	if refund.CausationID != due.ID {
		t.Errorf("the Undo is caused by %s, want the deadline", refund.CausationID)
	}
	w.give(w.reply(payment, "payment.charged", paidFor{Receipt: "late"}))
	w.is("t1", "compensating", "payment")
	w.give(due) // twice
	w.wants()
	w.give(w.reply(refund, "payment.refunded", nil))
	free := w.wants("seat.free")[0]
	w.give(w.reply(free, "seat.freed", nil))
	w.wants("travel.cancelled")
	w.is("t1", "undone", "open")
	if got := w.effects("t1"); got != "open undone" {
		t.Errorf("effects %q", got)
	}
}

// The deadline comes much too late, because the relay or the handler was away. It is written once more,
// so that an answer that was committed in time, and waits behind it, comes first. If none comes, the
// second deadline counts, however late it is.
func TestDeadlineThatComesLate(t *testing.T) {
	t.Parallel()
	for name, answered := range map[string]bool{"with an answer": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRig(t)
			_, payment := w.upTo("t1")
			w.exec("UPDATE postroom.saga SET deadline = now() - interval '1 min', alarm_at = now() - interval '1 min'")
			w.give(w.alarmOf("t1"))
			second := w.wants("travel.deadline")[0]
			w.is("t1", "running", "payment")
			if in := time.Until(second.NotBefore); in < time.Second || in > 10*time.Second || second.CausationID != payment.ID {
				t.Errorf("the second deadline comes in %s, caused by %s; want it within 10s, caused by the command", in, second.CausationID)
			}
			if answered {
				w.give(w.reply(payment, "payment.charged", nil))
				w.wants("travel.booked")
				w.give(second)
				w.wants()
				return
			}
			w.exec("UPDATE postroom.saga SET deadline = deadline - interval '1 h', alarm_at = alarm_at - interval '1 h'") // another pause
			w.give(w.alarmOf("t1"))
			w.wants("payment.refund")
		})
	}
}

// The deadline and the reply come at the same moment. The one that gets the lock first decides, and
// the other changes nothing.
func TestDeadlineAndReplyAtOneMoment(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		_, payment := w.upTo(key)
		due := w.overrideDeadlineAndAlarm(key)
		both := make(chan error)
		go func() { both <- w.try(due) }()
		go func() { both <- w.try(w.reply(payment, "payment.charged", nil)) }()
		if err := errors.Join(<-both, <-both); err != nil {
			t.Fatal(err)
		}
		all := w.events()
		r := w.row(key)
		done := r.State == "done" && len(all) == 1 && all[0].Type == "travel.booked"
		undoing := r.State == "compensating" && len(all) == 1 && all[0].Type == "payment.refund"
		if !done && !undoing {
			t.Errorf("%s is %s and wrote %v", key, r.State, all)
		}
	}
}

// A deadline changes nothing if its step is over, or if no program has written it.
func TestStaleDeadline(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	w.begin("t1")
	all := w.wants("seat.book", "travel.deadline")
	forged := postroom.NewEvent("travel.deadline", map[string]any{"at": time.Now().Add(-time.Hour)})
	forged.Key = "t1"
	w.give(forged)
	w.is("t1", "running", "seat")
	w.give(w.reply(all[0], "seat.full", nil))
	w.wants("travel.cancelled")
	w.give(all[1])
	w.wants()
	w.is("t1", "undone", "open")
	bad := forged
	bad.Data = []byte("{")
	w.fails(w.try(bad), "decode", true)
}

// The deadline of the first step comes while a later step with a later deadline is pending. It
// schedules the next deadline. So at most one deadline that counts is scheduled.
func TestDeadlineArmsTheNext(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	w.begin("t1")
	all := w.wants("seat.book", "travel.deadline")
	w.give(w.reply(all[0], "seat.booked", nil))
	w.wants("payment.charge") // its deadline is later, so no event is scheduled for it yet
	w.give(all[1])            // this deadline changes nothing
	next := w.wants("travel.deadline")[0]
	if wait := next.NotBefore.Sub(all[1].NotBefore); wait < 58*time.Minute {
		t.Errorf("the next deadline is %s later, want that of the payment", wait)
	}
	w.is("t1", "running", "payment")
	if r := w.row("t1"); r.Revision != 2 {
		t.Errorf("revision %d, although no step was made", r.Revision)
	}
	w.give(next) // too early, as after a failover to a server with another clock
	again := w.wants("travel.deadline")[0]
	if again.ID == next.ID || !again.NotBefore.Equal(next.NotBefore) {
		t.Errorf("the early deadline was not written again: %+v", again)
	}
	w.give(w.overrideDeadlineAndAlarm("t1"))
	w.wants("payment.refund")
}

// The event deadline was lost, because an operator discarded it. The next step with a deadline gets
// a new event.
func TestDeadlineThatWasLost(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	w.begin("t1")
	seat := w.wants("seat.book", "travel.deadline")[0]
	w.overrideDeadlineAndAlarm("t1") // the event never comes
	w.give(w.reply(seat, "seat.booked", nil))
	w.wants("payment.charge", "travel.deadline")
}

// If a step has an earlier deadline than the scheduled one, it gets its own event, and the later
// event changes nothing.
func TestEarlierDeadline(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) { d.Steps[1].Within, d.Steps[2].Within = time.Hour, time.Minute })
	w.begin("t1")
	all := w.wants("seat.book", "travel.deadline")
	w.give(w.reply(all[0], "seat.booked", nil))
	w.wants("payment.charge", "travel.deadline")
	w.give(all[1])
	w.wants()
	w.is("t1", "running", "payment")
}

// After an outage of an hour, a reply that waited in the stream counts if it comes before the
// deadline event.
func TestReplyBeforeTheDeadlineCountsAfterAnOutage(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	_, payment := w.upTo("t1")
	due := w.overrideDeadlineAndAlarm("t1")
	w.give(w.reply(payment, "payment.charged", nil))
	w.wants("travel.booked")
	w.give(due)
	w.wants()
	w.is("t1", "done", "confirm")
}

// Deadlines use the database's clock. So a process with a wrong clock computes the same deadlines.
func TestDeadlineIsTheDatabases(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	w.begin("t1")
	due := w.wants("seat.book", "travel.deadline")[1].NotBefore
	var inTime bool
	err := w.pool.QueryRow(t.Context(), "SELECT $1 BETWEEN started_at + interval '60 s' AND clock_timestamp() + interval '60 s' FROM postroom.saga", due).Scan(&inTime)
	if err != nil || !inTime {
		t.Errorf("the deadline %s is not a minute after the database's time: %v", due, err)
	}
}

// If the first step fails, only local steps are undone.
func TestFirstStepFails(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	w.begin("t1")
	seat := w.wants("seat.book", "travel.deadline")[0]
	w.give(w.reply(seat, "seat.full", paidFor{Reason: "full"}))
	ended := w.wants("travel.cancelled")[0]
	if !strings.Contains(string(ended.Data), `"reason":"full"`) || w.effects("t1") != "open undone" {
		t.Errorf("the end says %s, effects %q", ended.Data, w.effects("t1"))
	}
}

// A Local function gives up. Its writes are rolled back, its changes of the state stay, and the
// earlier steps are undone in reverse order. The saga waits for each Undone.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) {
		d.Steps[3].Do = saga.Local(func(ctx context.Context, tx pgx.Tx, s *trip) error {
			s.Reason = "closed"
			return errors.Join(wrote("half")(ctx, tx, s), saga.GiveUp(errors.New("the office is closed")))
		})
	})
	_, payment := w.upTo("t1")
	w.give(w.reply(payment, "payment.charged", nil))
	refund := w.wants("payment.refund")[0]
	if !strings.Contains(string(refund.Data), `"reason":"closed"`) || w.effects("t1") != "" {
		t.Errorf("the refund has %s, effects %q", refund.Data, w.effects("t1"))
	}
	if note := w.row("t1").Note; !strings.Contains(note, "the office is closed") {
		t.Errorf("the note is %q", note)
	}
	w.give(w.reply(refund, "payment.refunded", nil))
	w.give(w.reply(w.wants("seat.free")[0], "seat.freed", nil))
	w.wants("travel.cancelled")
}

// A goroutine of a Local function goes on with the transaction after the function returned. It gets
// an error, and does not disturb the saga, which goes on in the same transaction.
func TestAGoroutineOfALocalFunctionDoesNoHarm(t *testing.T) {
	t.Parallel()
	var left sync.WaitGroup
	w := newRig(t, func(d *saga.Definition[trip]) {
		d.Steps[3].Do = saga.Local(func(ctx context.Context, tx pgx.Tx, s *trip) error {
			begun := make(chan struct{})
			left.Go(func() {
				_, err := tx.Exec(context.Background(), "SELECT 1")
				close(begun)
				for err == nil {
					_, err = tx.Exec(context.Background(), "SELECT 1")
				}
				if !errors.Is(err, pgx.ErrTxClosed) {
					t.Errorf("the goroutine got %v", err)
				}
			})
			<-begun
			if err := tx.Commit(ctx); err == nil {
				t.Error("a Local function ended the transaction")
			}
			s.Reason = "done"
			return nil
		})
	})
	_, payment := w.upTo("t1")
	w.give(w.reply(payment, "payment.charged", nil))
	left.Wait()
	w.wants("travel.booked")
}

// A Local function fails. Nothing of its event is stored, and another attempt finishes the step.
func TestLocalFails(t *testing.T) {
	t.Parallel()
	var broken error
	fails := func(line string) func(context.Context, pgx.Tx, *trip) error {
		return func(ctx context.Context, tx pgx.Tx, s *trip) error {
			return errors.Join(wrote(line)(ctx, tx, s), broken)
		}
	}
	w := newRig(t, func(d *saga.Definition[trip]) {
		d.Steps[0].Undo, d.Steps[3].Do = saga.Local(fails("open undone")), saga.Local(fails("confirmed"))
	})
	_, payment := w.upTo("t1")
	charged := w.reply(payment, "payment.charged", nil)
	broken = errors.New("broken")
	w.fails(w.try(charged), "broken", false)
	w.wants()
	w.is("t1", "running", "payment")
	broken = nil
	w.give(charged)
	w.wants("travel.booked")

	// An Undo that fails is repeated, not skipped, even if it says that it gives up.
	w.begin("t2")
	full := w.reply(w.wants("seat.book", "travel.deadline")[0], "seat.full", nil)
	broken = saga.GiveUp(errors.New("broken"))
	w.fails(w.try(full), "broken", false)
	w.is("t2", "running", "seat")
	broken = nil
	w.give(full)
	w.is("t2", "undone", "open")
}

// An instance that waits for a step with a deadline is stuck five minutes after it, however long or
// short that is, and everything that tells so agrees.
func TestStuckBeginsAfterTheDeadline(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		within time.Duration
		passed time.Duration // since the instance began to wait
		want   bool
	}{
		"no deadline, an hour":                     {0, time.Hour, true},
		"a day, and an hour has passed":            {24 * time.Hour, time.Hour, false},
		"four minutes after a deadline of a day":   {24*time.Hour - 4*time.Minute, 24 * time.Hour, false},
		"six minutes after a deadline of a day":    {24*time.Hour - 6*time.Minute, 24 * time.Hour, true},
		"four minutes after a deadline of minutes": {56 * time.Minute, time.Hour, false},
		"six minutes after a deadline of minutes":  {54 * time.Minute, time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRig(t, func(d *saga.Definition[trip]) {
				d.Steps[1].Within = test.within
				if test.within < time.Hour && test.within > 0 {
					d.Stuck = 100 * time.Hour // it does not matter
				}
			})
			w.begin("t1")
			w.overrideWait("t1", test.passed)
			store := saga.NewStore(w.pool, saga.StoreConfig{})
			for what, filter := range map[string]saga.Filter{"list": {Stuck: true}, "list of a key": {Stuck: true, Key: "t1"}, "list of all": {}} {
				page, _, err := store.List(t.Context(), filter, postroom.Page{})
				if err != nil {
					t.Fatal(err)
				}
				if got := len(page) == 1 && page[0].Stuck; got != test.want {
					t.Errorf("%s: stuck is %t, want %t", what, got, test.want)
				}
			}
			story, err := store.Show(t.Context(), "travel", "t1")
			if err != nil {
				t.Fatal(err)
			}
			if story.Stuck != test.want {
				t.Errorf("show: stuck is %t, want %t", story.Stuck, test.want)
			}
			counts, _, err := sagas.CountsOf(t.Context(), w.pool, "postroom")
			if err != nil || len(counts) != 1 {
				t.Fatalf("counts are %+v, %v", counts, err)
			}
			if (counts[0].Stuck == 1) != test.want {
				t.Errorf("counts: %+v, want stuck %t", counts[0], test.want)
			}
			err = pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
				stuck, err := sagas.StuckOf(t.Context(), tx, "postroom")
				if (len(stuck) == 1) != test.want {
					t.Errorf("findings: %+v, want stuck %t", stuck, test.want)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestStuckComesByTheClock(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) { d.Steps[1].Within, d.Stuck = 0, 50*time.Millisecond })
	store := saga.NewStore(w.pool, saga.StoreConfig{})
	w.begin("t1")
	devtest.Eventually(t, time.Minute, "the instance is stuck", func() bool {
		page, _, err := store.List(t.Context(), saga.Filter{Stuck: true}, postroom.Page{})
		if err != nil {
			t.Fatal(err)
		}
		return len(page) == 1
	})
}

// A participant has an Undo for a long time, and the Undo becomes dead there. The saga waits and is
// stuck. When the reply comes, it continues by itself.
func TestSagaWaitsForItsUndo(t *testing.T) {
	t.Parallel()
	w := newRig(t)
	store := saga.NewStore(w.pool, saga.StoreConfig{})
	_, payment := w.upTo("t1")
	w.give(w.reply(payment, "payment.declined", nil))
	free := w.wants("seat.free")[0]
	stuck := func() int {
		all, _, err := store.List(t.Context(), saga.Filter{Stuck: true}, postroom.Page{})
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if n := stuck(); n != 0 {
		t.Errorf("%d are stuck at once", n)
	}
	w.overrideWait("t1", 25*time.Hour)
	if n := stuck(); n != 1 {
		t.Errorf("%d are stuck after a day, want 1", n)
	}
	w.give(w.reply(free, "seat.freed", nil))
	w.wants("travel.cancelled")
	if n := stuck(); n != 0 {
		t.Errorf("%d are stuck after the end", n)
	}
}

// The deadline comes by the clock. An event deadline that comes too early only sets the alarm again,
// and the event at the right time undoes the instance.
func TestDeadlineComesByTheClock(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) { d.Steps[1].Within = time.Second })
	w.begin("t1")
	due := w.wants("seat.book", "travel.deadline")[1]
	due.Source = "/trips"
	w.give(due)
	if all := w.events(); time.Now().Before(due.NotBefore) {
		if len(all) != 1 || all[0].Type != "travel.deadline" || all[0].NotBefore.Before(due.NotBefore) {
			t.Fatalf("before the deadline the saga wrote %+v, want another alarm", all)
		}
		due = all[0]
		due.Source = "/trips"
	}
	for _, state := range []string{"running", "compensating"} { // the first one only schedules another one
		devtest.Eventually(t, 5*time.Second, "the deadline", func() bool { return time.Now().After(due.NotBefore) })
		w.give(due)
		w.is("t1", state, "seat")
		due = w.events()[0]
		due.Source = "/trips"
	}
}

// Version 2 has a longer Stuck, and is rolled back. Its instances began with version 1.
func TestStuckAgreesAfterARollback(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) { d.Steps[1].Within = 54 * time.Minute })
	one := travel()
	one.Steps[1].Within = 54 * time.Minute
	two := travel()
	two.Version, two.Stuck = 2, 24*time.Hour
	two.Older = append(two.Older, one)
	w.use(two)
	w.use(one) // rolled back
	w.begin("t1")
	w.overrideWait("t1", time.Hour)
	store := saga.NewStore(w.pool, saga.StoreConfig{})
	story, err := store.Show(t.Context(), "travel", "t1")
	if err != nil {
		t.Fatal(err)
	}
	page, _, err := store.List(t.Context(), saga.Filter{Stuck: true}, postroom.Page{})
	if err != nil {
		t.Fatal(err)
	}
	counts, _, err := sagas.CountsOf(t.Context(), w.pool, "postroom")
	if err != nil {
		t.Fatal(err)
	}
	if !story.Stuck || len(page) != 1 || counts[0].Stuck != 1 {
		t.Errorf("six minutes after the deadline: show %t, list %d, counts %+v", story.Stuck, len(page), counts)
	}
}

// A Local function that takes long uses up nothing of the time of the next step.
func TestASlowLocalStepTakesNoTimeFromTheNext(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) {
		d.Steps[0].Do = saga.Local(func(ctx context.Context, tx pgx.Tx, _ *trip) error {
			_, err := tx.Exec(ctx, "SELECT pg_sleep(0.5)")
			return err
		})
		d.Steps[1].Within = time.Minute
	})
	w.begin("t1")
	due := w.wants("seat.book", "travel.deadline")[1].NotBefore
	var left float64
	if err := w.pool.QueryRow(t.Context(), "SELECT extract(epoch FROM $1::timestamptz - max(started_at))::float8 FROM postroom.saga", due).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left < 60.5 {
		t.Errorf("the deadline is %.1f s after the beginning, want 60.5 at least: half a second is the function's", left)
	}
}

// The time of a step is over, but its answer is in held, because an attempt failed. The deadline waits
// for the next attempt, except if the answer is dead or was written after the deadline.
func TestDeadlineWaitsForAnAnswerInHeld(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		key, eventType, logged string
		due                    any
		waits                  bool
	}{
		"tried again in an hour":     {"t1", "payment.charged", "10 s", "1 h", true},
		"a failure, tried again":     {"t1", "payment.declined", "10 s", "1 h", true},
		"due long ago":               {"t1", "payment.charged", "10 s", "-1 h", true},
		"dead":                       {"t1", "payment.charged", "10 s", nil, false},
		"written after the deadline": {"t1", "payment.charged", "0 s", "1 h", false},
		"of another instance":        {"t2", "payment.charged", "10 s", "1 h", false},
		"of another step":            {"t1", "seat.booked", "10 s", "1 h", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRig(t)
			_, payment := w.upTo("t1")
			alarm := w.overrideDeadlineAndAlarm("t1")
			w.exec("INSERT INTO postroom.inbox (handler, dedupe_key) VALUES ('travel', 'a')")
			w.exec(`INSERT INTO postroom.held (handler, dedupe_key, next_at, dead_at, class, attempts, logged_at, source, event_id, type, subject, key, causation_id, content_type, data)
				SELECT 'travel', 'a', now() + $1::interval, CASE WHEN $1::interval IS NULL THEN now() END, 'error', 1, now() - $2::interval, '/others', 'a', $3, $3, $4, $5, 'application/json', ''`,
				test.due, test.logged, test.eventType, test.key, payment.ID)
			w.give(alarm)
			if !test.waits {
				w.wants("payment.refund")
				return
			}
			w.is("t1", "running", "payment")
			next := w.wants("travel.deadline")[0].NotBefore
			var right bool
			err := w.pool.QueryRow(t.Context(), "SELECT $1::timestamptz BETWEEN greatest(next_at, logged_at + interval '10 s') + interval '1 s' AND greatest(next_at, now()) + interval '6 s' FROM postroom.held", next).Scan(&right)
			if err != nil || !right {
				t.Errorf("the deadline comes at %s, want a moment after the next attempt: %v", next, err)
			}
			w.exec("DELETE FROM postroom.held")
			w.exec("UPDATE postroom.saga SET alarm_at = now()")
			w.give(w.alarmOf("t1"))
			w.wants("payment.refund")
		})
	}
}

// A deploy makes Stuck longer. Everything that tells which instances are stuck finds those whose deadline
// is over as before, also if a process of the older program stored them after that.
func TestStuckIsFoundAfterStuckBecameLonger(t *testing.T) {
	t.Parallel()
	w := newRig(t, func(d *saga.Definition[trip]) { d.Steps[1].Within = 54 * time.Minute })
	older := w.saga
	longer := travel()
	longer.Stuck = 48 * time.Hour
	w.begin("t1")
	w.use(longer)
	w.saga = older
	w.begin("t2")
	w.overrideWait("t1", time.Hour)
	w.overrideWait("t2", time.Hour)
	page, _, err := saga.NewStore(w.pool, saga.StoreConfig{}).List(t.Context(), saga.Filter{Stuck: true}, postroom.Page{})
	if err != nil {
		t.Fatal(err)
	}
	counts, _, err := sagas.CountsOf(t.Context(), w.pool, "postroom")
	if err != nil {
		t.Fatal(err)
	}
	if len(page) != 2 || counts[0].Stuck != 2 {
		t.Errorf("six minutes after the deadlines the list has %d of 2 instances, and the counts %d", len(page), counts[0].Stuck)
	}
}

// A Local function compensates its own instance. The saga could only do one of both: it stores nothing.
func TestALocalFunctionThatCompensatesItsOwnInstance(t *testing.T) {
	t.Parallel()
	var w *rig
	compensates := saga.Local(func(ctx context.Context, tx pgx.Tx, s *trip) error { return w.saga.Compensate(ctx, tx, s.ID, nil) })
	t.Run("in a Do", func(t *testing.T) {
		w = newRig(t, func(d *saga.Definition[trip]) { d.Steps[3].Do = compensates })
		_, payment := w.upTo("t1")
		w.fails(w.try(w.reply(payment, "payment.charged", nil)), "its own instance, t1", true)
		w.wants()
		w.is("t1", "running", "payment")
	})
	t.Run("in an Undo", func(t *testing.T) {
		w = newRig(t, func(d *saga.Definition[trip]) { d.Steps[0].Undo = compensates })
		w.begin("t1")
		w.fails(w.try(w.reply(w.wants("seat.book", "travel.deadline")[0], "seat.full", nil)), "its own instance, t1", true)
		w.wants()
		w.is("t1", "running", "seat")
	})
	t.Run("while it begins", func(t *testing.T) {
		w = newRig(t, func(d *saga.Definition[trip]) { d.Steps[0].Do = compensates })
		if err := w.tryBegin(trip{ID: "t1"}); err == nil || !strings.Contains(err.Error(), "its own instance, t1") {
			t.Errorf("error %v", err)
		}
		w.wants()
	})
}
