package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// If the database refuses to hold an event, whatever is wrong with its row, the message is
// kept as it came. Events that are held with it are not stopped.
func TestEventThatCannotBeHeldStopsNoOther(t *testing.T) {
	t.Parallel()
	settled := func(b *bench) inbox.ExternalHandler {
		return func(_ context.Context, attempt *inbox.Attempt) error {
			attempt.OnSuccess(func(ctx context.Context, tx pgx.Tx) error { return effect("h").Handle(ctx, tx, attempt.Event) })
			return nil
		}
	}
	ways := map[string]func(b *bench){
		"transactional": func(b *bench) { b.in.Handle(b.subscription("h"), failing("h", postroom.Permanent(errors.New("no")))) },
		"batched":       func(b *bench) { b.in.Handle(b.batched(20), failing("h", postroom.Permanent(errors.New("no")))) },
		"external":      func(b *bench) { b.in.HandleExternal(b.subscription("h"), settled(b)) },
		"ordered": func(b *bench) {
			b.in.Handle(b.ordered("h", inbox.HoldKey), failing("h", postroom.Permanent(errors.New("no"))))
		},
		"ordered and external": func(b *bench) { b.in.HandleExternal(b.ordered("h", inbox.HoldKey), settled(b)) },
	}
	for name, register := range ways {
		for _, code := range []string{"54000", "P0001", "23514"} {
			t.Run(fmt.Sprint(name, " ", code), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				b.exec(fmt.Sprintf(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
					BEGIN
						IF NEW.headers ? 'Odd' THEN RAISE EXCEPTION 'it is odd' USING ERRCODE = '%s'; END IF;
						RETURN NEW;
					END $$;
					CREATE TRIGGER refuse BEFORE INSERT ON postroom.held FOR EACH ROW EXECUTE FUNCTION refuse()`, code))
				register(b)
				var good []string
				for n := range 30 {
					ev := postroom.Event{ID: fmt.Sprintf("good %d", n), Source: "/shop", Type: b.stream + ".placed", Key: "k"}
					if n == 10 || n == 20 {
						ev.ID, ev.Headers = fmt.Sprintf("bad %d", n), map[string]string{"Odd": "1"}
					} else {
						good = append(good, ev.ID)
					}
					b.publishEvent(ev)
				}
				b.run()
				b.eventually("both to be dead, and the others to take effect", func() bool { return b.dead("h") == 2 && len(b.effects("h")) == len(good) })
				b.drained()
				b.wantOnce("h", good...)
				for key, o := range b.held("h") {
					if !o.Raw || o.State != "dead" {
						t.Errorf("%s is held as %+v, want it dead, with its original headers", key, o)
					}
				}
			})
		}
	}
}

// If a held row has a value that no event can have, other rows can still be claimed.
func TestAnOddHeldRowStopsNoClaim(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := b.subscription("h")
	sub.Schedule, sub.Attempts = postroom.Backoff{time.Hour}, 8
	b.in.Handle(sub, effect("h"))
	for _, id := range []string{"array", "number", "time", "good"} {
		ev := postroom.Event{ID: id, Source: "/shop", Type: b.stream + ".placed", Data: []byte("{}")}
		if a, err := b.in.Accept(t.Context(), "h", ev); err != nil || a != inbox.Stored {
			t.Fatal(a, err)
		}
	}
	b.exec(`UPDATE postroom.held SET headers = '[1]' WHERE event_id = 'array'`)
	b.exec(`UPDATE postroom.held SET headers = '{"a": 1}' WHERE event_id = 'number'`)
	b.exec(`UPDATE postroom.held SET occurred_at = 'infinity', logged_at = '-infinity' WHERE event_id = 'time'`)
	b.run()
	b.eventually("two effects, and two to be dead", func() bool { return len(b.effects("h")) == 2 && b.dead("h") == 2 })
	b.wantOnce("h", "time", "good")
	for _, id := range []string{"array", "number"} {
		if o := b.held("h")["/shop "+id]; o.State != "dead" || o.Class != "undecodable" {
			t.Errorf("%s is held as %+v, want it dead of undecodable", id, o)
		}
	}
}
