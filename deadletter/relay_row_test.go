package deadletter_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/deadletter"
	"github.com/postroom/postroom/internal/devtest"
)

// holdOutgoing puts dead outgoing events without a key into held. Each has a body of this many bytes that
// the server cannot compress.
func (n *rig) holdOutgoing(count, bytes int) {
	n.Helper()
	n.exec(`INSERT INTO postroom.held (handler, pos, dead_at, attempts, class, failures, first_failed_at, logged_at, source, event_id, type, subject, content_type, data)
		SELECT 'outbox', i, now(), 8, 'refused', '[]', now(), now(), '/shop', 'o' || i, 'order.placed', 'order.placed', 'application/json',
			(SELECT string_agg(sha256(int4send(i * 100000 + n)), '') FROM generate_series(1, $2::int / 32) n)
		FROM generate_series(1, $1::int) i`, count, bytes)
}

// wantRecordings fails the test if a relay could not record now, because a transaction has locked the row of
// relay.
func (n *rig) wantRecordings() {
	n.Helper()
	if _, err := n.pool.Exec(n.Context(), "SELECT FROM postroom.relay FOR UPDATE NOWAIT"); err != nil {
		n.Errorf("no relay can record: %v", err)
	}
}

// meanwhile runs an action of an operator, which may have to wait for a transaction tx. It checks that
// relays can record meanwhile, and ends tx.
func (n *rig) meanwhile(tx pgx.Tx, act func() error) {
	n.Helper()
	done := make(chan error, 1)
	go func() { done <- act() }()
	ended := false
	devtest.Eventually(n, patience, "the action to end or to wait", func() bool {
		select {
		case err := <-done:
			if ended = true; err != nil {
				n.Errorf("the action: %v", err)
			}
			return true
		default:
			return n.number("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())") > 0
		}
	})
	n.wantRecordings()
	if err := tx.Rollback(n.Context()); err != nil {
		n.Error(err)
	}
	if !ended {
		if err := <-done; err != nil {
			n.Errorf("the action: %v", err)
		}
	}
}

func (n *rig) begin(sql string, args ...any) pgx.Tx {
	n.Helper()
	tx, err := n.pool.Begin(n.Context())
	if err == nil {
		_, err = tx.Exec(n.Context(), sql, args...)
	}
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = tx.Rollback(n.Context()) })
	return tx
}

// A producer has cancelled a refused event, and its transaction goes on for long. An operator who changes
// that event meanwhile stops no relay.
func TestNoRelayWaitsForAProducerThatAnOperatorWaitsFor(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(n *rig, job int64) error{
		"discard": func(n *rig, _ int64) error {
			_, err := n.store.Discard(n.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, n.by)
			return err
		},
		"replay": func(n *rig, job int64) error {
			_, err := n.store.Step(n.Context(), job)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newRig(t)
			n.holdOutgoing(2, 100)
			job, err := n.store.CreateReplay(t.Context(), deadletter.Filter{All: true}, deadletter.ReplayOptions{}, n.by)
			if err != nil {
				t.Fatal(err)
			}
			n.meanwhile(n.begin("SELECT postroom.cancel('/shop', 'o1')"), func() error { return act(n, job.ID) })
		})
	}
}

// A handler of an ordered key runs, and has locked the key. An operator who discards an event of that key
// and an outgoing event waits for the handler, and no relay does.
func TestNoRelayWaitsForAHandlerThatAnOperatorWaitsFor(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.holdOutgoing(1, 100)
	n.seed(1, 1, 1)
	n.exec("UPDATE postroom.held SET chain = 'k', pos = 1 WHERE handler = 'h0'")
	n.meanwhile(n.begin("SELECT pg_advisory_xact_lock(postroom.key_lock('h0', 'k'))"), func() error {
		_, err := n.store.Discard(n.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, n.by)
		return err
	})
	n.want("discarded events", 2, "SELECT count(*) FROM postroom.archive")
}

// While an operator discards or reopens outgoing events, the relay cannot record. So one transaction writes
// few bytes.
func TestOperatorsWriteOutgoingEventsInPortions(t *testing.T) {
	t.Parallel()
	n := newRig(t)
	n.holdOutgoing(30, 900_000)
	check := func(what string) {
		t.Helper()
		if bytes := n.number("SELECT 900000 * max(events) FROM postroom.audit"); bytes > 8<<20 {
			t.Errorf("%s: one transaction moved %d bytes of outgoing events", what, bytes)
		}
	}
	if all, err := n.store.Discard(n.Context(), deadletter.Filter{All: true}, deadletter.ChangeOptions{}, n.by); err != nil || all != 30 {
		t.Errorf("discarded %d, %v", all, err)
	}
	check("discard")
	if all, err := n.store.Reopen(n.Context(), deadletter.Filter{All: true, Discarded: true}, deadletter.ChangeOptions{}, n.by); err != nil || all != 30 {
		t.Errorf("reopened %d, %v", all, err)
	}
	check("reopen")
}
