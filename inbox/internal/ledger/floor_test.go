package ledger

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/internal/devtest"
)

// recorded returns the records of a new handler h with floor 3, and when its stream was created.
func recorded(t *testing.T) (*Records, time.Time) {
	t.Helper()
	return recordedUpTo(t, 0)
}

// recordedUpTo is recorded for a handler whose events up to the sequence backfill may be of any age.
func recordedUpTo(t *testing.T, backfill uint64) (*Records, time.Time) {
	t.Helper()
	r := &Records{Db: New(devtest.Pool(t), "postroom", func(context.Context, error) {}), Process: "p", Handler: "h", Stream: "S", Filter: []string{"a"}}
	created := time.Now().Truncate(time.Microsecond)
	if _, err := r.Subscribe(t.Context(), created, 3, backfill); err != nil {
		t.Fatal(err)
	}
	return r, created
}

// A floor is recorded only if the recorded floor and the server are those for which the process
// found it out.
func TestAFloorIsRecordedForWhatWasRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(at *delivery.Recorded)
		want   uint64
	}{
		"the same":       {func(*delivery.Recorded) {}, 9},
		"another floor":  {func(at *delivery.Recorded) { at.Floor = 2 }, 3},
		"another server": {func(at *delivery.Recorded) { at.Server = at.Server.Add(-time.Second) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, created := recorded(t)
			at, err := r.Place(t.Context(), created, time.Hour)
			if err != nil || at.Floor != 3 || at.Moved || !at.Recent {
				t.Fatalf("Place = %+v, %v", at, err)
			}
			tt.change(&at)
			if err := r.Raise(t.Context(), created, at, 9); err != nil {
				t.Fatal(err)
			}
			if at, err = r.Place(t.Context(), created, time.Hour); err != nil || at.Floor != tt.want {
				t.Errorf("Place = %+v, %v, want the floor %d", at, err, tt.want)
			}
		})
	}
}

// If another server recorded the floor, Place says so, until a floor is recorded here.
func TestAFloorOfAnotherServer(t *testing.T) {
	t.Parallel()
	r, created := recorded(t)
	if _, err := r.Db.pool.Exec(t.Context(), "UPDATE postroom.subscription SET floor_server = floor_server - interval '1 s'"); err != nil {
		t.Fatal(err)
	}
	at, err := r.Place(t.Context(), created, time.Hour)
	if err != nil || !at.Moved {
		t.Fatalf("Place = %+v, %v", at, err)
	}
	if err := r.Raise(t.Context(), created, at, at.Floor); err != nil {
		t.Fatal(err)
	}
	if at, err = r.Place(t.Context(), created, time.Hour); err != nil || at.Moved {
		t.Errorf("Place = %+v, %v", at, err)
	}
}

// A floor that was recorded while the clock was ahead is not recent. Otherwise several processes would
// leave its check to each other until the clock shows that time.
func TestAFloorFromTheFuture(t *testing.T) {
	t.Parallel()
	r, created := recorded(t)
	if _, err := r.Db.pool.Exec(t.Context(), "UPDATE postroom.subscription SET floor_at = now() + interval '40 days'"); err != nil {
		t.Fatal(err)
	}
	if at, err := r.Place(t.Context(), created, time.Hour); err != nil || at.Recent {
		t.Errorf("Place = %+v, %v, want a floor that is not recent", at, err)
	}
}

// A reader that took its lease from a server that has restarted since decides nothing.
func TestATermIsOfOneServer(t *testing.T) {
	t.Parallel()
	r, _ := recorded(t)
	lead, err := r.Lead(t.Context(), time.Hour)
	if err != nil || lead == nil {
		t.Fatalf("Lead = %+v, %v", lead, err)
	}
	decides := func(key string) bool {
		var decided bool
		err := pgx.BeginFunc(t.Context(), r.Db.pool, func(tx pgx.Tx) error {
			tag, err := tx.Exec(t.Context(), r.Db.sql.DecideFree, r.Handler, key, []byte("0123456789abcdef"), "1000", "k", lead.Epoch)
			decided = tag.RowsAffected() == 1
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return decided
	}
	if !decides("a") {
		t.Error("the reader decides nothing")
	}
	if _, err := r.Db.pool.Exec(t.Context(), "UPDATE postroom.subscription SET floor_server = floor_server - interval '1 s'"); err != nil {
		t.Fatal(err)
	}
	if decides("b") {
		t.Error("the reader decides events of another server")
	}
	keep, done := r.Keep(lead.Epoch)
	defer done()
	if err := keep(t.Context(), nil, delivery.Position{Seq: 9}); err == nil {
		t.Error("the reader records its position in another server")
	}
	if lead, err = r.Lead(t.Context(), time.Hour); err != nil || lead == nil || lead.Floor.Seq != 3 {
		t.Fatalf("Lead = %+v, %v, want a new term from the recorded floor", lead, err)
	}
	if !decides("c") {
		t.Error("the next reader decides nothing")
	}
}

// A reader that begins again below events that the handler decided treats none of them as older than
// its rows. Their rows may expire while the reader comes to them again, in the same term.
func TestABackfillIsExemptOnlyAboveTheFloor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ at, want uint64 }{
		"below the floor": {2, 0},
		"at the floor":    {3, 9},
		"above the floor": {4, 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := recordedUpTo(t, 9)
			lead, err := r.Lead(t.Context(), time.Hour)
			if err != nil || lead == nil || lead.Backfill != 9 {
				t.Fatalf("Lead = %+v, %v", lead, err)
			}
			if _, backfill, err := r.Restart(t.Context(), lead.Epoch, delivery.Position{Seq: tt.at}, 5); err != nil || backfill != tt.want {
				t.Errorf("events up to %d are exempt, %v, want %d", backfill, err, tt.want)
			}
			if lead, err = r.Lead(t.Context(), time.Hour); err != nil || lead == nil || lead.Backfill != tt.want || lead.Floor.Seq != tt.at {
				t.Errorf("the next reader learns %+v, %v, want events up to %d to be exempt", lead, err, tt.want)
			}
		})
	}
}
