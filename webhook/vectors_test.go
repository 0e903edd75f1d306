package webhook_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postroom/postroom/webhook"
)

// vector is a request, the scheme that verifies it, and the other signed values besides the body.
type vector struct {
	name   string
	make   func(secrets ...string) webhook.Scheme
	secret string
	header http.Header
	body   string
	at     int64  // when it was signed; 0 if no time is signed
	stamp  string // the header with the time, or "Stripe-Signature"
	id     string // the header with the id, if it is signed
	want   webhook.Message
}

// The secrets, ids and bodies of the vectors.
const (
	secretS1 = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretS2 = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	publicS8 = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
	idS      = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	bodyS    = `{"test": 2432232314}`
	atS      = 1614265330

	signatureS1 = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	signatureS2 = "v1,78nXHjpFP0tVJQW5D0SBwmVyyW87BV/rL6MgfM/Bw44="
	signatureS3 = "v1,FIt3hYjPQCdyuyMOw+0dZwwjGRAx1Il4CsgdFnOmrcc="
	signatureS4 = "v1,l6C9/1+N/lSU6+gfh+YEGqTK2aQ+k8nMEWDvvCgHh7U="
	signatureS5 = "v1,v48jdbgvh29KJz2Qc+ghw8G6vG3nAKnujWBg8oM/62A="
	signatureS6 = "v1,LcOHxqSz8sdqPzlqfrtCMqvYEF1UTnGfqvwC2FfM7DY="
	signatureS7 = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
	signatureS8 = "v1a,yoUrgEkc12aGqm0n4Sydmdz55xJfTz4AsAgieHFjmkR7LJtqVCZOQYzvvHjI5kAey+r4iaBGxTFRrl2iBQxtDQ=="
	signatureS9 = "v1,+VUkX95TN0eH/9Ou8vrzkFNKRqdsI5yan6dCH1rcL7U="

	bodyT   = `{"id":"evt_test_webhook","object":"event"}`
	atT     = 1495999758
	secretT = "whsec_test_secret"

	signatureT1 = "bd9584a798a9bd54c579fb7780e70d915eb8f35bcacc651f9a06a3cce74be871"
	signatureT2 = "a5db28e613bb1c9cd566e305aeefee648a06363074d77f7e7d15d4daf9de9cae"
	signatureT3 = "0078818396b86addcd1ec69a649ee8ffa4ea276bd22b6f929f3504360672d47f"

	secretG = "It's a Secret to Everybody"
	secretL = "8f742231b10e8888abcd99yyyzzz85a5"
	atL     = 1531420618
	bodyL1  = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)

func standardHeader(id, stamp string, signatures ...string) http.Header {
	return http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {stamp}, "Webhook-Signature": signatures}
}

func githubHeader(signature, event string) http.Header {
	h := http.Header{}
	h.Set("X-Hub-Signature-256", signature)
	h.Set("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
	h.Set("X-GitHub-Event", event)
	return h
}

func slackHeader(signature string) http.Header {
	return http.Header{"X-Slack-Signature": {signature}, "X-Slack-Request-Timestamp": {"1531420618"}}
}

func hmacH1(secrets ...string) webhook.Scheme {
	return webhook.HMAC{Secrets: secrets, Signature: "X-Signature", ID: ".id", Type: ".type"}
}

func hmacH2(secrets ...string) webhook.Scheme {
	return webhook.HMAC{
		Name: "acme", Secrets: secrets, Signature: "X-Signature", Base64: true, Prefix: "s=", Signed: "{time}.{body}", Time: "X-Time", ID: ".id", Type: "X-Type",
	}
}

// vectors are requests that verify.
func vectors() []vector {
	standard := func(name, secret, id, stamp, body, signature string, at int64) vector {
		return vector{
			name: name, make: webhook.Standard, secret: secret, header: standardHeader(id, stamp, signature), body: body, at: at,
			stamp: "Webhook-Timestamp", id: "Webhook-Id", want: webhook.Message{Scheme: "standard", ID: id},
		}
	}
	stripe := func(name, secret, body, signature string) vector {
		return vector{
			name: name, make: webhook.Stripe, secret: secret, header: http.Header{"Stripe-Signature": {"t=1495999758,v1=" + signature}}, body: body, at: atT,
			stamp: "Stripe-Signature", want: webhook.Message{Scheme: "stripe", ID: "evt_test_webhook", Varies: true},
		}
	}
	slack := func(name, body, signature string, want webhook.Message) vector {
		want.Scheme = "slack"
		return vector{name: name, make: webhook.Slack, secret: secretL, header: slackHeader(signature), body: body, at: atL, stamp: "X-Slack-Request-Timestamp", want: want}
	}
	github := func(name, body, signature, event, typ string) vector {
		return vector{
			name: name, make: webhook.GitHub, secret: secretG, header: githubHeader(signature, event), body: body,
			want: webhook.Message{Scheme: "github", ID: "72d3162e-cc78-11e3-81ab-4c9367dc0958", Type: typ, UnsignedType: true},
		}
	}
	return []vector{
		standard("S1", secretS1, idS, "1614265330", bodyS, signatureS1, atS),
		standard("S2 another secret", secretS2, idS, "1614265330", bodyS, signatureS2, atS),
		standard("S3 a body that ends with a newline", secretS1, idS, "1614265330", bodyS+"\n", signatureS3, atS),
		standard("S4 a second later", secretS1, idS, "1614265331", bodyS, signatureS4, atS+1),
		standard("S5 no body", secretS1, idS, "1614265330", "", signatureS5, atS),
		standard("S6 any bytes", secretS1, idS, "1614265330", "{\"n\":\"€\x00\xff\"}", signatureS6, atS),
		standard("S8 ed25519", publicS8, idS, "1614265330", bodyS, signatureS8, atS),
		standard("S9 the id without a dot", secretS1, "msg_a", "1614265330", "1.x", signatureS9, atS),
		stripe("T1", secretT, bodyT, signatureT1),
		stripe("T2 another secret", "whsec_rolled_secret", bodyT, signatureT2),
		stripe("T3 a body that ends with a newline", secretT, bodyT+"\n", signatureT3),
		github("G1 no JSON", "Hello, World!", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17", "push", "push"),
		github("G2 with an action", `{"action":"opened","number":7}`, "sha256=34fd4221cb1c8b95d142c6dc81775bb15fcd403d46608fdf114c11b6a0f525c5", "issues", "issues.opened"),
		{
			name: "P1", make: webhook.Shopify, secret: "hush", body: `{"id":820982911946154508}`,
			header: http.Header{"X-Shopify-Hmac-Sha256": {"qBvrsZF7RfB1iS6BX6IHqJTp5L911P7intnPeTPsH0I="}, "X-Shopify-Webhook-Id": {"w-1"}, "X-Shopify-Topic": {"orders/create"}},
			want:   webhook.Message{Scheme: "shopify", ID: "w-1", Type: "orders.create", UnsignedType: true},
		},
		{
			name: "P1 with new headers", make: webhook.Shopify, secret: "hush", body: `{"id":820982911946154508}`,
			header: http.Header{"Shopify-Hmac-Sha256": {"qBvrsZF7RfB1iS6BX6IHqJTp5L911P7intnPeTPsH0I="}, "Shopify-Webhook-Id": {"w-1"}, "Shopify-Topic": {"orders/create"}},
			want:   webhook.Message{Scheme: "shopify", ID: "w-1", Type: "orders.create", UnsignedType: true},
		},
		slack("L1 a form", bodyL1, "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503", webhook.Message{}),
		slack("L2", `{"type":"event_callback","event_id":"Ev08MFMKH6","event":{"type":"app_mention","text":"hi"}}`,
			"v0=3fc7b2be8b5bfa037a604e1b42832bb89b11b73c4e1654404d8da15ff3e6647f", webhook.Message{ID: "Ev08MFMKH6", Type: "app_mention"}),
		slack("L3 a handshake", `{"type":"url_verification","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}`,
			"v0=2b617e8d1eba789c3e90a54b772adadfc772137987c87d3c1e4129005632e406",
			webhook.Message{Type: "url_verification", Reply: &webhook.Reply{ContentType: "text/plain; charset=utf-8", Body: []byte("3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P")}}),
		{
			name: "H1", make: hmacH1, secret: "generic-secret", body: `{"id":"a-1","type":"thing.made"}`,
			header: http.Header{"X-Signature": {"a547eb5df31cd94b1e1ed5e3e82dba3671c1a26171b579435ed2eec1d0a2755d"}},
			want:   webhook.Message{Scheme: "hmac", ID: "a-1", Type: "thing.made"},
		},
		{
			name: "H2", make: hmacH2, secret: "generic-secret", body: `{"id":"a-1","type":"thing.made"}`, at: 1700000000, stamp: "X-Time",
			header: http.Header{"X-Signature": {"s=DcFFUZ5tzu2I+JPZpeA+UyRoMiiOvKVMLKhRS08cvjQ="}, "X-Time": {"1700000000"}, "X-Type": {"a thing"}},
			want:   webhook.Message{Scheme: "acme", ID: "a-1", Type: "a thing", UnsignedType: true},
		},
	}
}

// now returns the time of signing, or any time.
func (v vector) now() time.Time {
	if v.at == 0 {
		return time.Unix(1_800_000_000, 0)
	}
	return time.Unix(v.at, 0)
}

func (v vector) verify() (webhook.Message, error) {
	return v.make(v.secret).Verify(v.header, []byte(v.body), v.now())
}

// with returns a copy of the headers in which one header has other values.
func (v vector) with(name string, values ...string) http.Header {
	h := v.header.Clone()
	h[http.CanonicalHeaderKey(name)] = values
	return h
}

// changed returns copies of a text: each has one changed byte, and the last one lacks the last
// byte.
func changed(s string) []string {
	var all []string
	for i := range len(s) {
		b := []byte(s)
		b[i] ^= 1
		all = append(all, string(b))
	}
	if s != "" {
		all = append(all, s[:len(s)-1])
	}
	return append(all, s+"0")
}

// seedS8 signs as vector S8 does.
func seedS8(text string) string {
	seed := make([]byte, ed25519.SeedSize)
	for i := range seed {
		seed[i] = byte(i)
	}
	return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(ed25519.NewKeyFromSeed(seed), []byte(text)))
}

// otherSecrets returns the secret of a vector with each byte of its key changed.
func (v vector) otherSecrets() []string {
	for _, prefix := range []string{"whsec_", "whpk_"} {
		rest, found := strings.CutPrefix(v.secret, prefix)
		if v.header.Get("webhook-id") == "" || !found {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(rest)
		if err != nil {
			panic(err)
		}
		var all []string
		for i := range key {
			other := slices.Clone(key)
			other[i] ^= 1
			all = append(all, prefix+base64.StdEncoding.EncodeToString(other))
		}
		return all
	}
	return changed(v.secret)
}
