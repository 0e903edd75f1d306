package bridge

import (
	"testing"

	waternats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postmill"
	"github.com/postroom/postroom/postroomtest"
	"github.com/postroom/postroom/postroomtest/servers"
)

// A handler that moves before its publisher gets what Watermill's own publisher for JetStream
// sends: UUID, metadata and payload as they were, and each message once.
func TestMessagesOfWatermillsPublisherForJetStream(t *testing.T) {
	t.Parallel()
	devtest.Postgres(t) // skipped if there is none
	pool, nc := servers.Postgres(t), servers.NATS(t)
	servers.Stream(t, nc, "SHOP", "order.>")
	old, err := waternats.NewPublisher(waternats.PublisherConfig{
		URL:       nc.ConnectedUrl(),
		JetStream: waternats.JetStreamConfig{TrackMsgId: true},
	}, logger)
	must(t, err)
	defer func() { must(t, old.Close()) }()
	plain := newMessage(Order{"o-1", 1})
	full := message.NewMessage("3b241101-e2bb-4255-8caf-4136c566a962", []byte("x"))
	full.Metadata = message.Metadata{"tenant": "a", "correlation_id": "c-1", "content-type": "text/x-order", "received_at": "now", "with-dash": "ü ? %"}
	for range 2 { // as after an answer that was lost
		must(t, old.Publish("order.placed", plain, full))
	}
	var came []*message.Message
	in := inbox.New(pool, nc, inbox.Config{Logger: quiet})
	in.Handle(inbox.Subscription{Name: "billing", Stream: "SHOP", Subjects: []string{"order.placed"}, Workers: 1}, postmill.Handler(nil, "", func(msg *message.Message) ([]*message.Message, error) {
		came = append(came, msg)
		return nil, nil
	}))
	postroomtest.Drain(t, in)
	if len(came) != 2 || !came[0].Equals(plain) || !came[1].Equals(full) {
		for _, msg := range came {
			t.Logf("%q %q %q", msg.UUID, msg.Metadata, msg.Payload)
		}
		t.Errorf("%d messages, want the two that were sent", len(came))
	}
}
