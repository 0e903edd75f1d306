package wire_test

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/wire"
)

func TestDecodeReadsHeadersInAnyCase(t *testing.T) {
	want := postroom.Event{
		ID: "e-2", Source: "/shop", Type: "order.placed", Subject: "orders.eu", Key: "o-1",
		Time: time.Date(2026, 2, 3, 4, 5, 6, 7, time.UTC), LoggedAt: time.Date(2026, 2, 3, 4, 5, 6, 8, time.UTC),
		ContentType: "text/plain", Data: []byte("hello"), CorrelationID: "c-1", CausationID: "e-1",
		TraceParent: "00-a-b-01", TraceState: "v=1",
	}
	tests := []struct {
		name string
		as   func(string) string
	}{
		{"as they are written", func(s string) string { return s }},
		{"in lower case", strings.ToLower},
		{"in upper case", strings.ToUpper},
		{"as HTTP writes them", func(s string) string {
			words := strings.Split(s, "-")
			for i, w := range words {
				words[i] = strings.ToUpper(w[:1]) + strings.ToLower(w[1:])
			}
			return strings.Join(words, "-")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := make(map[string][]string)
			for name, values := range wire.Encode(want) {
				h[tt.as(name)] = values
			}
			if got := mustDecode(t, "orders.eu", h, []byte("hello")); !reflect.DeepEqual(got, want) {
				t.Errorf("decoded %+v\nwant    %+v", got, want)
			}
		})
	}
}

func TestDecodeOfTwoValuesOfOneHeader(t *testing.T) {
	for _, name := range []string{
		"ce-id", "ce-source", "ce-type", "ce-time", "ce-partitionkey", "content-type",
		"Nats-Msg-Id", "postroom-logged-at", "postroom-correlation-id", "postroom-causation-id", "traceparent", "tracestate",
	} {
		a, b := "a", "b"
		if strings.HasSuffix(name, "time") || strings.HasSuffix(name, "-at") {
			a, b = "2026-02-03T04:05:06Z", "2026-02-03T04:05:07Z"
		}
		tests := []struct {
			name   string
			header map[string][]string
			want   error
		}{
			{"different, under one name", map[string][]string{name: {a, b}}, wire.ErrUndecodable},
			{"different, under two names", map[string][]string{strings.ToLower(name): {a}, strings.ToUpper(name): {b}}, wire.ErrUndecodable},
			{"one of them empty", map[string][]string{name: {a, ""}}, wire.ErrUndecodable},
			{"different in case only", map[string][]string{name: {"a", "A"}}, wire.ErrUndecodable},
			{"equal, under one name", map[string][]string{name: {a, a}}, nil},
			{"equal, under two names", map[string][]string{strings.ToLower(name): {a}, strings.ToUpper(name): {a}}, nil},
		}
		for _, tt := range tests {
			t.Run(name+" "+tt.name, func(t *testing.T) {
				tt.header["a-writers-own"] = []string{"a", "b"} // this is no fault
				_, err := wire.Decode("order.placed", tt.header, nil)
				if !errors.Is(err, tt.want) {
					t.Errorf("Decode = %v, want %v", err, tt.want)
				}
				if err != nil && !strings.HasSuffix(err.Error(), "two values of "+strings.ToLower(name)) {
					t.Errorf("Decode = %v, which does not name %s", err, name)
				}
			})
		}
	}

	for _, name := range []string{"ce-specversion", "ce-unheardof", "nats-stream", "nats-sequence", "postroom-unheardof"} {
		t.Run(name+" is not used", func(t *testing.T) { // a stream that republishes messages adds its own nats-stream to that of the first one
			got := mustDecode(t, "order.placed", map[string][]string{name: {"a", "b"}, "ce-id": {"e-1"}}, nil)
			if got.ID != "e-1" || len(got.Headers) > 0 {
				t.Errorf("decoded %+v", got)
			}
		})
	}

	t.Run("of the writer's own, the first counts", func(t *testing.T) {
		got := mustDecode(t, "order.placed", map[string][]string{"x-tenant": {"a", "b"}}, nil)
		if want := map[string]string{"x-tenant": "a"}; !maps.Equal(got.Headers, want) {
			t.Errorf("Headers = %v, want %v", got.Headers, want)
		}
	})
}

func TestDecodeBinaryMode(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	tests := []struct {
		name   string
		header map[string][]string
		want   postroom.Event // without Subject and Data
	}{
		{"no headers at all", nil, postroom.Event{Type: "orders.eu"}},
		{"without an id, the message id is it", headers("Nats-Msg-Id", "m-1"), postroom.Event{ID: "m-1", Type: "orders.eu"}},
		{"with an id, the message id is not", headers("ce-id", "e-1", "Nats-Msg-Id", "m-1"), postroom.Event{ID: "e-1", Type: "orders.eu"}},
		{"with an empty id, the message id is it", headers("ce-id", "", "Nats-Msg-Id", "m-1"), postroom.Event{ID: "m-1", Type: "orders.eu"}},
		{"a message id is not percent-encoded", headers("Nats-Msg-Id", "a%20b"), postroom.Event{ID: "a%20b", Type: "orders.eu"}},
		{"a type that is not the subject", headers("ce-type", "order.placed"), postroom.Event{Type: "order.placed"}},
		{"a type in the words of another system", headers("ce-type", "com.example/order%20placed"), postroom.Event{Type: "com.example/order placed"}},
		{"a time in another zone", headers("ce-time", "2026-02-03T05:05:06+01:00"), postroom.Event{Type: "orders.eu", Time: at}},
		{"a percent-encoded time", headers("ce-time", "2026-02-03T04%3A05%3A06Z"), postroom.Event{Type: "orders.eu", Time: at}},
		{"an empty time", headers("ce-time", "", "postroom-logged-at", ""), postroom.Event{Type: "orders.eu"}},
		{"a percent sign that begins no escape", headers("ce-partitionkey", "50% off"), postroom.Event{Type: "orders.eu", Key: "50% off"}},
		{"one at the end", headers("ce-partitionkey", "50%"), postroom.Event{Type: "orders.eu", Key: "50%"}},
		{"one before the last", headers("ce-partitionkey", "50%2"), postroom.Event{Type: "orders.eu", Key: "50%2"}},
		{"one before half an escape", headers("ce-partitionkey", "%2x%x2%%20"), postroom.Event{Type: "orders.eu", Key: "%2x%x2% "}},
		{"escapes in lower case", headers("ce-partitionkey", "%c3%b6"), postroom.Event{Type: "orders.eu", Key: "ö"}},
		{"letters that were not encoded", headers("ce-partitionkey", "Größe 😀"), postroom.Event{Type: "orders.eu", Key: "Größe 😀"}},
		{"an escape decodes once", headers("ce-partitionkey", "%2520"), postroom.Event{Type: "orders.eu", Key: "%20"}},
		{"a percent sign in a content type stays", headers("content-type", "a/b; c=%20"), postroom.Event{Type: "orders.eu", ContentType: "a/b; c=%20"}},
		{"a header without values", map[string][]string{"ce-id": {}, "x-tenant": {}}, postroom.Event{Type: "orders.eu"}},
		{"headers of the writer's own, as they are", headers("X-Tenant", "a%20b", "x.odd name", ""), postroom.Event{
			Type: "orders.eu", Headers: map[string]string{"X-Tenant": "a%20b", "x.odd name": ""},
		}},
		{"headers of the broker and of CloudEvents are left out", headers("Nats-Expected-Stream", "S", "ce-dataschema", "a", "Postroom-New", "b"), postroom.Event{Type: "orders.eu"}},
		{"a content type that only looks like a whole event", headers("content-type", "application/json; x=application/cloudevents+json"), postroom.Event{
			Type: "orders.eu", ContentType: "application/json; x=application/cloudevents+json",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := mustDecode(t, "orders.eu", tt.header, []byte("\x00not JSON"))
			if !got.Time.Equal(tt.want.Time) {
				t.Errorf("Time = %s, want %s", got.Time, tt.want.Time)
			}
			tt.want.Subject, tt.want.Data, tt.want.Time = "orders.eu", []byte("\x00not JSON"), got.Time
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("decoded %+v\nwant    %+v", got, tt.want)
			}
		})
	}
}

func TestDecodeStructuredMode(t *testing.T) {
	const whole = "application/cloudevents+json"
	at := time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC)
	tests := []struct {
		name   string
		header map[string][]string
		body   string
		want   postroom.Event // without Subject
	}{
		{
			"everything", headers("content-type", whole+"; charset=utf-8", "postroom-correlation-id", "c%201", "postroom-causation-id", "e-0",
				"traceparent", "00-a-b-01", "tracestate", "v=1", "postroom-logged-at", "2026-02-03T04:05:06.000000789Z", "x-tenant", "a"),
			`{"specversion":"1.0","id":"e-1","source":"/shop","type":"order.placed","time":"2026-02-03T04:05:06.000000789Z",
			  "partitionkey":"o-1","datacontenttype":"application/json","dataschema":"x","data":{"a": [1, 2]}}`,
			postroom.Event{
				ID: "e-1", Source: "/shop", Type: "order.placed", Time: at, LoggedAt: at, Key: "o-1", ContentType: "application/json",
				Data: []byte(`{"a": [1, 2]}`), CorrelationID: "c 1", CausationID: "e-0", TraceParent: "00-a-b-01", TraceState: "v=1",
				Headers: map[string]string{"x-tenant": "a"},
			},
		},
		{"no data", headers("content-type", whole), `{"id":"e-1","source":"s","type":"t"}`, postroom.Event{ID: "e-1", Source: "s", Type: "t"}},
		{"a content type in another case", headers("Content-Type", "Application/CloudEvents+JSON"), `{"id":"e-1","source":"s","type":"t"}`, postroom.Event{ID: "e-1", Source: "s", Type: "t"}},
		{"without a content type, a string is JSON", headers("content-type", whole), `{"id":"e-1","source":"s","type":"t","data":"a\"b"}`, postroom.Event{ID: "e-1", Source: "s", Type: "t", Data: []byte(`"a\"b"`)}},
		{"under a JSON content type, a string is JSON", headers("content-type", whole), `{"id":"e-1","source":"s","type":"t","datacontenttype":"application/json","data":"a"}`, postroom.Event{ID: "e-1", Source: "s", Type: "t", ContentType: "application/json", Data: []byte(`"a"`)}},
		{"and that in any case", headers("content-type", whole), `{"id":"e-1","source":"s","type":"t","datacontenttype":"Application/JSON","data":"a"}`, postroom.Event{ID: "e-1", Source: "s", Type: "t", ContentType: "Application/JSON", Data: []byte(`"a"`)}},
		{"under a suffix of JSON, a string is JSON", headers("content-type", whole), `{"id":"e-1","source":"s","type":"t","datacontenttype":"application/order+json","data":"a"}`, postroom.Event{ID: "e-1", Source: "s", Type: "t", ContentType: "application/order+json", Data: []byte(`"a"`)}},
		{"under another content type, a string is the text", headers("content-type", whole), `{"id":"e-1","source":"s","type":"t","datacontenttype":"text/plain","data":"a\n\"b\" ö"}`, postroom.Event{ID: "e-1", Source: "s", Type: "t", ContentType: "text/plain", Data: []byte("a\n\"b\" ö")}},
		{"under another content type, an object stays JSON", headers("content-type", whole), `{"id":"e-1","source":"s","type":"t","datacontenttype":"text/plain","data":{"a":1}}`, postroom.Event{ID: "e-1", Source: "s", Type: "t", ContentType: "text/plain", Data: []byte(`{"a":1}`)}},
		{"bytes", headers("content-type", whole), `{"id":"e-1","source":"s","type":"t","datacontenttype":"image/png","data_base64":"AP/+"}`, postroom.Event{ID: "e-1", Source: "s", Type: "t", ContentType: "image/png", Data: []byte{0, 0xff, 0xfe}}},
		{"bytes that are JSON", headers("content-type", whole), `{"id":"e-1","source":"s","type":"t","datacontenttype":"application/json","data_base64":"e30="}`, postroom.Event{ID: "e-1", Source: "s", Type: "t", ContentType: "application/json", Data: []byte("{}")}},
		{"no bytes", headers("content-type", whole), `{"id":"e-1","source":"s","type":"t","data_base64":""}`, postroom.Event{ID: "e-1", Source: "s", Type: "t", Data: []byte{}}},
		{"a percent sign is a percent sign", headers("content-type", whole), `{"id":"%20","source":"%41","type":"t","partitionkey":"50%25"}`, postroom.Event{ID: "%20", Source: "%41", Type: "t", Key: "50%25"}},
		{"the document counts, not the headers", headers("content-type", whole, "ce-id", "e-9", "ce-type", "other", "Nats-Msg-Id", "m-1"), `{"id":"e-1","source":"s","type":"t"}`, postroom.Event{ID: "e-1", Source: "s", Type: "t"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Subject = "orders.eu"
			got := mustDecode(t, "orders.eu", tt.header, []byte(tt.body))
			if len(got.Data) == 0 && len(tt.want.Data) == 0 {
				got.Data, tt.want.Data = nil, nil
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("decoded %+v\nwant    %+v", got, tt.want)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	const whole = "application/cloudevents+json"
	tests := []struct {
		name   string
		header map[string][]string
		body   string
	}{
		{"a ce-time that is no time", headers("ce-time", "secret"), ""},
		{"a ce-time without a zone", headers("ce-time", "2026-02-03T04:05:06"), ""},
		{"a postroom-logged-at that is no time", headers("postroom-logged-at", "secret"), ""},
		{"an id with a NUL", headers("ce-id", "secret%00"), ""},
		{"a source that is not UTF-8", headers("ce-source", "secret%ff"), ""},
		{"a type with a line break", headers("ce-type", "secret%0Ab"), ""},
		{"a key with an escape character", headers("ce-partitionkey", "secret%1b"), ""},
		{"a correlation id with a NUL", headers("postroom-correlation-id", "secret%00"), ""},
		{"a document whose id has a NUL", headers("content-type", whole), `{"id":"secret\u0000","source":"s","type":"t"}`},
		{"a document that is not UTF-8", headers("content-type", whole), "{\"id\":\"secret\xff\",\"source\":\"s\",\"type\":\"t\"}"},
		{"a document whose data is not UTF-8", headers("content-type", whole), "{\"id\":\"e-1\",\"source\":\"s\",\"type\":\"t\",\"data\":\"secret\xff\"}"},
		{"a document whose id has half a character", headers("content-type", whole), `{"id":"secret\ud800","source":"s","type":"t"}`},
		{"a document whose source has half a character", headers("content-type", whole), `{"id":"e-1","source":"secret\udfff","type":"t"}`},
		{"a document that is no JSON", headers("content-type", whole), "secret"},
		{"no document", headers("content-type", whole), ""},
		{"a document that ends early", headers("content-type", whole), `{"id":"secret"`},
		{"a document that is a list", headers("content-type", whole), `[{"id":"secret","source":"s","type":"t"}]`},
		{"null", headers("content-type", whole), `null`},
		{"a document without an id", headers("content-type", whole), `{"source":"secret","type":"t"}`},
		{"a document with an empty id", headers("content-type", whole), `{"id":"","source":"secret","type":"t"}`},
		{"a document without an id, whatever the message id", headers("content-type", whole, "Nats-Msg-Id", "m-1"), `{"source":"secret","type":"t"}`},
		{"a document with an id that is a number", headers("content-type", whole), `{"id":1,"source":"secret","type":"t"}`},
		{"a document without a source", headers("content-type", whole), `{"id":"secret","type":"t"}`},
		{"a document without a type", headers("content-type", whole), `{"id":"secret","source":"s"}`},
		{"a document whose time is none", headers("content-type", whole), `{"id":"e-1","source":"s","type":"t","time":"secret"}`},
		{"several CloudEvents", headers("content-type", "application/cloudevents-batch+json"), `[{"id":"secret","source":"s","type":"t"}]`},
		{"several CloudEvents, in another case", headers("content-type", "Application/CloudEvents-Batch+JSON; charset=utf-8", "ce-id", "e-1"), `[{"id":"secret","source":"s","type":"t"}]`},
		{"a CloudEvent of another format", headers("content-type", "application/cloudevents+avro"), `secret`},
		{"headers that could not be read", headers(wire.Unreadable, "true"), `secret`},
		{"a time of second 61", headers("ce-time", "2026-02-03T23:59:61Z"), ""},
		{"a time that is shorter in upper case", headers("ce-time", strings.Repeat("%C5%BF", 9)), ""},
		{"a logging time that is shorter in upper case", headers("postroom-logged-at", strings.Repeat("\u017f", 9)), ""},
		{"bytes that are not base64", headers("content-type", whole), `{"id":"e-1","source":"s","type":"t","data_base64":"secret!"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev, err := wire.Decode("orders.eu", tt.header, []byte(tt.body))
			if !errors.Is(err, wire.ErrUndecodable) {
				t.Fatalf("Decode = %+v, %v, want ErrUndecodable", ev, err)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error holds the value: %v", err)
			}
		})
	}
}

// Every form of a time that RFC 3339 allows is read.
func TestDecodeReadsEveryTimeOfRFC3339(t *testing.T) {
	for text, want := range map[string]string{
		"2026-02-03t04:05:06z":               "2026-02-03T04:05:06Z",
		"2026-02-03t04:05:06.789+01:00":      "2026-02-03T03:05:06.789Z",
		"2016-12-31T23:59:60Z":               "2016-12-31T23:59:59Z",
		"2017-01-01t08:59:60.5+09:00":        "2016-12-31T23:59:59.5Z",
		"2026-02-03T04:05:06.1234567890123Z": "2026-02-03T04:05:06.123456789Z",
	} {
		for name, header := range map[string]map[string][]string{"ce-time": headers("ce-time", text), "postroom-logged-at": headers("postroom-logged-at", text)} {
			got := mustDecode(t, "orders.eu", header, nil)
			at := got.Time
			if name != "ce-time" {
				at = got.LoggedAt
			}
			if at.UTC().Format(time.RFC3339Nano) != want {
				t.Errorf("%s %s is read as %s, want %s", name, text, at, want)
			}
		}
	}
}

func TestDecodeLeavesTheMessageAlone(t *testing.T) {
	h := headers("CE-ID", "a%20b", "X-Tenant", "a")
	ev := mustDecode(t, "orders.eu", h, nil)
	ev.Headers["X-Tenant"] = "b"
	if want := headers("CE-ID", "a%20b", "X-Tenant", "a"); !reflect.DeepEqual(h, want) {
		t.Errorf("headers = %v, want %v", h, want)
	}
}

// FuzzDecode checks that no message makes Decode panic, that Decode returns no error but
// ErrUndecodable, and that a decoded event that is valid is the same after it is encoded and
// decoded again.
func FuzzDecode(f *testing.F) {
	f.Add("order.placed", "ce-id: e-1\nce-source: /shop\nce-type: order.placed\nce-time: 2026-02-03T04:05:06.7Z\ncontent-type: application/json\nx-tenant: a", []byte("{}"))
	f.Add("order.placed", "content-type: application/cloudevents+json", []byte(`{"id":"e-1","source":"s","type":"t","datacontenttype":"text/plain","data":"a"}`))
	f.Add("order.placed", "content-type: application/cloudevents+json", []byte(`{"id":"e-1","source":"s","type":"t","data_base64":"AA=="}`))
	f.Add("order.placed", "content-type: application/cloudevents+json", []byte(`{"id":"e-1","source":"s","type":"t","datacontenttype":"application/cloudevents+json","data":{}}`))
	f.Add("", "ce-id: %\nCE-ID: %\nce-partitionkey: %2\nce-source: %zz%C3%B6\nNats-Msg-Id: a#b\npostroom-logged-at: 0000-01-01T00:00:00-23:59", []byte(nil))
	f.Add("a", "ce-id: a\nce-id: b\nce-time: 9999-12-31T23:59:59-23:59", []byte("\xff"))

	f.Fuzz(func(t *testing.T, subject, lines string, data []byte) {
		h := make(map[string][]string)
		for line := range strings.SplitSeq(lines, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			h[name] = append(h[name], value)
		}
		ev, err := wire.Decode(subject, h, data)
		if err != nil {
			if !errors.Is(err, wire.ErrUndecodable) {
				t.Errorf("Decode = %v, want ErrUndecodable", err)
			}
			return
		}
		if year := ev.LoggedAt.UTC().Year(); ev.Validate() != nil || ev.ID == "" || year < 1 || year > 9999 {
			return
		}
		again, err := wire.Decode(ev.Subject, wire.Encode(ev), ev.Data)
		if err != nil || !reflect.DeepEqual(again, asRead(ev)) {
			t.Errorf("sent again, decoded %+v, %v\nwant %+v", again, err, asRead(ev))
		}
	})
}

// If it is not clear which event a message is, the message has no identity.
func TestIdentity(t *testing.T) {
	for name, tt := range map[string]struct {
		header     map[string][]string
		source, id string
	}{
		"an event":       {map[string][]string{"ce-id": {"7%20a"}, "ce-source": {"/shop%25"}}, "/shop%", "7 a"},
		"no id":          {map[string][]string{"ce-source": {"/shop"}}, "", ""},
		"no source":      {map[string][]string{"ce-id": {"7"}}, "", ""},
		"two ids":        {map[string][]string{"ce-id": {"7", "8"}, "ce-source": {"/shop"}}, "", ""},
		"two sources":    {map[string][]string{"ce-id": {"7"}, "ce-source": {"/shop", "/depot"}}, "", ""},
		"another writer": {map[string][]string{"CE-ID": {"7"}, "CE-Source": {"/shop"}}, "", ""},
	} {
		if source, id := wire.Identity(tt.header); source != tt.source || id != tt.id {
			t.Errorf("%s: %q, %q, want %q, %q", name, source, id, tt.source, tt.id)
		}
	}
}
