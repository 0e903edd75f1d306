package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/internal/reconcile"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// A stream that keeps one message of each subject has lost nothing if it does not have an event that a
// later message replaced. To publish the event again would replace the newer one.
func TestWhatAStreamReplacedIsNotMissing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		transform *jetstream.SubjectTransformConfig
		events    string // SELECTs; $P is the prefix of the subjects
		foreign   bool   // another program publishes to the subject of the last event
	}{
		// The later event has a lower seq, because it was scheduled.
		"a scheduled event replaced it": {events: `SELECT postroom.write('/shop', '$P.item.a', '{}', id => 'later', not_before => now() + interval '2 s'),
			postroom.write('/shop', '$P.item.a', '{}', id => 'replaced')`},
		"an event with another subject replaced it": {
			transform: &jetstream.SubjectTransformConfig{Source: "$P.item.*", Destination: "$P.item"},
			events:    `SELECT postroom.write('/shop', '$P.item.a', '{}', id => 'replaced'), postroom.write('/shop', '$P.item.b', '{}', id => 'later')`,
		},
		"an event of another log replaced it": {events: `SELECT postroom.write('/shop', '$P.item.a', '{}', id => 'replaced')`, foreign: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, nc := devtest.Pool(t), devtest.NATS(t)
			prefix := nats.NewInbox()[len("_INBOX."):]
			js := devtest.JetStream(t, nc)
			cfg := jetstream.StreamConfig{Name: prefix, Subjects: []string{prefix + ".>"}, MaxMsgsPerSubject: 1}
			with := func(s string) string { return strings.ReplaceAll(s, "$P", prefix) }
			if tt.transform != nil {
				cfg.SubjectTransform = &jetstream.SubjectTransformConfig{Source: with(tt.transform.Source), Destination: with(tt.transform.Destination)}
			}
			stream, err := js.CreateStream(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			exec := func(sql string) {
				t.Helper()
				if _, err := pool.Exec(t.Context(), with(sql)); err != nil {
					t.Fatal(err)
				}
			}
			exec(`SELECT postroom.write('/shop', '$P.first', '{}', id => 'first')`) // stays, so that the stream begins with its first message
			ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
			done := make(chan struct{})
			publisher := natsjs.NewPublisher(nc)
			log := pglog.New(pool)
			go func() {
				defer close(done)
				_ = relay.New(pool, publisher, relay.Config{AcceptRisks: natsjs.Risks()}).Run(ctx) // the end of the test stops it
			}()
			t.Cleanup(func() { stop(); <-done })
			last := func(seq uint64) {
				t.Helper()
				devtest.Eventually(t, time.Minute, fmt.Sprintf("message %d", seq), func() bool {
					info, err := stream.Info(t.Context())
					return err == nil && info.State.LastSeq >= seq
				})
			}
			last(1)
			exec(tt.events)
			messages := uint64(3)
			if tt.foreign {
				last(2)
				if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: prefix + ".item.a", Data: []byte("{}"), Header: nats.Header{
					"ce-specversion": {"1.0"}, "ce-id": {"theirs"}, "ce-source": {"/other"}, "ce-type": {"item"}, "Nats-Msg-Id": {"/other#theirs"}, "content-type": {"application/json"},
				}}); err != nil {
					t.Fatal(err)
				}
			}
			last(messages)
			devtest.Eventually(t, time.Minute, "all to be recorded", func() bool {
				var all bool
				err := pool.QueryRow(t.Context(), "SELECT high = (SELECT max(seq) FROM postroom.outbox) AND isempty(pending) AND NOT EXISTS (SELECT FROM postroom.held) FROM postroom.relay").Scan(&all)
				return err == nil && all
			})
			found, err := reconcile.Compare(t.Context(), log, publisher, reconcile.Config{})
			if err != nil || len(found) != 1 {
				t.Fatalf("%+v, %v", found, err)
			}
			if len(found[0].Missing) > 0 || found[0].Unknown != 1 {
				t.Errorf("missing %v, unknown %d, want none missing and one unknown: %+v", found[0].Missing, found[0].Unknown, found[0])
			}
		})
	}
}
