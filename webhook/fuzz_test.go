package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/webhook"
)

// digest is another implementation of a text's signature.
func digest(key, text string) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// fuzz runs a scheme on any headers and bodies. It fails if Verify panics, keeps what it refused,
// returns another error than a *VerifyError, or accepts a request without a signature of the signed
// text.
func fuzz(f *testing.F, s webhook.Scheme, names [3]string, signed func(h http.Header, body string) bool) {
	now := time.Unix(1_700_000_000, 0)
	for _, body := range []string{"", "{}", `{"id":"a","type":"b","event_id":"c","event":{"type":"d"}}`, "\x00\xff"} {
		h := sent(f, s, webhook.Message{ID: "a", Type: "t", Time: now}, body)
		f.Add(h.Get(names[0]), h.Get(names[1]), h.Get(names[2]), body)
	}
	f.Add("", "", "", "")
	f.Add("v1,= v1a,AA== ,", "t=1,t=2,v1=", "sha256=zz", `{"id":[`)
	f.Fuzz(func(t *testing.T, a, b, c, body string) {
		h := http.Header{}
		for i, value := range []string{a, b, c} {
			if names[i] != "" {
				h.Set(names[i], value)
			}
		}
		m, err := s.Verify(h, []byte(body), now)
		var refusal *webhook.VerifyError
		switch {
		case err != nil && (!errors.As(err, &refusal) || m != (webhook.Message{})):
			t.Errorf("Verify = %+v, %v", m, err)
		case err == nil && !signed(h, body):
			t.Errorf("verified without a signature: %q, body %q", h, body)
		case err == nil && !m.Time.IsZero() && now.Sub(m.Time).Abs() > webhook.Tolerance:
			t.Errorf("verified, of %s", m.Time)
		case err == nil && ((postroom.Event{Type: "a", ID: m.ID}).Validate() != nil || !utf8.ValidString(m.ID)):
			t.Errorf("verified, with the id %q", m.ID)
		}
	})
}

func FuzzStandard(f *testing.F) {
	key, _ := base64.StdEncoding.DecodeString(secretS1[6:])
	fuzz(f, webhook.Standard(secretS1, publicS8), [3]string{"webhook-id", "webhook-timestamp", "webhook-signature"}, func(h http.Header, body string) bool {
		text := h.Get("webhook-id") + "." + h.Get("webhook-timestamp") + "." + body
		return strings.Contains(h.Get("webhook-signature"), "v1,"+base64.StdEncoding.EncodeToString(digest(string(key), text))) ||
			strings.Contains(h.Get("webhook-signature"), seedS8(text))
	})
}

func FuzzStripe(f *testing.F) {
	fuzz(f, webhook.Stripe("s"), [3]string{"Stripe-Signature"}, func(h http.Header, body string) bool {
		_, stamp, _ := strings.Cut(h.Get("Stripe-Signature"), "t=")
		stamp, _, _ = strings.Cut(stamp, ",")
		return strings.Contains(strings.ToLower(h.Get("Stripe-Signature")), "v1="+hex.EncodeToString(digest("s", stamp+"."+body)))
	})
}

func FuzzGitHub(f *testing.F) {
	fuzz(f, webhook.GitHub("s"), [3]string{"X-Hub-Signature-256", "X-GitHub-Delivery", "X-GitHub-Event"}, func(h http.Header, body string) bool {
		return strings.EqualFold(h.Get("X-Hub-Signature-256"), "sha256="+hex.EncodeToString(digest("s", body)))
	})
}

func FuzzShopify(f *testing.F) {
	fuzz(f, webhook.Shopify("s"), [3]string{"X-Shopify-Hmac-Sha256", "X-Shopify-Webhook-Id", "X-Shopify-Topic"}, func(h http.Header, body string) bool {
		return strings.NewReplacer("\r", "", "\n", "").Replace(h.Get("X-Shopify-Hmac-Sha256")) == base64.StdEncoding.EncodeToString(digest("s", body))
	})
}

func FuzzSlack(f *testing.F) {
	fuzz(f, webhook.Slack("s"), [3]string{"X-Slack-Signature", "X-Slack-Request-Timestamp"}, func(h http.Header, body string) bool {
		return strings.EqualFold(h.Get("X-Slack-Signature"), "v0="+hex.EncodeToString(digest("s", "v0:"+h.Get("X-Slack-Request-Timestamp")+":"+body)))
	})
}

func FuzzHMAC(f *testing.F) {
	s := webhook.HMAC{Secrets: []string{"s"}, Signature: "X-Signature", Prefix: "s=", Signed: "{id}/{time}:{body}", ID: "X-Id", Time: "X-Time", Type: ".event.type"}
	fuzz(f, s, [3]string{"X-Signature", "X-Id", "X-Time"}, func(h http.Header, body string) bool {
		return strings.EqualFold(h.Get("X-Signature"), "s="+hex.EncodeToString(digest("s", h.Get("X-Id")+"/"+h.Get("X-Time")+":"+body)))
	})
}
