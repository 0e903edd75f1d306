package integration

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
	"github.com/postroom/postroom/relay/broker"
)

// A row claims to be checked, and has a header that would purge the stream. It does not reach
// the broker: it is dead, later events of its key wait, and others pass.
func TestFalselyCheckedRowDoesNotReachTheBroker(t *testing.T) {
	t.Parallel()
	for _, atomic := range []bool{false, true} {
		t.Run(fmt.Sprint("atomic ", atomic), func(t *testing.T) {
			t.Parallel()
			o := openRefusalRig(t, devtest.NATS(t))
			o.stream("a", jetstream.StreamConfig{AllowRollup: true, AllowAtomicPublish: atomic, Discard: jetstream.DiscardNew})
			o.relay(relay.Config{Atomic: atomic, AcceptRisks: []broker.Risk{natsjs.Rollup}})
			o.write(several(20, "a", "early")...)
			o.waitForStored("a", 20)

			// Two good events follow at once, so that with atomic batches they are in the same
			// batch.
			lie := func(key, subject, headers string) {
				o.exec(fmt.Sprintf(`INSERT INTO postroom.outbox (digest, source, event_id, type, subject, key, headers, data, checked)
					SELECT decode(repeat('00', 16), 'hex'), '/office', '%[1]s-' || n, 'a', CASE n WHEN 0 THEN '%[2]s' ELSE '%[4]s' END, '%[1]s',
					       CASE n WHEN 0 THEN '%[3]s'::jsonb END, '{}', true
					FROM generate_series(0, 2) n`, key, subject, headers, o.subject("a")))
				o.next[key] += 3
			}
			lie("rollup", o.subject("a"), `{"Nats-Rollup": "all"}`)
			lie("purge", "$JS.API.STREAM.PURGE."+o.name+"-a", `{}`)
			o.write(letter{kind: "a", key: "rollup"}, letter{kind: "a", key: "late"}, letter{kind: "a", key: "purge"})
			o.write(several(5, "a", "late")...)

			held := map[string]heldEvent{}
			for _, h := range o.waitForHeld(8) {
				held[h.ID] = h
			}
			for _, key := range []string{"rollup", "purge"} {
				if h := held[key+"-0"]; h.State != "dead" || h.Class != "invalid_event" || h.Attempts != 1 {
					t.Errorf("%s-0 is held as %+v, want it dead of invalid_event", key, h)
				}
				for n := 1; n <= 3; n++ {
					if h := held[fmt.Sprint(key, "-", n)]; h.State != "waiting" {
						t.Errorf("%s-%d is held as %+v, want it waiting behind the first", key, n, h)
					}
				}
			}
			o.waitForStored("a", 26)
			o.wantInOrder("a", "early", "late")
		})
	}
}

// A row with a fault comes behind a good event of its key, in the same batch. The good event is
// published, the row is dead, and later events of the key wait.
func TestFaultyRowBehindAGoodEventOfItsKey(t *testing.T) {
	t.Parallel()
	for _, atomic := range []bool{false, true} {
		t.Run(fmt.Sprint("atomic ", atomic), func(t *testing.T) {
			t.Parallel()
			o := openRefusalRig(t, devtest.NATS(t))
			o.stream("a", jetstream.StreamConfig{AllowAtomicPublish: atomic, Discard: jetstream.DiscardNew})
			o.relay(relay.Config{Atomic: atomic})
			o.write(several(20, "a", "early")...)
			o.waitForStored("a", 20)
			o.exec(fmt.Sprintf(`INSERT INTO postroom.outbox (digest, source, event_id, type, subject, key, correlation_id, data, checked)
				SELECT decode(repeat('00', 16), 'hex'), '/office', 'k-' || n, 'a', '%s', 'k', CASE n WHEN 1 THEN repeat('c', 300) END, '{}', true
				FROM generate_series(0, 3) n`, o.subject("a")))
			o.next["k"] += 4
			o.write(several(20, "a", "late")...)

			held := map[string]string{}
			for _, h := range o.waitForHeld(3) {
				held[h.ID] = h.State + " " + h.Class
			}
			if held["k-1"] != "dead invalid_event" || held["k-2"] != "waiting " || held["k-3"] != "waiting " {
				t.Errorf("held %q, want k-1 dead, and k-2 and k-3 waiting", held)
			}
			o.waitForStored("a", 41)
			o.wantInOrder("a", "early", "late")
		})
	}
}
