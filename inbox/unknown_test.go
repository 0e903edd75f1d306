package inbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// A Mux gets many events of types that it does not know, and a few of its own: from its stream, and
// from a process that accepts events of all types. The handler does not pause, and the events of
// its own types take effect at once.
func TestUnknownTypesPauseNoHandler(t *testing.T) {
	t.Parallel()
	const unknown, known = 60, 5
	b := newBench(t)
	reads, accepts := &postroom.Mux{}, &postroom.Mux{}
	reads.On(b.stream+".placed", effect("reads"))
	accepts.On(b.stream+".placed", effect("accepts"))
	sub := b.subscription("reads")
	sub.Types, sub.Subjects, sub.Schedule, sub.Attempts = nil, []string{b.stream + ".>"}, postroom.Backoff{time.Hour}, 8
	b.in.Handle(sub, reads)
	b.in.Handle(inbox.Subscription{Name: "accepts", Schedule: sub.Schedule}, accepts)
	front := inbox.New(b.pool, nil, inbox.Config{})
	front.Declare(inbox.Subscription{Name: "accepts"})
	for n := range unknown + known {
		ev := postroom.Event{ID: fmt.Sprint("e", n), Source: "/shop", Type: fmt.Sprint(b.stream, ".other", n), ContentType: "application/json", Data: []byte("1")}
		if n >= unknown {
			ev.Type = b.stream + ".placed"
		}
		b.publishEvent(ev)
		if _, err := front.Accept(t.Context(), "accepts", ev); err != nil {
			t.Fatal(err)
		}
	}
	b.run()
	for _, name := range []string{"reads", "accepts"} {
		b.eventually("the known events of "+name, func() bool { return len(b.effects(name)) == known })
		b.eventually("each unknown event of "+name+" to be tried", func() bool {
			tried := 0
			for _, e := range b.held(name) {
				if e.Attempts == 1 && e.State == "due" {
					tried++
				}
			}
			return tried == unknown
		})
	}
}
