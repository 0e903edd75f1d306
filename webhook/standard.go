package webhook

import (
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Standard verifies requests that follow Standard Webhooks 1.0.0, as Svix and many others do. A
// secret is whsec_ and a key in base64, or whpk_ and an ed25519 public key in base64. A secret with
// neither of these prefixes is a key in base64. The headers may begin with svix- instead of
// webhook-. The id and the time are signed.
func Standard(secrets ...string) Scheme {
	s := standard{}
	for _, secret := range secrets {
		text, public := strings.CutPrefix(secret, "whpk_")
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_"))
		switch {
		case err != nil:
			s.fault = fault("a secret of Standard is not base64 after whsec_ or whpk_")
		case public && len(key) != ed25519.PublicKeySize:
			s.fault = fault("a public key of Standard has %d bytes, want %d", len(key), ed25519.PublicKeySize)
		case public:
			s.public = append(s.public, key)
		default:
			s.all = append(s.all, key)
		}
	}
	if s.fault == nil && (len(s.all) > 0 || len(s.public) == 0) {
		s.keys = s.checked()
	}
	return s
}

type standard struct {
	keys

	public []ed25519.PublicKey
}

func (standard) SchemeName() string { return "standard" }

func (s standard) Verify(h http.Header, body []byte, now time.Time) (Message, error) {
	if s.fault != nil {
		return Message{}, s.fault
	}
	prefix := "webhook-"
	if h.Get("webhook-id")+h.Get("webhook-timestamp")+h.Get("webhook-signature") == "" {
		prefix = "svix-"
	}
	fields, err := headers(h, prefix+"id", prefix+"timestamp")
	if err != nil {
		return Message{}, err
	}
	id, stamp := fields[0], fields[1]
	list := strings.Fields(strings.Join(h.Values(prefix+"signature"), " "))
	if len(list) == 0 {
		return Message{}, refused(NoSignature)
	}
	at, err := seconds(stamp)
	if err != nil {
		return Message{}, err
	}
	// With dots, "a.1.2.b" could be id "a.1", time 2, body "b"; or id "a", time 1, body "2.b".
	//guard:webhook-id-has-no-dot 2 false
	if err := checkID(id); err != nil || strings.Contains(id, ".") {
		return Message{}, refused(MalformedID)
	}
	//guard:webhook-standard-signature-is-compared 2 false
	if len(list) > mostSignatures || !s.signed(list, id+"."+stamp+".", body) {
		return Message{}, refused(WrongSignature)
	}
	if err := fresh(at, now); err != nil {
		return Message{}, err
	}
	return Message{Scheme: s.SchemeName(), ID: id, Type: object(body).text("type"), Time: time.Unix(at, 0).UTC()}, nil
}

// signed reports whether an entry of the list is a signature of head and then body.
func (s standard) signed(list []string, head string, body []byte) bool {
	var macs [][]byte
	var text []byte
	found := false
	for _, entry := range list {
		version, encoded, _ := strings.Cut(entry, ",")
		signature, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err != nil || len(signature) == 0 {
			continue
		}
		switch version {
		case "v1":
			macs = append(macs, signature)
		case "v1a":
			if text == nil {
				text = append([]byte(head), body...)
			}
			for _, key := range s.public {
				found = ed25519.Verify(key, text, signature) || found
			}
		}
	}
	return s.matches(macs, []byte(head), body) || found
}

func (s standard) sign(h http.Header, m Message, body []byte) error {
	if s.fault != nil {
		return s.fault
	}
	if len(s.all) == 0 {
		return fault("cannot sign with a public key")
	}
	stamp := strconv.FormatInt(m.Time.Unix(), 10)
	var list []string
	for _, key := range s.all {
		list = append(list, "v1,"+base64.StdEncoding.EncodeToString(sum(key, []byte(m.ID+"."+stamp+"."), body)))
	}
	h.Set("webhook-id", m.ID)
	h.Set("webhook-timestamp", stamp)
	h.Set("webhook-signature", strings.Join(list, " "))
	return nil
}
