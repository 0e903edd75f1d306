package integration

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
)

// relayUntil runs a relay until a condition holds.
func relayUntil(t *testing.T, nc *nats.Conn, pool *pgxpool.Pool, what string, holds func() bool) {
	t.Helper()
	var log lines
	r := relay.New(pool, natsjs.NewPublisher(nc), relay.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(log.String())
		}
	}()
	devtest.Eventually(t, 2*time.Minute, what, holds)
}

// eventsIn returns the ids of the events that a stream has, sorted.
func eventsIn(t *testing.T, stream jetstream.Stream) (ids []string) {
	t.Helper()
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		if msg, err := stream.GetMsg(t.Context(), seq); err == nil {
			ids = append(ids, msg.Header.Get("ce-id"))
		}
	}
	slices.Sort(ids)
	return ids
}

// A broker remembers the ids of messages that it has lost, and drops their repetitions within
// its duplicate window. The lost events are stored again nevertheless. The relay notices a
// loss even if the last relay got only such repetitions from the stream.
func TestLostEventsAreStoredWithinTheDuplicateWindow(t *testing.T) {
	t.Parallel()
	const n = 10
	for name, forget := range map[string]string{
		"recorded as published":                                "",
		"published by a relay that crashed before it recorded": "UPDATE postroom.relay SET high = 0, pending = '{}', streams = '{}'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, pool := devtest.NATS(t), devtest.Pool(t)
			stream := fewEvents(t, nc, pool, n)
			cfg := stream.CachedInfo().Config
			js := devtest.JetStream(t, nc)
			if err := js.DeleteStream(t.Context(), cfg.Name); err != nil { // replace it by one from which messages can be deleted
				t.Fatal(err)
			}
			cfg.DenyDelete, cfg.DenyPurge = false, false
			stream, err := js.CreateStream(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			recorded := func() bool {
				var high int64
				err := pool.QueryRow(t.Context(), "SELECT high FROM postroom.relay WHERE pending = '{}'").Scan(&high)
				return err == nil && high == n
			}
			relayUntil(t, nc, pool, "all to be published", recorded)
			all := eventsIn(t, stream)
			if forget != "" {
				if _, err := pool.Exec(t.Context(), forget); err != nil {
					t.Fatal(err)
				}
				relayUntil(t, nc, pool, "all to be published again", recorded)
				if got := eventsIn(t, stream); !slices.Equal(got, all) {
					t.Fatalf("the stream has %v, want each of %v once", got, all)
				}
			}
			if err := stream.DeleteMsg(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			relayUntil(t, nc, pool, "what was lost to be stored again", func() bool { return len(eventsIn(t, stream)) >= n })
			if got := eventsIn(t, stream); !slices.Equal(got, all) {
				t.Errorf("the stream has %v, want each of %v once", got, all)
			}
		})
	}
}
