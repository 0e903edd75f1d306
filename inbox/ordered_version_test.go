package inbox_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
)

// led gives each new subscription another reader, whose part the test plays.
const led = `
CREATE FUNCTION led() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	NEW.reader := 'elsewhere/1/x'; NEW.reader_until := 'infinity'; NEW.epoch := NEW.epoch + 1;
	RETURN NEW;
END $$;
CREATE TRIGGER led BEFORE INSERT ON postroom.subscription FOR EACH ROW EXECUTE FUNCTION led();`

// While a process stands by, another asks for one more type. The first reads that type, too,
// when it begins to read.
func TestStandByReadsTypesAddedMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(led)
	b.in.Handle(b.ordered("o", inbox.HoldKey), effect("o"))
	b.run()
	b.eventually("it to stand by", func() bool {
		var n int
		if err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM postroom.subscription").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
	// This is what subscribe.sql does for a process of another version.
	b.exec(`UPDATE postroom.subscription SET types = types || $1::text, subjects = subjects || $1::text, epoch = epoch + 1, reader = NULL, reader_until = NULL`,
		b.stream+".paid")
	b.publishKey("a", 0)
	b.publishEvent(postroom.Event{ID: "a-00001", Source: "/shop", Type: b.stream + ".paid", Key: "a", ContentType: "text/plain", Data: []byte("1")})
	b.publishKey("a", 2)
	b.eventuallyStates("o", map[string]string{"a-00001": "due", "a-00002": "waiting"})

	other := inbox.New(b.pool, b.nc, b.config())
	sub := b.ordered("o", inbox.HoldKey)
	sub.Types = append(sub.Types, b.stream+".paid")
	other.Handle(sub, effect("o"))
	b.in = other
	b.run()
	b.eventuallyStates("o", map[string]string{})
	b.wantOrder("o", "a", numbered("a", 0, 2)...)
}

// A second version with one more type starts while the first reads. Whichever of them reads,
// no event of the new type is lost, and keys keep their order across types.
func TestOrderedHandlerInTwoVersions(t *testing.T) {
	t.Parallel()
	const keys = 10
	b := newBenchOn(t, poolWith(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 24 }), devtest.NATS(t))
	n := 0
	publish := func(rounds int, types ...string) {
		for range rounds {
			for k := range keys {
				id := fmt.Sprintf("k%d-%05d", k, n)
				b.publishEvent(postroom.Event{
					ID: id, Source: "/shop", Type: b.stream + "." + types[(n+k)%len(types)], Key: fmt.Sprintf("k%d", k), ContentType: "text/plain", Data: []byte(id),
				})
			}
			n++
		}
	}
	version := func(types ...string) (stop func()) {
		b.in = inbox.New(b.pool, b.nc, b.config())
		sub := b.ordered("o", inbox.HoldKey)
		sub.Types = nil
		for _, typ := range types {
			sub.Types = append(sub.Types, b.stream+"."+typ)
		}
		b.in.Handle(sub, effect("o"))
		return b.run()
	}
	asked := func(typ string) bool {
		var asked bool
		err := b.pool.QueryRow(t.Context(), "SELECT coalesce(bool_or($1 = ANY (types)), false) FROM postroom.subscription", b.stream+"."+typ).Scan(&asked)
		if err != nil {
			t.Fatal(err)
		}
		return asked
	}
	version("placed") // it stays: it may read again, and then meets events whose type it does not know
	publish(5, "placed")
	b.eventually("the old version's effects", func() bool { return b.made("o", "%") == n*keys })
	for range 3 {
		stop := version("placed", "paid")
		b.eventually("the new type to be asked for", func() bool { return asked("paid") })
		publish(15, "placed", "paid")
		b.eventually("some effects", func() bool { return b.made("o", "%") > (n-10)*keys })
		stop()
		publish(5, "placed", "paid") // only the old version runs
	}
	b.eventually("an event to wait for the version that has its type", func() bool { return b.heldCount("o") > 0 })
	version("placed", "paid")
	b.eventually("all effects", func() bool { return b.made("o", "%") == n*keys && b.heldCount("o") == 0 })
	if n := b.outOfOrder("o"); n > 0 {
		t.Errorf("%d effects out of order, or twice", n)
	}
}
