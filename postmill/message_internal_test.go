package postmill

import (
	"maps"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	"github.com/postroom/postroom"
)

// Each message arrives unchanged, or is refused before it is written.
func TestAMessageArrivesAsItWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		msg := message.NewMessage(rapid.String().Draw(t, "uuid"), rapid.SliceOf(rapid.Byte()).Draw(t, "payload"))
		maps.Copy(msg.Metadata, rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "metadata"))
		ev := postroom.Event{Type: "a"}
		if err := setContent(&ev, msg); err != nil {
			t.Fatal(err)
		}
		if err := ev.Validate(); err != nil {
			if strings.Contains(err.Error(), "bytes") { // too long
				t.Skip(err)
			}
			t.Fatal(err)
		}
		if got := toMessage(ev); !got.Equals(msg) {
			t.Fatalf("message %q %q %q, want %q %q %q", got.UUID, got.Metadata, got.Payload, msg.UUID, msg.Metadata, msg.Payload)
		}
	})
}

func TestEventsOfOtherProducersAreMessages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		headers map[string]string
	}{
		{"without headers", nil},
		{"with headers of its own", map[string]string{"tenant": "a"}},
		{"with metadata and no UUID", map[string]string{metadataHeader: `{"a":"b"}`}},
		{"with metadata that is no JSON", map[string]string{uuidHeader: "1", metadataHeader: `{`}},
		{"with a UUID that is no JSON", map[string]string{uuidHeader: `"1`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := toMessage(postroom.Event{ID: "e-1", Type: "a", Data: []byte("x"), Headers: tt.headers})
			if got.UUID != "e-1" || string(got.Payload) != "x" || !maps.Equal(got.Metadata, message.Metadata(tt.headers)) {
				t.Errorf("message %q %q %q", got.UUID, got.Metadata, got.Payload)
			}
		})
	}
}

// toMessage restores a message that Watermill's publisher for JetStream sent.
func TestMessagesOfThePublisherForJetStream(t *testing.T) {
	t.Parallel()
	ev := postroom.Event{ID: "1", Type: "a", ContentType: "text/plain", Headers: map[string]string{"_watermill_message_uuid": "u 1", "tenant": "a"}}
	got := toMessage(ev)
	if want := (message.Metadata{"tenant": "a", "content-type": "text/plain"}); got.UUID != "u 1" || !maps.Equal(got.Metadata, want) {
		t.Errorf("message %q %q, want u 1 and %q", got.UUID, got.Metadata, want)
	}
	ev.TraceParent, ev.TraceState = "00-a-b-01", "a=b"
	if got, want := toMessage(ev).Metadata, (message.Metadata{"tenant": "a", "content-type": "text/plain", "traceparent": "00-a-b-01", "tracestate": "a=b"}); !maps.Equal(got, want) {
		t.Errorf("metadata %q, want %q", got, want)
	}
	ev.ContentType, ev.TraceParent, ev.TraceState = "", "", ""
	if got, want := toMessage(ev).Metadata, (message.Metadata{"tenant": "a"}); !maps.Equal(got, want) {
		t.Errorf("metadata %q, want %q", got, want)
	}
	if len(ev.Headers) != 2 {
		t.Errorf("the event's headers are %q", ev.Headers)
	}
}

// A handler passes on the message that a relay gave it, with metadata of another event.
func TestAMessageThatIsPassedOnHasItsOwnKey(t *testing.T) {
	t.Parallel()
	msg := toMessage(postroom.Event{ID: "2", Headers: map[string]string{uuidHeader: "u", metadataHeader: `{"postroom-id":"1","postroom-key":"o-1"}`}})
	identify(msg, postroom.Event{ID: "2", Source: "/shop", Type: "a.b"})
	if want := (message.Metadata{"postroom-id": "2", "postroom-source": "/shop", "postroom-type": "a.b"}); !maps.Equal(msg.Metadata, want) {
		t.Errorf("metadata %q, want %q", msg.Metadata, want)
	}
	identify(msg, postroom.Event{ID: "2", Source: "/shop", Type: "a.b", Key: "o-2"})
	if msg.Metadata[MetadataKey] != "o-2" {
		t.Errorf("metadata %q, want the key o-2", msg.Metadata)
	}
}

// If a handler changes the payload that it got, the event does not change, so another attempt gets
// the original payload.
func TestAMessageHasItsOwnPayload(t *testing.T) {
	t.Parallel()
	ev := postroom.Event{ID: "e-1", Type: "a", Data: []byte("x")}
	toMessage(ev).Payload[0] = 'y'
	if string(ev.Data) != "x" {
		t.Errorf("the event's data is %q", ev.Data)
	}
}

func TestHandlerNames(t *testing.T) {
	t.Parallel()
	name := func(group, topic string) string {
		return NewSubscriber(nil, nil, SubscriberConfig{Group: group}).handlerName(topic)
	}
	if got := name("billing", "order.placed"); got != "billing.order.placed" {
		t.Errorf("name %q", got)
	}
	long := strings.Repeat("a", 200)
	first, second := name("billing", long+"1"), name("billing", long+"2")
	if len(first) != 128 || first == second || !strings.HasPrefix(first, "billing.aaa") {
		t.Errorf("names %q and %q", first, second)
	}
	if exact := name("g", strings.Repeat("a", 126)); len(exact) != 128 || strings.Count(exact, ".") != 1 {
		t.Errorf("name %q", exact)
	}
}
