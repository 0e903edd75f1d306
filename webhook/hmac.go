package webhook

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postroom/postroom"
)

// HMAC is the scheme of a provider that signs with HMAC-SHA256 in its own format. Signature, ID and
// Secrets are required. If the id is in a header and not in Signed, an attacker can send a captured
// request again with a new id: see [IDFromBody]. If the type is in a header, it is never signed.
type HMAC struct {
	// Name is the first part of the events' types.
	//
	// Defaults to "hmac".
	Name string

	// Secrets are the keys. The signature must fit one of the keys.
	Secrets []string

	// SecretsBase64 says that Secrets are in base64, and that the decoded bytes are the keys.
	SecretsBase64 bool

	// Signature is the name of a header. Its value is Prefix and then the signature in hex.
	Signature, Prefix string

	// Base64 says that the signature is in base64.
	Base64 bool

	// Signed is the text that the provider signs. It must have {body}. It must have {time} if Time
	// is set, and may have {id} if ID is a header.
	//
	// Defaults to "{body}".
	Signed string

	// Time is the name of the header with the time of signing, in seconds since 1970. Set Time if
	// Signed has {time}, and only then: a time that is not signed proves nothing.
	Time string

	// ID and Type are names of headers, or paths in the JSON body: ".id" is the member id, and
	// ".event.id" is the member id of the member event.
	ID, Type string
}

var placeholder = regexp.MustCompile(`\{[a-z]*\}`)

// Verify verifies a request; see [Scheme].
func (s HMAC) Verify(h http.Header, body []byte, now time.Time) (Message, error) {
	k, err := s.keys()
	if err != nil {
		return Message{}, err
	}
	signature, err := header(h, s.Signature)
	if err != nil {
		return Message{}, err
	}
	if signature == "" {
		return Message{}, refused(NoSignature)
	}
	m := Message{Scheme: s.SchemeName(), UnsignedType: s.Type != "" && !strings.HasPrefix(s.Type, ".")}
	if m.ID, err = header(h, s.ID); err != nil { // the ID is empty for a path, which s.read follows after the body was verified
		return Message{}, err
	}
	if m.Type, err = header(h, s.Type); err != nil {
		return Message{}, err
	}
	stamp, at := "", int64(0)
	if s.Time != "" {
		if stamp, err = header(h, s.Time); err != nil {
			return Message{}, err
		}
		if at, err = seconds(stamp); err != nil {
			return Message{}, err
		}
		m.Time = time.Unix(at, 0).UTC()
	}
	if err := checkID(m.ID); err != nil || s.isAmbiguous(m.ID) {
		return Message{}, refused(MalformedID)
	}
	encoded, hasPrefix := strings.CutPrefix(signature, s.Prefix)
	got := fromHex(encoded)
	if s.Base64 {
		got = fromBase64(encoded)
	}
	if !hasPrefix {
		got = nil
	}
	if err := k.verify([][]byte{got}, s.parts(m.ID, stamp, body)...); err != nil {
		return Message{}, err
	}
	if s.Time != "" {
		if err := fresh(at, now); err != nil {
			return Message{}, err
		}
	}
	return s.read(m, body)
}

// read sets the ID and the Type that are in the body.
func (s HMAC) read(m Message, body []byte) (Message, error) {
	idPath, inID := strings.CutPrefix(s.ID, ".")
	typePath, inType := strings.CutPrefix(s.Type, ".")
	if !inID && !inType {
		return m, nil
	}
	o := object(body)
	if inID {
		m.ID = o.at(idPath)
	}
	if inType {
		m.Type = o.at(typePath)
	}
	if err := checkID(m.ID); err != nil {
		return Message{}, err
	}
	return m, nil
}

// SchemeName returns Name, or its default.
func (s HMAC) SchemeName() string { return cmp.Or(s.Name, "hmac") }

func (s HMAC) signed() string { return cmp.Or(s.Signed, "{body}") }

// parts returns the signed text, in parts.
func (s HMAC) parts(id, stamp string, body []byte) [][]byte {
	template := s.signed()
	var parts [][]byte
	for {
		at := placeholder.FindStringIndex(template)
		if at == nil {
			return append(parts, []byte(template))
		}
		parts = append(parts, []byte(template[:at[0]]))
		switch template[at[0]:at[1]] {
		case "{id}":
			parts = append(parts, []byte(id))
		case "{time}":
			parts = append(parts, []byte(stamp))
		case "{body}":
			parts = append(parts, body)
		}
		template = template[at[1]:]
	}
}

// neighbours returns the text between {id} and the placeholder before {id}, and the text between
// {id} and the placeholder after {id}. Without such a placeholder, the slice is empty.
func (s HMAC) neighbours() (before, after []string) {
	left, right, found := strings.Cut(s.signed(), "{id}")
	if !found {
		return nil, nil
	}
	if at := placeholder.FindAllStringIndex(left, -1); at != nil {
		before = append(before, left[at[len(at)-1][1]:])
	}
	if at := placeholder.FindStringIndex(right); at != nil {
		after = append(after, right[:at[0]])
	}
	return before, after
}

// isAmbiguous reports whether the text next to an id also occurs within the id, or partly within
// the id. If it does, a request with another id and another body could have the same signed text.
// The time needs no such check: the times that fresh accepts all have the same number of digits.
func (s HMAC) isAmbiguous(id string) bool {
	before, after := s.neighbours()
	for _, n := range before {
		//guard:webhook-separator-overlaps-behind-the-body = strings.Contains(@1.1.2, @1.1.1)
		if strings.LastIndex(n+id, n) > 0 {
			return true
		}
	}
	for _, n := range after {
		//guard:webhook-separator-overlaps-before-the-body = strings.Contains(@1.1.1, @1.1.2)
		if strings.Index(id+n, n) < len(id) {
			return true
		}
	}
	return false
}

// keys returns the decoded secrets, or the fault of the settings.
func (s HMAC) keys() (keys, error) {
	if err := s.check(); err != nil {
		return keys{}, err
	}
	k := keys{}
	for _, secret := range s.Secrets {
		key := []byte(secret)
		if s.SecretsBase64 {
			var err error
			if key, err = base64.StdEncoding.DecodeString(secret); err != nil {
				return keys{}, fault("a secret of HMAC is not base64")
			}
		}
		k.all = append(k.all, key)
	}
	k = k.checked()
	return k, k.fault
}

func (s HMAC) check() error {
	template := s.signed()
	count := make(map[string]int)
	for _, p := range placeholder.FindAllString(template, -1) {
		count[p]++
	}
	for p, n := range count {
		if p != "{id}" && p != "{time}" && p != "{body}" {
			return fault("HMAC.Signed has %s, want only {id}, {time} and {body}", p)
		}
		if n > 1 {
			return fault("HMAC.Signed has %s twice", p)
		}
	}
	switch {
	case s.Signature == "":
		return fault("HMAC.Signature is required")
	case s.ID == "":
		return fault("HMAC.ID is required")
	case count["{body}"] == 0:
		return fault("HMAC.Signed lacks {body}: an attacker could change the body")
	case count["{id}"] > 0 && strings.HasPrefix(s.ID, "."):
		return fault("HMAC.Signed has {id}, but HMAC.ID is not a header")
	case (count["{time}"] > 0) != (s.Time != ""):
		return fault("HMAC.Signed must have {time} if HMAC.Time names a header, and must not have it otherwise")
	case strings.HasPrefix(s.Time, "."):
		return fault("HMAC.Time is not a header")
	//guard:webhook-hmac-names-headers-or-paths remove
	case s.nameFaults() != nil:
		return s.nameFaults()
	}
	if before, after := s.neighbours(); slices.Contains(before, "") || slices.Contains(after, "") {
		return fault("HMAC.Signed has no text between {id} and the placeholder next to it: the signed text could be read in two ways")
	}
	if err := (postroom.Event{Type: s.SchemeName()}).Validate(); err != nil {
		return fault("HMAC.Name cannot be the first part of a type: %w", err)
	}
	return nil
}

// nameFaults returns an error if a setting can name neither a header nor, where it may, a member of
// the body. A header may have a dot in its name, but none does: such a name is a path whose first dot
// was forgotten. The receiver would find no such header in any request.
func (s HMAC) nameFaults() error {
	for _, of := range []struct {
		setting, name string
		mayBePath     bool
	}{{"Signature", s.Signature, false}, {"Time", s.Time, false}, {"ID", s.ID, true}, {"Type", s.Type, true}} {
		path, isPath := strings.CutPrefix(of.name, ".")
		switch {
		case of.name == "":
		case isPath && of.mayBePath && slices.Contains(strings.Split(path, "."), ""):
			return fault("HMAC.%s: the path %.100q has an empty name", of.setting, of.name)
		case (!isPath || !of.mayBePath) && !validHeader.MatchString(of.name):
			return fault("HMAC.%s: %.100q is not the name of a header: use letters, digits, '-' and '_'; a path in the body begins with a dot", of.setting, of.name)
		}
	}
	return nil
}

var validHeader = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func (s HMAC) sign(h http.Header, m Message, body []byte) error {
	k, err := s.keys()
	if err != nil {
		return err
	}
	stamp := ""
	if s.Time != "" {
		stamp = strconv.FormatInt(m.Time.Unix(), 10)
		h.Set(s.Time, stamp)
	}
	for name, value := range map[string]string{s.ID: m.ID, s.Type: m.Type} {
		if name != "" && !strings.HasPrefix(name, ".") {
			h.Set(name, value)
		}
	}
	signature := sum(k.all[0], s.parts(m.ID, stamp, body)...)
	encoded := hex.EncodeToString(signature)
	if s.Base64 {
		encoded = base64.StdEncoding.EncodeToString(signature)
	}
	h.Set(s.Signature, s.Prefix+encoded)
	return nil
}
