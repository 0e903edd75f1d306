package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/webhook"
)

// reason returns why a request was refused. It returns "" without an error, and the text of any
// other error.
func reason(err error) webhook.Reason {
	var refusal *webhook.VerifyError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refusal):
		return refusal.Reason
	}
	return webhook.Reason(err.Error())
}

func TestVectors(t *testing.T) {
	for _, v := range vectors() {
		t.Run(v.name, func(t *testing.T) {
			if v.at != 0 {
				v.want.Time = time.Unix(v.at, 0).UTC()
			}
			got, err := v.verify()
			if err != nil || !reflect.DeepEqual(got, v.want) {
				t.Errorf("Verify = %+v, %v; want %+v", got, err, v.want)
			}
			other := v
			for _, other.body = range changed(v.body) {
				if _, err := other.verify(); reason(err) != webhook.WrongSignature {
					t.Errorf("with the body %q: %v", other.body, err)
				}
			}
			other = v
			for _, other.secret = range v.otherSecrets() {
				if _, err := other.verify(); reason(err) != webhook.WrongSignature {
					t.Errorf("with the secret %q: %v", other.secret, err)
				}
			}
			other = v
			for _, name := range []string{v.id, v.stamp} {
				if name == "" {
					continue
				}
				value := v.header.Get(name)
				stamp, rest, _ := strings.Cut(value, ",")
				if name != "Stripe-Signature" {
					stamp, rest = value, ""
				}
				for _, text := range changed(stamp) {
					if rest != "" {
						text += "," + rest
					}
					other.header = v.with(name, text)
					if _, err := other.verify(); err == nil {
						t.Errorf("with %s %q it is verified", name, text)
					}
				}
			}
		})
	}
}

// The time may be off by five minutes in both directions, inclusive.
func TestTolerance(t *testing.T) {
	for _, v := range vectors() {
		if v.at == 0 {
			continue
		}
		for away, want := range map[int64]webhook.Reason{-301: webhook.Future, -300: "", 300: "", 301: webhook.Stale} {
			_, err := v.make(v.secret).Verify(v.header, []byte(v.body), time.Unix(v.at+away, 999_999_999))
			if reason(err) != want {
				t.Errorf("%s, %d s after it was signed: %v, want %q", v.name, away, err, want)
			}
		}
	}
}

func TestStandard(t *testing.T) {
	both := webhook.Standard(secretS2, secretS1)
	one := webhook.Standard(secretS1)
	wrong := "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	tests := []struct {
		name   string
		scheme webhook.Scheme
		header http.Header
		body   string
		want   webhook.Reason
	}{
		{"S7 wrong", one, standardHeader(idS, "1614265330", signatureS7), bodyS, webhook.WrongSignature},
		{"S3 the signature of the body without its newline", one, standardHeader(idS, "1614265330", signatureS1), bodyS + "\n", webhook.WrongSignature},
		{"S9 a dot in the id", one, standardHeader("msg_a.1614265330", "1614265330", signatureS9), "x", webhook.MalformedID},
		{"S9 as it is signed", one, standardHeader("msg_a.1614265330", "1", signatureS9), "x", webhook.MalformedID},
		{"an empty entry", one, standardHeader(idS, "1614265330", "v1,"), bodyS, webhook.WrongSignature},
		{"an unknown version", one, standardHeader(idS, "1614265330", "v2,"+signatureS1[3:]), bodyS, webhook.WrongSignature},
		{"no version", one, standardHeader(idS, "1614265330", signatureS1[3:]), bodyS, webhook.WrongSignature},
		{"an unknown version before it", one, standardHeader(idS, "1614265330", "v2,"+signatureS1[3:]+" "+signatureS1), bodyS, ""},
		{"a wrong one before it", one, standardHeader(idS, "1614265330", wrong+" "+signatureS1), bodyS, ""},
		{"the header twice", one, standardHeader(idS, "1614265330", wrong, signatureS1), bodyS, ""},
		{"two secrets sign, the first is known", one, standardHeader(idS, "1614265330", signatureS2+" "+signatureS1), bodyS, ""},
		{"two secrets sign, the second is known", webhook.Standard(secretS2), standardHeader(idS, "1614265330", signatureS2+" "+signatureS1), bodyS, ""},
		{"two are known, the first signs", both, standardHeader(idS, "1614265330", signatureS2), bodyS, ""},
		{"two are known, the second signs", both, standardHeader(idS, "1614265330", signatureS1), bodyS, ""},
		{"too many entries", one, standardHeader(idS, "1614265330", strings.Repeat(wrong+" ", 16)+signatureS1), bodyS, webhook.WrongSignature},
		{"a key and a public key", webhook.Standard(secretS1, publicS8), standardHeader(idS, "1614265330", signatureS8), bodyS, ""},
		{"v1a for another text", webhook.Standard(publicS8), standardHeader(idS, "1614265330", seedS8("x")), bodyS, webhook.WrongSignature},
		{"a public key is no secret", webhook.Standard(publicS8), standardHeader(idS, "1614265330", signatureS1), bodyS, webhook.WrongSignature},
		{"no signature", one, standardHeader(idS, "1614265330"), bodyS, webhook.NoSignature},
		{"nothing", one, http.Header{}, bodyS, webhook.NoSignature},
		{"the id twice", one, http.Header{"Webhook-Id": {idS, idS}, "Webhook-Timestamp": {"1614265330"}, "Webhook-Signature": {signatureS1}}, bodyS, webhook.RepeatedHeader},
		{"the time twice", one, http.Header{"Webhook-Id": {idS}, "Webhook-Timestamp": {"1614265330", "1"}, "Webhook-Signature": {signatureS1}}, bodyS, webhook.RepeatedHeader},
		{"svix headers", one, http.Header{"Svix-Id": {idS}, "Svix-Timestamp": {"1614265330"}, "Svix-Signature": {signatureS1}}, bodyS, ""},
		{"mixed headers", one, http.Header{"Webhook-Id": {idS}, "Svix-Timestamp": {"1614265330"}, "Svix-Signature": {signatureS1}}, bodyS, webhook.NoSignature},
	}
	for _, stamp := range []string{"", " 1614265330", "+1614265330", "-1614265330", "1614265330.0", "0x6037bbf2", "16142653301614265330", "1614265330\x00"} {
		tests = append(tests, struct {
			name   string
			scheme webhook.Scheme
			header http.Header
			body   string
			want   webhook.Reason
		}{fmt.Sprintf("the time %q", stamp), one, standardHeader(idS, stamp, signatureS1), bodyS, webhook.MalformedTime})
	}
	for _, id := range []string{"a b", "a#b", "a\x00", "\xff", strings.Repeat("a", 256)} {
		h := standardHeader(id, "1614265330")
		if err := webhook.Sign(one, h, webhook.Message{ID: id, Time: time.Unix(atS, 0)}, []byte(bodyS)); err != nil {
			t.Fatal(err)
		}
		tests = append(tests, struct {
			name   string
			scheme webhook.Scheme
			header http.Header
			body   string
			want   webhook.Reason
		}{fmt.Sprintf("the id %.10q", id), one, h, bodyS, webhook.MalformedID})
	}
	for _, tt := range tests {
		if _, err := tt.scheme.Verify(tt.header, []byte(tt.body), time.Unix(atS, 0)); reason(err) != tt.want {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestStripeHeader(t *testing.T) {
	wrong := strings.Repeat("00", 32)
	for _, tt := range []struct {
		header []string
		want   webhook.Reason
	}{
		{[]string{"t=1495999758,v1=" + wrong + ",v1=" + signatureT1}, ""},
		{[]string{"t=1495999758,v1=" + signatureT2 + ",v1=" + signatureT1 + ",v0=" + wrong}, ""},
		{[]string{"t=1495999758", "v1=" + signatureT1}, ""},
		{[]string{"v1=" + signatureT1 + ", t=1495999758"}, ""},
		{[]string{"t=1495999758,v0=" + signatureT1}, webhook.NoSignature},
		{[]string{"t=1495999758,v1="}, webhook.WrongSignature},
		{[]string{"t=1495999758,v1=zz"}, webhook.WrongSignature},
		{[]string{"t=1495999758,t=1495999758,v1=" + signatureT1}, webhook.MalformedTime},
		{[]string{"t=1495999758,v1=" + signatureT1, "t=1,v1=" + wrong}, webhook.MalformedTime},
		{[]string{"v1=" + signatureT1}, webhook.MalformedTime},
		{[]string{"t=+1495999758,v1=" + signatureT1}, webhook.MalformedTime},
		{[]string{""}, webhook.NoSignature},
		{nil, webhook.NoSignature},
	} {
		h := http.Header{"Stripe-Signature": tt.header}
		if _, err := webhook.Stripe(secretT).Verify(h, []byte(bodyT), time.Unix(atT, 0)); reason(err) != tt.want {
			t.Errorf("%q: %v, want %q", tt.header, err, tt.want)
		}
	}
}

// sent is one request to each scheme, signed by it.
func sent(t testing.TB, s webhook.Scheme, m webhook.Message, body string) http.Header {
	t.Helper()
	h := http.Header{}
	if err := webhook.Sign(s, h, m, []byte(body)); err != nil {
		t.Fatal(err)
	}
	return h
}

// Each scheme accepts what it signs with any of its secrets, and refuses a signature that is sent
// twice.
func TestSign(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	m := webhook.Message{ID: "evt_1", Type: "thing.made", Time: now}
	body := `{"id":"evt_1","type":"thing.made","event_id":"evt_1"}`
	for _, v := range vectors() {
		first, second := v.secret, v.secret+"aaaa"
		if strings.HasPrefix(v.secret, "whpk_") {
			if err := webhook.Sign(v.make(v.secret), http.Header{}, m, []byte(body)); !errors.Is(err, postroom.ErrUnrecoverable) {
				t.Errorf("signing with a public key: %v", err)
			}
			continue
		}
		h := sent(t, v.make(first, second), m, body)
		for _, s := range []webhook.Scheme{v.make(first), v.make(second, first)} {
			got, err := s.Verify(h, []byte(body), now)
			if err != nil || got.ID != m.ID || got.Type != m.Type || !got.Time.IsZero() && !got.Time.Equal(now) {
				t.Errorf("%s: Verify = %+v, %v", v.name, got, err)
			}
		}
		for name := range h {
			if strings.Contains(name, "Signature") && name != "Webhook-Signature" && name != "Stripe-Signature" || strings.Contains(name, "Hmac") {
				twice := h.Clone()
				twice.Add(name, h.Get(name))
				if _, err := v.make(first).Verify(twice, []byte(body), now); reason(err) != webhook.RepeatedHeader {
					t.Errorf("%s: with %s twice: %v", v.name, name, err)
				}
			}
		}
	}
	if err := webhook.Sign(nil, http.Header{}, m, nil); !errors.Is(err, postroom.ErrUnrecoverable) {
		t.Errorf("signing for no scheme: %v", err)
	}
}

// A scheme without a secret, or with other faults, refuses all requests in the same way.
func TestFaultySchemes(t *testing.T) {
	good := webhook.HMAC{Secrets: []string{"s"}, Signature: "X-S", ID: "X-Id"}
	with := func(set func(*webhook.HMAC)) webhook.HMAC {
		s := good
		set(&s)
		return s
	}
	for _, tt := range []struct {
		scheme webhook.Scheme
		want   string
	}{
		{webhook.Standard(), "no secret"},
		{webhook.Standard(""), "no secret"},
		{webhook.Standard("whsec_"), "no secret"},
		{webhook.Standard(secretS1, ""), "no secret"},
		{webhook.Standard("whsec_%"), "not base64"},
		{webhook.Standard("whpk_AAAA"), "has 3 bytes, want 32"},
		{webhook.Stripe(), "no secret"},
		{webhook.Stripe(""), "no secret"},
		{webhook.Stripe("a", ""), "no secret"},
		{webhook.GitHub(), "no secret"},
		{webhook.Shopify(""), "no secret"},
		{webhook.Slack(), "no secret"},
		{webhook.IDFromBody(webhook.GitHub()), "no secret"},
		{webhook.HMAC{}, "Signature is required"},
		{with(func(s *webhook.HMAC) { s.Secrets = nil }), "no secret"},
		{with(func(s *webhook.HMAC) { s.Secrets = []string{""} }), "no secret"},
		{with(func(s *webhook.HMAC) { s.SecretsBase64 = true }), "not base64"},
		{with(func(s *webhook.HMAC) { s.ID = "" }), "ID is required"},
		{with(func(s *webhook.HMAC) { s.Signed = "{id}" }), "lacks {body}"},
		{with(func(s *webhook.HMAC) { s.Signed = "{body}{secret}" }), "{secret}, want only"},
		{with(func(s *webhook.HMAC) { s.Signed = "{body}.{body}" }), "{body} twice"},
		{with(func(s *webhook.HMAC) { s.Signed = "{time}.{body}" }), "must have {time}"},
		{with(func(s *webhook.HMAC) { s.Time = "X-Time" }), "must have {time}"},
		{with(func(s *webhook.HMAC) { s.Time, s.Signed = ".time", "{time}.{body}" }), "Time is not a header"},
		{with(func(s *webhook.HMAC) { s.ID, s.Signed = ".id", "{id}.{body}" }), "ID is not a header"},
		{with(func(s *webhook.HMAC) { s.Signed = "{id}{body}" }), "in two ways"},
		{with(func(s *webhook.HMAC) { s.Signed = "{body}{id}" }), "in two ways"},
		{with(func(s *webhook.HMAC) { s.Name = "a b" }), "first part of a type"},
	} {
		for _, h := range []http.Header{nil, standardHeader(idS, "1614265330", signatureS1)} {
			_, err := tt.scheme.Verify(h, []byte(bodyS), time.Unix(atS, 0))
			if !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), tt.want) || errors.Is(err, webhook.ErrNoSecret) != (tt.want == "no secret") {
				t.Errorf("%+v: %v, want %q", tt.scheme, err, tt.want)
			}
		}
	}
}

// With a signed id no other id and body have the same signed text.
func TestSignedID(t *testing.T) {
	s := webhook.HMAC{Secrets: []string{"s"}, Signature: "X-S", ID: "X-Id", Signed: "{id}.{body}"}
	h := sent(t, s, webhook.Message{ID: "a.b"}, "c")
	if _, err := s.Verify(h, []byte("c"), time.Now()); reason(err) != webhook.MalformedID {
		t.Errorf("an id that ends twice: %v", err)
	}
	h.Set("X-Id", "a")
	if m, err := s.Verify(h, []byte("b.c"), time.Now()); err != nil || m.ID != "a" {
		t.Errorf("Verify = %+v, %v", m, err)
	}
	h.Set("X-Id", "b")
	if _, err := s.Verify(h, []byte("b.c"), time.Now()); reason(err) != webhook.WrongSignature {
		t.Errorf("another id: %v", err)
	}
}

// templates returns values of HMAC.Signed, with every order of the placeholders and some texts between
// them. Two of the texts can overlap themselves.
func templates() []string {
	between := []string{"", "-", "--", "-a-", "x"}
	var all []string
	for _, names := range [][]string{{"{id}", "{body}"}, {"{body}", "{id}"}, {"{time}", "{body}"}, {"{body}", "{time}"}} {
		for _, n := range between {
			all = append(all, names[0]+n+names[1], "-"+names[0]+n+names[1]+"-")
		}
	}
	for _, names := range [][]string{
		{"{id}", "{time}", "{body}"},
		{"{id}", "{body}", "{time}"},
		{"{time}", "{id}", "{body}"},
		{"{time}", "{body}", "{id}"},
		{"{body}", "{id}", "{time}"},
		{"{body}", "{time}", "{id}"},
	} {
		for _, n := range between {
			for _, m := range between {
				all = append(all, names[0]+n+names[1]+m+names[2])
			}
		}
	}
	return all
}

// texts returns all texts of at most the given number of letters.
func texts(letters string, most int) []string {
	all := []string{""}
	for from := 0; most > 0; most-- {
		to := len(all)
		for _, text := range all[from:to] {
			for _, letter := range letters {
				all = append(all, text+string(letter))
			}
		}
		from = to
	}
	return all
}

// No two requests that a scheme accepts have the same signed text. Otherwise an attacker could move
// bytes of a captured request from one part to another, and the signature would stay valid.
func TestSignedTextHasOneReading(t *testing.T) {
	type request struct{ id, at, body string }
	now := time.Unix(1_700_000_000, 0)
	stamp := strconv.FormatInt(now.Unix(), 10)
	stamps := []string{stamp, "0" + stamp, "1" + stamp, stamp[1:], " " + stamp, "+" + stamp}
	accepted := 0
	for _, template := range templates() {
		s := webhook.HMAC{Secrets: []string{"s"}, Signature: "X-S", ID: "X-Id", Signed: template}
		times := []string{""}
		if strings.Contains(template, "{time}") {
			s.Time, times = "X-Time", stamps
		}
		if err := webhook.Sign(s, http.Header{}, webhook.Message{Time: now}, nil); err != nil {
			continue
		}
		accepted++
		of := make(map[string][]request) // by the signed text
		for _, id := range texts("a-", 2) {
			if !strings.Contains(template, "{id}") && id != "a" {
				continue
			}
			for _, body := range texts("a-01", 2) {
				for _, at := range times {
					text := strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(template, "{id}", id), "{time}", at), "{body}", body)
					of[text] = append(of[text], request{id, at, body})
				}
			}
		}
		some := false // a request was accepted
		for text, requests := range of {
			if some && len(requests) == 1 {
				continue // no other request has this text
			}
			mac := hmac.New(sha256.New, []byte("s"))
			mac.Write([]byte(text))
			signature := hex.EncodeToString(mac.Sum(nil))
			var first *request // that was accepted with this text
			for _, r := range requests {
				h := http.Header{"X-S": {signature}, "X-Id": {r.id}, "X-Time": {r.at}}
				if _, err := s.Verify(h, []byte(r.body), now); err != nil {
					continue
				}
				if first != nil {
					t.Fatalf("%s: %q and %q have the same signed text %q", template, *first, r, text)
				}
				first, some = &r, true
			}
		}
		if !some {
			t.Errorf("%s: no request was accepted", template)
		}
	}
	if accepted < 100 {
		t.Errorf("%d templates were accepted, so the test looked at few", accepted)
	}
}

// A captured request cannot be sent again under another id.
func TestIDFromBody(t *testing.T) {
	s := webhook.IDFromBody(webhook.GitHub("s"))
	ids := make(map[string]string)
	for _, body := range []string{"1", "2"} {
		for _, id := range []string{"a", "b", ""} {
			h := sent(t, s, webhook.Message{ID: id, Type: "push"}, body)
			m, err := s.Verify(h, []byte(body), time.Now())
			if err != nil || m.Type != "push" || (postroom.Event{Type: "a", ID: m.ID}).Validate() != nil || m.ID == "" {
				t.Fatalf("Verify = %+v, %v", m, err)
			}
			if first, known := ids[body]; known && first != m.ID {
				t.Errorf("the body %s has the ids %s and %s", body, first, m.ID)
			}
			ids[body] = m.ID
		}
	}
	if ids["1"] == ids["2"] {
		t.Error("two bodies have one id")
	}
	if _, err := s.Verify(http.Header{}, []byte("1"), time.Now()); reason(err) != webhook.NoSignature {
		t.Errorf("without a signature: %v", err)
	}
}

// The members of a body are read exactly as they are written.
func TestMembers(t *testing.T) {
	s := webhook.HMAC{Secrets: []string{"s"}, Signature: "X-S", ID: ".event.id", Type: ".type"}
	for body, want := range map[string]webhook.Message{
		`{"event":{"id":"a"},"type":"b"}`:           {ID: "a", Type: "b"},
		`{"event":{"id":12345678901234567890}}`:     {ID: "12345678901234567890"},
		`{"Event":{"id":"a"},"TYPE":"b"}`:           {},
		`{"event":{"id":null},"type":{"a":1}}`:      {},
		`{"event":"a","type":true}`:                 {},
		`[1]`:                                       {},
		`{"event":{"id":"a"},"type":"b"`:            {},
		`{"event":{"id":""},"type":"b"}`:            {Type: "b"},
		`{"event":{"id":"\u00e9"},"type":"\ud800"}`: {ID: "é", Type: "�"},
	} {
		want.Scheme = "hmac"
		got, err := s.Verify(sent(t, s, webhook.Message{}, body), []byte(body), time.Now())
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", body, got, err, want)
		}
	}
	for _, id := range []string{"a b", "a#b", `a\u0000b`, `a\ud800b`, "a\xffb"} {
		body := `{"event":{"id":"` + id + `"}}`
		if _, err := s.Verify(sent(t, s, webhook.Message{}, body), []byte(body), time.Now()); reason(err) != webhook.MalformedID {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// A form is verified and marked; a ping is answered.
func TestFormsAndPings(t *testing.T) {
	for name, s := range map[string]webhook.Scheme{"github": webhook.GitHub("s"), "slack": webhook.Slack("s")} {
		h := sent(t, s, webhook.Message{ID: "a", Type: "push", Time: time.Now()}, "payload=x")
		for media, want := range map[string]bool{"application/x-www-form-urlencoded": true, "Application/X-WWW-Form-Urlencoded; charset=utf-8": true, "application/json": false, "": false} {
			h.Set("Content-Type", media)
			if m, err := s.Verify(h, []byte("payload=x"), time.Now()); err != nil || m.Form != want {
				t.Errorf("%s, %q: %+v, %v", name, media, m, err)
			}
		}
	}
	s := webhook.GitHub("s")
	h := sent(t, s, webhook.Message{ID: "a", Type: "push"}, "{}")
	h.Set("Content-Type", "application/x-www-form-urlencoded")
	if m, err := s.Verify(h, []byte("{}"), time.Now()); err != nil || m.Form {
		t.Errorf("an object that is said to be a form: %+v, %v", m, err)
	}
	if m, err := s.Verify(sent(t, s, webhook.Message{ID: "a", Type: "ping"}, "{}"), []byte("{}"), time.Now()); err != nil || m.Reply == nil {
		t.Errorf("ping: %+v, %v", m, err)
	}
	h = sent(t, s, webhook.Message{ID: "a", Type: "ping"}, "{}")
	h["X-Hub-Signature"] = []string{"sha1=x"}
	h.Del("X-Hub-Signature-256")
	if _, err := s.Verify(h, []byte("{}"), time.Now()); reason(err) != webhook.NoSignature {
		t.Errorf("SHA-1 alone: %v", err)
	}
}
