package webhook

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Stripe verifies requests of Stripe. A secret is the complete text, with whsec_. The time is
// signed, and the id is in the body. If Stripe sends an event again, the field pending_webhooks may
// differ. So a known id with another body is a duplicate by default; see [ReceiverConfig.Changed].
func Stripe(secrets ...string) Scheme { return stripe{textKeys(secrets)} }

type stripe struct{ keys }

func (stripe) SchemeName() string { return "stripe" }

func (s stripe) Verify(h http.Header, body []byte, now time.Time) (Message, error) {
	if s.fault != nil {
		return Message{}, s.fault
	}
	var stamps []string
	var signatures [][]byte
	for entry := range strings.SplitSeq(strings.Join(h.Values("Stripe-Signature"), ","), ",") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(entry), "="); name {
		case "t":
			stamps = append(stamps, value)
		case "v1":
			signatures = append(signatures, fromHex(value))
		}
	}
	if len(signatures) == 0 {
		return Message{}, refused(NoSignature)
	}
	if len(stamps) != 1 {
		return Message{}, refused(MalformedTime)
	}
	at, err := seconds(stamps[0])
	if err != nil {
		return Message{}, err
	}
	if err := s.verify(signatures, []byte(stamps[0]+"."), body); err != nil {
		return Message{}, err
	}
	if err := fresh(at, now); err != nil {
		return Message{}, err
	}
	m := object(body)
	id := m.text("id")
	if err := checkID(id); err != nil {
		return Message{}, err
	}
	return Message{Scheme: s.SchemeName(), ID: id, Type: m.text("type"), Time: time.Unix(at, 0).UTC(), Varies: true}, nil
}

func (s stripe) sign(h http.Header, m Message, body []byte) error {
	if s.fault != nil {
		return s.fault
	}
	stamp := strconv.FormatInt(m.Time.Unix(), 10)
	list := "t=" + stamp
	for _, key := range s.all {
		list += ",v1=" + hex.EncodeToString(sum(key, []byte(stamp+"."), body))
	}
	h.Set("Stripe-Signature", list)
	return nil
}

// GitHub verifies requests of GitHub by their SHA-256 signature. The webhook must send JSON. A type
// is the event's name with the action, such as "issues.opened". GitHub signs neither the id, nor the
// event's name, nor a time, so an attacker can send a captured request again with a new id: see
// [IDFromBody]. If
// several webhooks get an event, GitHub uses the same id for all these webhooks. Give each webhook
// its own source; otherwise the second delivery is a duplicate, or a conflict if its body differs.
func GitHub(secrets ...string) Scheme { return github{textKeys(secrets)} }

type github struct{ keys }

func (github) SchemeName() string { return "github" }

func (s github) Verify(h http.Header, body []byte, _ time.Time) (Message, error) {
	if s.fault != nil {
		return Message{}, s.fault
	}
	fields, err := headers(h, "X-Hub-Signature-256", "X-GitHub-Delivery", "X-GitHub-Event")
	if err != nil {
		return Message{}, err
	}
	signature, id, kind := fields[0], fields[1], fields[2]
	if signature == "" {
		return Message{}, refused(NoSignature)
	}
	encoded, _ := strings.CutPrefix(signature, "sha256=")
	if encoded == signature { // the signature does not have the prefix
		encoded = ""
	}
	if err := s.verify([][]byte{fromHex(encoded)}, body); err != nil {
		return Message{}, err
	}
	if err := checkID(id); err != nil {
		return Message{}, err
	}
	o := object(body)
	m := Message{Scheme: s.SchemeName(), ID: id, Type: kind, Form: isForm(h, o), UnsignedType: true}
	if kind == "ping" {
		m.Reply = &Reply{}
	}
	if action := o.text("action"); action != "" {
		m.Type += "." + action
	}
	return m, nil
}

func (s github) sign(h http.Header, m Message, body []byte) error {
	if s.fault != nil {
		return s.fault
	}
	h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(sum(s.all[0], body)))
	h.Set("X-GitHub-Delivery", m.ID)
	h.Set("X-GitHub-Event", m.Type)
	return nil
}

// Shopify verifies requests of Shopify. Their headers may begin with X-Shopify- or Shopify-. A type
// is the topic with dots, such as "orders.create". Shopify signs neither the id, nor the topic, nor
// a time, so an attacker can send a captured request again with a new id: see [IDFromBody]. For an hour after a
// change of the secret, Shopify may use the old secret: keep both secrets.
func Shopify(secrets ...string) Scheme { return shopify{textKeys(secrets)} }

type shopify struct{ keys }

func (shopify) SchemeName() string { return "shopify" }

func (s shopify) Verify(h http.Header, body []byte, _ time.Time) (Message, error) {
	if s.fault != nil {
		return Message{}, s.fault
	}
	prefix := "X-Shopify-"
	if h.Get("X-Shopify-Hmac-Sha256") == "" {
		prefix = "Shopify-"
	}
	fields, err := headers(h, prefix+"Hmac-Sha256", prefix+"Webhook-Id", prefix+"Topic")
	if err != nil {
		return Message{}, err
	}
	signature, id, topic := fields[0], fields[1], fields[2]
	if signature == "" {
		return Message{}, refused(NoSignature)
	}
	if err := s.verify([][]byte{fromBase64(signature)}, body); err != nil {
		return Message{}, err
	}
	if err := checkID(id); err != nil {
		return Message{}, err
	}
	return Message{Scheme: s.SchemeName(), ID: id, Type: strings.ReplaceAll(topic, "/", "."), UnsignedType: true}, nil
}

func (s shopify) sign(h http.Header, m Message, body []byte) error {
	if s.fault != nil {
		return s.fault
	}
	h.Set("X-Shopify-Hmac-Sha256", base64.StdEncoding.EncodeToString(sum(s.all[0], body)))
	h.Set("X-Shopify-Webhook-Id", m.ID)
	h.Set("X-Shopify-Topic", strings.ReplaceAll(m.Type, ".", "/"))
	return nil
}

// Slack verifies requests of Slack's Events API. A secret is the app's signing secret. The time is
// signed, and the id is in the body. Do not use this package for slash commands and interactivity:
// these requests are forms, and need an answer with content.
func Slack(secrets ...string) Scheme { return slack{textKeys(secrets)} }

type slack struct{ keys }

func (slack) SchemeName() string { return "slack" }

func (s slack) Verify(h http.Header, body []byte, now time.Time) (Message, error) {
	if s.fault != nil {
		return Message{}, s.fault
	}
	fields, err := headers(h, "X-Slack-Signature", "X-Slack-Request-Timestamp")
	if err != nil {
		return Message{}, err
	}
	signature, stamp := fields[0], fields[1]
	if signature == "" {
		return Message{}, refused(NoSignature)
	}
	at, err := seconds(stamp)
	if err != nil {
		return Message{}, err
	}
	encoded, _ := strings.CutPrefix(signature, "v0=")
	if encoded == signature {
		encoded = ""
	}
	if err := s.verify([][]byte{fromHex(encoded)}, []byte("v0:"+stamp+":"), body); err != nil {
		return Message{}, err
	}
	if err := fresh(at, now); err != nil {
		return Message{}, err
	}
	o := object(body)
	m := Message{Scheme: s.SchemeName(), ID: o.text("event_id"), Type: o.text("type"), Time: time.Unix(at, 0).UTC(), Form: isForm(h, o)}
	if err := checkID(m.ID); err != nil {
		return Message{}, err
	}
	switch m.Type {
	case "url_verification":
		m.Reply = &Reply{ContentType: "text/plain; charset=utf-8", Body: []byte(o.text("challenge"))}
	//guard:webhook-slack-limits-the-rate = "app_rate_limited?"
	case "app_rate_limited": // this message has no id; it says that Slack omits events for a minute
		m.Reply = &Reply{}
	case "event_callback":
		m.Type = o.at("event.type")
	}
	return m, nil
}

func (s slack) sign(h http.Header, m Message, body []byte) error {
	if s.fault != nil {
		return s.fault
	}
	stamp := strconv.FormatInt(m.Time.Unix(), 10)
	h.Set("X-Slack-Request-Timestamp", stamp)
	h.Set("X-Slack-Signature", "v0="+hex.EncodeToString(sum(s.all[0], []byte("v0:"+stamp+":"), body)))
	return nil
}

// fromHex decodes a signature. If it cannot, it returns nil, which matches no signature.
func fromHex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) == 0 {
		return nil
	}
	return b
}

// fromBase64 decodes a signature. If it cannot, it returns nil, which matches no signature.
func fromBase64(s string) []byte {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(b) == 0 {
		return nil
	}
	return b
}
