package integration

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// looks counts how often a process looks for held events, and how often it got more of them
// than it asked for. It is the tracer of its pool.
type looks struct{ n, tooMany atomic.Int64 }

func (l *looks) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (l *looks) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (l *looks) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (l *looks) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if kindOf(data.SQL) != "claim" {
		return
	}
	l.n.Add(1)
	most, ok := data.Args[2].([]int32)
	if !ok || data.CommandTag.RowsAffected() > int64(most[0]) {
		l.tooMany.Add(1)
	}
}

func (l *looks) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// upgrade is a service whose versions handle different types of events.
type upgrade struct {
	*depot

	written map[string]int // by type
}

// version is a running version of the service.
type version struct {
	*instance
	looks

	stop func()
}

// version starts a version, which notes its effects under its name.
func (u *upgrade) version(name string, kinds ...string) *version {
	u.Helper()
	v := &version{}
	v.instance = u.instance(inbox.Config{AckWait: 5 * time.Second}, &v.looks)
	sub := inbox.Subscription{Name: "service", Stream: u.stream, Workers: 4}
	for _, kind := range kinds {
		sub.Types = append(sub.Types, u.typed(kind))
	}
	v.Handle(sub, noting(name))
	v.stop = v.start()
	devtest.Eventually(u.T, depotPatience, name+" to read its types", func() bool {
		var filter []string
		for _, info := range u.consumers("service") {
			filter = append(info.Config.FilterSubjects, info.Config.FilterSubject)
		}
		return !slices.ContainsFunc(sub.Types, func(subject string) bool { return !slices.Contains(filter, subject) })
	})
	return v
}

// write publishes n events of each kind.
func (u *upgrade) write(n int, kinds ...string) {
	u.Helper()
	var events []postroom.Event
	for range n {
		for _, kind := range kinds {
			events = append(events, u.event(kind, fmt.Sprintf("%s-%d", kind, u.written[kind])))
			u.written[kind]++
		}
	}
	u.publish(events...)
}

// flow writes events of both kinds until cond holds.
func (u *upgrade) flow(what string, cond func() bool) {
	u.Helper()
	devtest.Eventually(u.T, depotPatience, what, func() bool {
		u.write(5, "a", "b")
		return cond()
	})
}

// took returns how many events of a type a version ran.
func (u *upgrade) took(version, kind string) int {
	u.Helper()
	return u.number("SELECT count(*) FROM effect WHERE handler = $1 AND event LIKE $2", version, kind+"-%")
}

// Three versions of a service replace each other, and each runs beside the one before for a
// while. If one meets an event that it cannot handle, the other runs it. If no remaining
// version can handle an event, it waits and costs nothing.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	u := &upgrade{depot: openDepot(t), written: map[string]int{}}
	old := u.version("old", "a")
	u.write(100, "a")
	both := u.version("both", "a", "b")
	u.flow("the old version to meet what it does not know", func() bool { return old.counted("service", "held") >= 20 })
	heldByOld := old.counted("service", "held")
	u.waitUntilIdle("service")
	old.stop()
	last := u.version("new", "b")
	u.flow("the new version to meet what it does not know any more", func() bool { return last.counted("service", "held") >= 20 })
	u.waitUntilIdle("service")
	both.stop()

	before := u.written["a"]
	u.write(100, "a", "b")
	devtest.Eventually(t, depotPatience, "the last events of type a to wait", func() bool {
		return u.isDrained("service") && u.heldCount("service") == u.written["a"]-before
	})
	u.wantAtRest(last)
	if n := u.number("SELECT count(*) FROM postroom.held WHERE attempts > 0 OR class IS NOT NULL OR claimed_by IS NOT NULL"); n > 0 {
		t.Errorf("%d events that wait for their version were tried", n)
	}
	back := u.version("back", "a", "b")
	u.waitUntilIdle("service")
	u.wantAllOnce(old, both, last, back)
	if n := u.took("old", "b") + u.took("new", "a"); n > 0 {
		t.Errorf("%d events were run by a version that does not have their type", n)
	}
	t.Logf("a: %d, b: %d; the old version met %d of type b, the new one %d of type a in all; a was run by old %d, both %d, back %d",
		u.written["a"], u.written["b"], heldByOld, last.counted("service", "held"), u.took("old", "a"), u.took("both", "a"), u.took("back", "a"))
}

// wantAtRest fails if a version keeps looking for due events that it cannot handle.
func (u *upgrade) wantAtRest(v *version) {
	u.Helper()
	began, first := time.Now(), v.n.Load()
	devtest.Eventually(u.T, depotPatience, "some looks", func() bool { return v.n.Load() >= first+4 })
	if took := time.Since(began); took < 500*time.Millisecond { // 1 s by Config.IdlePoll's default
		u.Errorf("4 looks for held events took %s: events that wait for another version keep this one busy", took)
	}
}

// wantAllOnce fails unless every event took effect once, whichever version ran it.
func (u *upgrade) wantAllOnce(versions ...*version) {
	u.Helper()
	want := u.written["a"] + u.written["b"]
	if n, events := u.number("SELECT count(*) FROM effect"), u.number("SELECT count(DISTINCT event) FROM effect"); n != want || events != want {
		u.Errorf("%d effects of %d events, want one of each of %d", n, events, want)
	}
	if n := u.number("SELECT count(*) FROM postroom.inbox"); n != want {
		u.Errorf("%d inbox rows of %d events", n, want)
	}
	for _, v := range versions {
		if n := v.counted("service", "skipped") + v.counted("service", "dead"); n > 0 {
			u.Errorf("%d events were given up", n)
		}
	}
}
