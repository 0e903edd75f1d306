package natsjs_test

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
)

// EnsureStream makes a stream that keeps what it acknowledged: it refuses messages when it is
// full, and it cannot be purged. A second call adds missing subjects.
func ExampleEnsureStream() {
	servers := devtest.ForExample(natsjs.ConnectOptions()...) // a NATS server with JetStream
	defer servers.Close()
	ctx := context.Background()

	fmt.Println(natsjs.EnsureStream(ctx, servers.NATS, jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"order.>"}}))
	fmt.Println(natsjs.EnsureStream(ctx, servers.NATS, jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"refund.>"}}))

	js, err := jetstream.New(servers.NATS)
	if err != nil {
		servers.Fatal(err)
	}
	stream, err := js.Stream(ctx, "SHOP")
	if err != nil {
		servers.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	fmt.Println(cfg.Subjects, cfg.Discard, cfg.DenyPurge, cfg.DenyDelete)
	// Output:
	// <nil>
	// <nil>
	// [order.> refund.>] DiscardNew true true
}
