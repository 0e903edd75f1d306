package wire_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/wire"
)

// headers makes the headers of a message. Each header has one value.
func headers(pairs ...string) map[string][]string {
	h := make(map[string][]string, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		h[pairs[i]] = []string{pairs[i+1]}
	}
	return h
}

func TestEncodeWritesTheDocumentedHeaders(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 700_000_089, time.FixedZone("", 3600))
	tests := []struct {
		name string
		ev   postroom.Event
		want map[string][]string
	}{
		{"of an event with everything", postroom.Event{
			ID: "e-2", Source: "/shop", Type: "order.placed", Subject: "orders.eu", Key: "o-1", Time: at,
			ContentType: "text/plain; charset=utf-8", Data: []byte("hello"), CorrelationID: "c-1", CausationID: "e-1",
			TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", TraceState: "vendor=a b",
			LoggedAt: at.Add(time.Second), Headers: map[string]string{"X-Tenant": "a", "x_empty": ""},
		}, headers(
			"Nats-Msg-Id", "/shop#e-2",
			"ce-specversion", "1.0",
			"ce-id", "e-2",
			"ce-source", "/shop",
			"ce-type", "order.placed",
			"ce-time", "2026-02-03T03:05:06.700000089Z",
			"ce-partitionkey", "o-1",
			"content-type", "text/plain; charset=utf-8",
			"postroom-logged-at", "2026-02-03T03:05:07.700000089Z",
			"postroom-correlation-id", "c-1",
			"postroom-causation-id", "e-1",
			"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			"tracestate", "vendor=a b",
			"X-Tenant", "a",
			"x_empty", "",
		)},
		{"of an event with what it must have", postroom.Event{
			ID: "e-1", Source: "/shop", Type: "order.placed", Time: at, ContentType: "application/json", LoggedAt: at,
		}, headers(
			"Nats-Msg-Id", "/shop#e-1",
			"ce-specversion", "1.0",
			"ce-id", "e-1",
			"ce-source", "/shop",
			"ce-type", "order.placed",
			"ce-time", "2026-02-03T03:05:06.700000089Z",
			"content-type", "application/json",
			"postroom-logged-at", "2026-02-03T03:05:06.700000089Z",
		)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := wire.Encode(tt.ev)
			if reflect.DeepEqual(got, tt.want) {
				return
			}
			for _, name := range slices.Sorted(maps.Keys(tt.want)) {
				if !slices.Equal(got[name], tt.want[name]) {
					t.Errorf("%s: %q, want %q", name, got[name], tt.want[name])
				}
			}
			for _, name := range slices.Sorted(maps.Keys(got)) {
				if _, ok := tt.want[name]; !ok {
					t.Errorf("%s: %q, which is no header of this event", name, got[name])
				}
			}
		})
	}
}

func TestEncodeLeavesTheEventAlone(t *testing.T) {
	ev := postroom.Event{ID: "e-1", Headers: map[string]string{"x-tenant": "a"}}
	wire.Encode(ev)["x-tenant"][0] = "b"
	if want := map[string]string{"x-tenant": "a"}; !maps.Equal(ev.Headers, want) {
		t.Errorf("Headers = %v, want %v", ev.Headers, want)
	}
}

func TestPercentEncoding(t *testing.T) {
	tests := []struct {
		name          string
		text, encoded string
	}{
		{"plain text stays as it is", "o-1/a.b~c", "o-1/a.b~c"},
		{"signs that are no quote or percent too", "!#$&'()*+,-./:;<=>?@[\\]^_`{|}~", "!#$&'()*+,-./:;<=>?@[\\]^_`{|}~"},
		{"a space", "a b", "a%20b"},
		{"a quote", `a"b`, "a%22b"},
		{"a percent sign", "50%", "50%25"},
		{"what looks encoded", "%20", "%2520"},
		{"an umlaut", "Größe", "Gr%C3%B6%C3%9Fe"},
		{"the euro sign of the specification", "Euro € 😀", "Euro%20%E2%82%AC%20%F0%9F%98%80"},
		{"a space of another kind", "a\u00a0b", "a%C2%A0b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev := postroom.Event{ID: tt.text, Source: tt.text, Key: tt.text, CorrelationID: tt.text, CausationID: tt.text}
			h := wire.Encode(ev)
			for _, name := range []string{"ce-id", "ce-source", "ce-partitionkey", "postroom-correlation-id", "postroom-causation-id"} {
				if got := h[name][0]; got != tt.encoded {
					t.Errorf("%s = %q, want %q", name, got, tt.encoded)
				}
			}
			got := mustDecode(t, "order.placed", h, nil)
			for field, s := range map[string]string{
				"ID": got.ID, "Source": got.Source, "Key": got.Key, "CorrelationID": got.CorrelationID, "CausationID": got.CausationID,
			} {
				if s != tt.text {
					t.Errorf("%s = %q, want %q", field, s, tt.text)
				}
			}
		})
	}
}

func TestMessageID(t *testing.T) {
	source := "/shop"
	fits := strings.Repeat("i", 128-len(source)-1)
	hashed := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "sha256##" + hex.EncodeToString(sum[:])
	}

	tests := []struct {
		name string
		id   string
		want string
	}{
		{"source and id", "e-1", "/shop#e-1"},
		{"as they are, not percent-encoded", "Größe", "/shop#Größe"},
		{"of 128 bytes is sent as it is", fits, "/shop#" + fits},
		{"of 129 bytes is hashed", fits + "i", hashed("/shop#" + fits + "i")},
		{"counts bytes, not letters", fits[1:] + "ü", hashed("/shop#" + fits[1:] + "ü")},
		{"of the longest id is hashed", strings.Repeat("i", postroom.MaxID), hashed("/shop#" + strings.Repeat("i", postroom.MaxID))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev := postroom.Event{Source: source, ID: tt.id, Type: "order.placed", Data: []byte("a")}
			if got := wire.MessageID(ev, wire.Copy{}); got != tt.want {
				t.Errorf("MessageID = %q, want %q", got, tt.want)
			}
			if got := wire.Encode(ev)["Nats-Msg-Id"]; !slices.Equal(got, []string{tt.want}) {
				t.Errorf("Nats-Msg-Id = %q, want %q", got, tt.want)
			}
			ev.Type, ev.Data, ev.Key, ev.LoggedAt = "order.paid", nil, "o-1", time.Now()
			if got := wire.MessageID(ev, wire.Copy{}); got != tt.want {
				t.Errorf("MessageID = %q after the rest of the event changed, want %q", got, tt.want)
			}
		})
	}
}

// The broker drops a message if it knows the message id. So if two events had the same message id,
// one of them would be lost.
func TestMessageIDOfAReplay(t *testing.T) {
	ev := postroom.Event{Source: "/shop", ID: "7"}
	if got, want := wire.MessageID(ev, wire.Copy{Replays: 2, RepublishID: 3}), "/shop#7#r2#g3"; got != want {
		t.Errorf("MessageID = %q, want %q", got, want)
	}
	if got, want := wire.MessageID(ev, wire.Copy{Replays: 2}), "/shop#7#r2"; got != want {
		t.Errorf("MessageID = %q, want %q", got, want)
	}
	if got, want := wire.MessageID(ev, wire.Copy{Lost: 4}), "/shop#7#l4"; got != want {
		t.Errorf("MessageID = %q, want %q", got, want)
	}
	ev.ID = strings.Repeat("7", 200)
	first, second := wire.MessageID(ev, wire.Copy{Replays: 1}), wire.MessageID(ev, wire.Copy{Replays: 2})
	if first == second || first == wire.MessageID(ev, wire.Copy{}) || len(first) > 128 {
		t.Errorf("message ids of an event with a long id: %q, then %q", first, second)
	}
}

func TestMessageIDsOfDistinctEventsAreDistinct(t *testing.T) {
	t.Run("of an event that is named like the hash of another", func(t *testing.T) {
		long := postroom.Event{Source: "/shop", ID: strings.Repeat("i", postroom.MaxID)}
		sum := sha256.Sum256([]byte(long.Source + "#" + long.ID))
		forged := postroom.Event{Source: "sha256", ID: hex.EncodeToString(sum[:])}
		if a, b := wire.MessageID(long, wire.Copy{}), wire.MessageID(forged, wire.Copy{}); a == b {
			t.Errorf("both have %q", a)
		}
	})

	t.Run("of any two", rapid.MakeCheck(func(t *rapid.T) {
		// There are few letters, and the lengths are near the limit, so that ids are often almost
		// equal.
		text := rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"", "a", strings.Repeat("a", 62), strings.Repeat("a", 120)}).Draw(t, "head") +
				rapid.StringMatching(`[ab/]{1,4}`).Draw(t, "tail")
		})
		a := postroom.Event{Source: text.Draw(t, "source a"), ID: text.Draw(t, "id a")}
		b := postroom.Event{Source: text.Draw(t, "source b"), ID: text.Draw(t, "id b")}
		same := a.Source == b.Source && a.ID == b.ID
		if got := wire.MessageID(a, wire.Copy{}) == wire.MessageID(b, wire.Copy{}); got != same {
			t.Fatalf("one message id: %t, one event: %t\n%q\n%q", got, same, wire.MessageID(a, wire.Copy{}), wire.MessageID(b, wire.Copy{}))
		}
		if got := len(wire.MessageID(a, wire.Copy{})); got > 128 {
			t.Fatalf("a message id of %d bytes, want at most 128", got)
		}
	}))
}

func TestAnEventSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ev := validEvent.Draw(t, "event")
		if err := ev.Validate(); err != nil {
			t.Fatalf("the generator made an event that is not valid: %v", err)
		}

		h := wire.Encode(ev)
		for name, values := range h {
			if len(values) != 1 || strings.ContainsAny(name+values[0], "\r\n\x00") || strings.TrimSpace(values[0]) != values[0] {
				t.Fatalf("%q: %q would not travel", name, values)
			}
		}
		got, err := wire.Decode(ev.Subject, h, ev.Data)
		if err != nil {
			t.Fatalf("Decode = %v, want nil", err)
		}
		if want := asRead(ev); !reflect.DeepEqual(got, want) {
			t.Fatalf("decoded %+v\nwant    %+v", got, want)
		}
	})
}

// asRead returns an event as a reader gets it: times are in UTC, and an empty map of headers is
// nil.
func asRead(ev postroom.Event) postroom.Event {
	ev.Time, ev.LoggedAt = ev.Time.UTC(), ev.LoggedAt.UTC()
	if len(ev.Headers) == 0 {
		ev.Headers = nil
	}
	return ev
}

// validEvent makes events like those that the outbox returns: valid, with all fields that the
// outbox sets.
var validEvent = rapid.Custom(func(t *rapid.T) postroom.Event {
	optional := func(name string, of *rapid.Generator[string]) string {
		return rapid.OneOf(rapid.Just(""), of).Draw(t, name)
	}
	instant := func(name string) time.Time {
		seconds := rapid.Int64Range(time.Time{}.Unix()+86_400, time.Date(9999, 12, 30, 0, 0, 0, 0, time.UTC).Unix())
		zone := rapid.IntRange(-14*3600, 14*3600)
		return time.Unix(seconds.Draw(t, name), rapid.Int64Range(0, 999_999_999).Draw(t, name+" nanoseconds")).
			In(time.FixedZone("", zone.Draw(t, name+" zone")))
	}
	return postroom.Event{
		ID:            identifier.Draw(t, "id"),
		Source:        identifier.Draw(t, "source"),
		Type:          subject.Draw(t, "type"),
		Subject:       subject.Draw(t, "subject"),
		Key:           optional("key", label),
		Time:          instant("time"),
		ContentType:   rapid.OneOf(rapid.Just("application/json"), label).Draw(t, "content type"),
		Data:          rapid.SliceOf(rapid.Byte()).Draw(t, "data"),
		Headers:       rapid.MapOfN(headerName, label, 0, 8).Filter(differInMoreThanCase).Draw(t, "headers"),
		CorrelationID: optional("correlation", label),
		CausationID:   optional("causation", label),
		TraceParent:   optional("traceparent", rapid.StringMatching(`00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]`)),
		TraceState:    optional("tracestate", rapid.StringMatching(`[a-z]{1,8}=[!-+\--<>-~]{1,8}(,[a-z]{1,8}=[!-+\--<>-~]{1,8})?`)),
		LoggedAt:      instant("logged at"),
	}
})

var (
	// Characters that are special in a header are drawn more often.
	letter     = rapid.RuneFrom([]rune(`%%%""  /ä😀`), unicode.L, unicode.N, unicode.P, unicode.S)
	label      = rapid.StringOfN(letter, 1, -1, 255).Filter(func(s string) bool { return strings.TrimSpace(s) == s })
	identifier = rapid.StringOfN(letter.Filter(func(r rune) bool { return r != '#' && r != ' ' }), 1, -1, 255)
	subject    = rapid.StringMatching(`[A-Za-z0-9_-]{1,12}(\.[A-Za-z0-9_-]{1,12}){0,4}`)
	headerName = rapid.OneOf(
		rapid.StringMatching(`[A-Za-z0-9_][A-Za-z0-9_]{0,20}`),
		rapid.StringMatching(`(x-ce-id|ce_id|cex-|nats|x-nats-msg-id|postroom_|traceparent-|tracestat|content-typ)[0-9]`),
	)
)

func differInMoreThanCase(m map[string]string) bool {
	seen := make(map[string]bool, len(m))
	for name := range m {
		lower := strings.ToLower(name)
		if seen[lower] || slices.Contains([]string{"traceparent", "tracestate", "status", "description"}, lower) {
			return false
		}
		seen[lower] = true
	}
	return true
}

func mustDecode(t *testing.T, subject string, header map[string][]string, data []byte) postroom.Event {
	t.Helper()
	ev, err := wire.Decode(subject, header, data)
	if err != nil {
		t.Fatalf("Decode of %v = %v, want nil", fmt.Sprint(header), err)
	}
	return ev
}

// An encoded event must have nothing of the previous event.
func TestEncoderForgetsThePreviousEvent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(validEvent, 2, 5).Draw(t, "events")
		encoder := wire.NewEncoder()
		for _, ev := range events {
			c := wire.Copy{RepublishID: rapid.Int64Range(0, 2).Draw(t, "republish")}
			got, want := encoder.Encode(&ev, c), wire.NewEncoder().Encode(&ev, c)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("encoded as\n%v, without the others as\n%v", got, want)
			}
			if _, marked := got[wire.Republish]; marked != (c.RepublishID > 0) {
				t.Fatalf("encoded for republish %d as\n%v", c.RepublishID, got)
			}
		}
	})
}

func BenchmarkEncoder(b *testing.B) {
	at := time.Now()
	ev := postroom.Event{
		ID: "0196f5a0-0000-7000-8000-000000000000", Source: "/shop", Type: "order.placed", Key: "order-1",
		ContentType: "application/json", Time: at, LoggedAt: at,
	}
	encoder := wire.NewEncoder()
	b.ReportAllocs()
	for b.Loop() {
		encoder.Encode(&ev, wire.Copy{})
	}
}

func BenchmarkDecode(b *testing.B) {
	header := wire.Encode(postroom.Event{
		ID: "019a0000-0000-7000-8000-000000000000", Source: "/shop", Type: "order.placed", Subject: "order.placed", Key: "o-1",
		Time: time.Now(), LoggedAt: time.Now(), ContentType: "application/json",
	})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.Decode("order.placed", header, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// Readers skip messages with the subject of a lease. So no event may have such a subject.
func TestNoEventHasTheSubjectOfALease(t *testing.T) {
	for _, subject := range []string{"order.placed", "postroom.lease", "postroom.leases.a", "postroom.lease.a", "postroom.lease.a.b"} {
		ev := postroom.Event{ID: "e-1", Source: "/shop", Type: "order.placed", Subject: subject}
		if refused := ev.Validate() != nil; refused != wire.IsLease(subject) {
			t.Errorf("subject %s: refused by Validate: %t, skipped by readers: %t", subject, refused, !refused)
		}
	}
}
