package inbox_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
)

// Behind a pooler that keeps no prepared statements, statements must be sent in another way.
func TestExecModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b := newBenchOn(t, poolWith(t, func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode, cfg.MaxConns = mode, 14 }), devtest.NATS(t))
			for _, sub := range []inbox.Subscription{b.subscription("h"), b.batched(10)} {
				sub.Attempts = 2
				if sub.Batch > 1 {
					sub.Name = "batched"
				}
				b.in.Handle(sub, failing(sub.Name, errors.New("always")))
			}
			b.in.Handle(inbox.Subscription{Name: "accepted", Workers: 1}, effect("accepted"))
			s, ordered := newScript("ordered"), b.ordered("ordered", inbox.SkipKey)
			s.set("k0-00000", errBad)
			s.set("k1-00001", errors.New("always"))
			ordered.Types, ordered.Attempts, ordered.Workers = []string{b.stream + ".keyed"}, 2, 2
			b.in.Handle(ordered, s)
			for i := range 8 {
				key := fmt.Sprint("k", i%2)
				b.publishEvent(postroom.Event{ID: fmt.Sprintf("%s-%05d", key, i/2), Source: "/shop", Type: b.stream + ".keyed", Key: key, Data: []byte("1")})
			}
			good := ids("good", 20)
			b.publish(good...)
			b.publish("bad 1", "bad 2", "good000")
			b.publishEvent(postroom.Event{ID: "bad 3", Source: "/shop", Type: b.stream + ".placed", Key: "k", Headers: map[string]string{"a": "ä"}, Data: []byte{0, 255}})
			b.run()
			if got, err := b.in.Accept(t.Context(), "accepted", postroom.Event{ID: "a", Source: "/s", Type: "t"}); got != inbox.Stored || err != nil {
				t.Errorf("Accept = %q, %v", got, err)
			}
			for _, name := range []string{"h", "batched"} {
				b.eventually("the end of all at "+name, func() bool { return b.dead(name) == 3 && len(b.effects(name)) == 20 })
				b.wantOnce(name, good...)
			}
			b.eventually("the end of all that keep their order", func() bool { return b.dead("ordered") == 2 && len(b.effects("ordered")) == 6 })
			if n := b.outOfOrder("ordered"); n > 0 {
				t.Errorf("%d effects out of order", n)
			}
			b.eventually("what was accepted", func() bool { return len(b.effects("accepted")) == 1 })
		})
	}
}

// Through a transaction pooler that keeps no prepared statements, statements fail at random in the
// default mode. That costs no attempt, and the log names the parameter that corrects it.
func TestAPoolerWithoutPreparedStatementsCostsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBenchOn(t, devtest.Pool(t), devtest.NATS(t))
	pool, err := pgxpool.New(t.Context(), devtest.PoolerURL(t, b.pool.Config().ConnString(), devstack.PoolerConfig{Size: 3}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var log told
	cfg := b.config()
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	b.in = inbox.New(pool, b.nc, cfg)
	b.in.Handle(b.subscription("h"), effect("h"))
	b.publish(ids("e", 30)...)
	b.run()
	b.eventually("the log to name the parameter", func() bool { return strings.Contains(log.String(), "default_query_exec_mode=exec") })
	b.eventually("some events to be handled or held", func() bool { return len(b.effects("h"))+len(b.held("h")) >= 5 })
	for key, o := range b.held("h") {
		if o.Attempts != 0 {
			t.Errorf("%s: %+v, want no attempt", key, o)
		}
	}
}
