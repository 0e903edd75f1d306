package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// The default schedules: eight attempts over a quarter of an hour, and for an external handler
// ten over about a day.
func TestDefaultSchedules(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		external bool
		made     int           // attempts so far
		wait     time.Duration // after it; 0: it was the last
	}{
		{"the first", false, 0, 500 * time.Millisecond},
		{"the one before the last", false, 6, 10 * time.Minute},
		{"the last", false, 7, 0},
		{"the first, external", true, 0, time.Second},
		{"the one before the last, external", true, 8, 11 * time.Hour},
		{"the last, external", true, 9, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			sub := inbox.Subscription{Name: "h", Workers: 1}
			if tt.external {
				b.in.HandleExternal(sub, func(context.Context, *inbox.Attempt) error { return errors.New("no") })
			} else {
				b.in.Handle(sub, postroom.HandlerFunc(func(context.Context, pgx.Tx, postroom.Event) error { return errors.New("no") }))
			}
			if _, err := b.in.Accept(t.Context(), "h", postroom.Event{ID: "e", Source: "/shop", Type: "t"}); err != nil {
				t.Fatal(err)
			}
			b.exec("UPDATE postroom.held SET attempts = $1", tt.made)
			// Measured from the time of the failure, because more failures may follow before
			// this is read.
			b.exec(`CREATE TABLE noted AS SELECT attempts, next_at - clock_timestamp() AS wait, dead_at IS NOT NULL AS dead FROM postroom.held WHERE false`)
			b.exec(`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				INSERT INTO noted VALUES (NEW.attempts, NEW.next_at - now(), NEW.dead_at IS NOT NULL); RETURN NULL; END $$`)
			b.exec(`CREATE TRIGGER note AFTER UPDATE ON postroom.held FOR EACH ROW WHEN (NEW.claimed_by IS NULL) EXECUTE FUNCTION note()`)
			b.run()
			var wait *time.Duration
			var dead bool
			b.eventually("the attempt to be noted", func() bool {
				err := b.pool.QueryRow(t.Context(), "SELECT wait, dead FROM noted WHERE attempts = $1", tt.made+1).Scan(&wait, &dead)
				return err == nil
			})
			switch {
			case tt.wait == 0 && !dead:
				t.Errorf("attempt %d is followed by another, want it to be the last", tt.made+1)
			case tt.wait > 0 && (dead || wait == nil || *wait < tt.wait || *wait > tt.wait+tt.wait/5):
				t.Errorf("attempt %d is followed by %v (dead %v), want a wait of %s and up to a fifth more", tt.made+1, wait, dead, tt.wait)
			}
		})
	}
}

// The statement that the documentation has for an operator brings attempts forward.
func TestOperatorsStatementBringsAttemptsForward(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/howto/choose-a-retry-schedule.md")
	if err != nil {
		t.Fatal(err)
	}
	_, sql, _ := strings.Cut(string(text), "    SELECT postroom.retry(")
	sql, _, found := strings.Cut(sql, ";")
	if !found {
		t.Fatal("the page has no statement")
	}
	sql = strings.ReplaceAll("SELECT postroom.retry("+sql, "billing.charge", "h")

	b := newBench(t)
	failing := make(chan struct{})
	b.in.HandleExternal(inbox.Subscription{Name: "h", Workers: 2, Schedule: postroom.Backoff{time.Hour}, Attempts: 8}, func(_ context.Context, attempt *inbox.Attempt) error {
		select {
		case <-failing:
			attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return effect("h").Handle(ctx, tx, attempt.Event) })
			return nil
		default:
			return errors.New("no")
		}
	})
	for i := range 3 {
		if _, err := b.in.Accept(t.Context(), "h", postroom.Event{ID: fmt.Sprint(i), Source: "/shop", Type: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	b.run()
	b.eventually("all to have failed", func() bool { return b.failures("%") == 3 })
	close(failing)
	b.exec(sql)
	b.eventually("all to be done", func() bool { return len(b.effects("h")) == 3 })
}

// A subscription that sets only its schedule has one attempt more than the schedule has waits, and no
// more with the last wait.
func TestAttemptsFollowTheSchedule(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	fail := func(context.Context, *inbox.Attempt) error { return errors.New("no") }
	b.in.HandleExternal(inbox.Subscription{Name: "two", Workers: 1, Schedule: postroom.Backoff{time.Millisecond, time.Millisecond}}, fail)
	b.in.HandleExternal(inbox.Subscription{Name: "more", Workers: 1, Schedule: postroom.Backoff{time.Millisecond}, Attempts: 4}, fail)
	for _, name := range []string{"two", "more"} {
		if _, err := b.in.Accept(t.Context(), name, postroom.Event{ID: "e", Source: "/shop", Type: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	b.run()
	for name, want := range map[string]int{"two": 3, "more": 4} {
		b.eventually("the death", func() bool { return b.dead(name) == 1 })
		if got := b.held(name)["/shop e"].Attempts; got != want {
			t.Errorf("the event of %s is dead after %d attempts, want %d", name, got, want)
		}
	}
}
