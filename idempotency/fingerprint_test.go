package idempotency_test

import (
	"bytes"
	"encoding/hex"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postroom/postroom/idempotency"
)

func request(method, target, media, body string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	return r
}

func fingerprint(t *testing.T, method, target, media, body string) string {
	t.Helper()
	f, err := idempotency.FingerprintRequest(request(method, target, media, body), []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if f[0] != byte(idempotency.PrintRequest) {
		t.Errorf("fingerprint of kind %d", f[0])
	}
	return hex.EncodeToString(f[1:])
}

func TestFingerprintVectors(t *testing.T) {
	t.Parallel()
	const one = `{ "charge_id": "ch_9ab", "amount": 1000.0 }`
	for _, tt := range []struct{ name, target, media, body, want string }{
		{"first spelling", "/v1/refunds", "application/json", one, "36339c36ce8beff46ad6d0f38cd02a6e45a81fca5f827ea8b755d26103331665"},
		{"second spelling", "/v1/refunds", "application/json", `{"amount":1e3,"charge_id":"ch_9\u0061b"}`, "36339c36ce8beff46ad6d0f38cd02a6e45a81fca5f827ea8b755d26103331665"},
		{"media types have no case, and parameters do not count", "/v1/refunds", "Application/JSON ; charset=utf-8", one, "36339c36ce8beff46ad6d0f38cd02a6e45a81fca5f827ea8b755d26103331665"},
		{"with a query", "/v1/refunds?x=1", "application/json", one, "c1c0d0423d67cb10c096bbc3447c4b709463c847ae7d794892bff70695531217"},
		{"large amount", "/v1/refunds", "application/json", `{"charge_id":"ch_9ab","amount":9007199254740993}`, "c923eb86ca5fa51320f787e8d656f7a4191f9d28308c4e7f0c9f8d9c71a18e3c"},
	} {
		if got := fingerprint(t, "POST", tt.target, tt.media, tt.body); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// Each part of a request counts, and text cannot move from one part to the next without a change of
// the fingerprint.
func TestFingerprintTellsApart(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for name, p := range map[string][4]string{
		"as it is": {"POST", "/a", "application/json", `{"n":1}`}, "method": {"PUT", "/a", "application/json", `{"n":1}`},
		"path": {"POST", "/b", "application/json", `{"n":1}`}, "escaped path": {"POST", "/%61", "application/json", `{"n":1}`},
		"query": {"POST", "/a?b", "application/json", `{"n":1}`}, "media type": {"POST", "/a", "text/plain", `{"n":1}`},
		"amount": {"POST", "/a", "application/json", `{"n":2}`}, "text": {"POST", "/a", "application/json", `{"n":"1"}`},
		"large 2": {"POST", "/a", "application/json", `{"n":9007199254740992}`}, "large 3": {"POST", "/a", "application/json", `{"n":9007199254740993}`},
		"many digits 2": {"POST", "/a", "application/json", `{"n":9007199254740.992}`}, "many digits 3": {"POST", "/a", "application/json", `{"n":9007199254740.993}`},
		"cents 68": {"POST", "/a", "application/json", `{"n":123456789012345.68}`}, "cents 69": {"POST", "/a", "application/json", `{"n":123456789012345.69}`},
		"no JSON": {"POST", "/a", "application/json", `{"n":1`}, "one name twice": {"POST", "/a", "application/json", `{"n":1,"n":1}`},
		"and the other": {"POST", "/a", "application/json", `{"n":1,"n":2}`}, "no body": {"POST", "/a", "application/json", ""},
		"field boundary": {"POST", "/a", "", `application/json{"n":1}`}, "white space in text": {"POST", "/a", "text/plain", `{"n": 1}`},
	} {
		f := fingerprint(t, p[0], p[1], p[2], p[3])
		if other, ok := seen[f]; ok {
			t.Errorf("%s and %s have one fingerprint", name, other)
		}
		seen[f] = name
	}
	if fingerprint(t, "POST", "/a", "application/problem+json", `{"n":1}`) != fingerprint(t, "POST", "/a", "application/problem+json", `{ "n":1.0 }`) {
		t.Error("JSON of another type is not compared as JSON")
	}
}

// Package encoding/json of a handler takes two names that differ in letter case only for one member,
// and the later value counts. So two bodies with the members in another order are two requests.
func TestNamesThatDifferInLetterCaseOnly(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{`{"amount":1,"Amount":1000}`, `{"Amount":1000,"amount":1}`},
		{`{"a":[{"in":{"id":"x","ID":"y"}}]}`, `{"a":[{"in":{"ID":"y","id":"x"}}]}`},
		{`{"\u212A":1,"k":2}`, `{"k":2,"\u212A":1}`}, // the Kelvin sign is a k
		{`{"ſ":1,"S":2}`, `{"S":2,"ſ":1}`},
		{`{"É":1,"é":2}`, `{"é":2,"É":1}`},
		{`{"B":1,"a":0,"b":2}`, `{"b":2,"a":0,"B":1}`},
		{`{"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0,"j":0,"s":1,"ſ":2}`, `{"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0,"j":0,"ſ":2,"s":1}`},
	} {
		if fingerprint(t, "POST", "/a", "application/json", pair[0]) == fingerprint(t, "POST", "/a", "application/json", pair[1]) {
			t.Errorf("%s and %s are one request", pair[0], pair[1])
		}
	}
	same := [2]string{`{"amount":1,"Account":{"amount":2}}`, `{"Account":{"amount":2},"amount":1}`}
	if fingerprint(t, "POST", "/a", "application/json", same[0]) != fingerprint(t, "POST", "/a", "application/json", same[1]) {
		t.Error("the order of other members counts")
	}
}

// form writes a form with a file and a new boundary.
func form(t *testing.T, name, content string) (media, body string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	file, err := w.CreateFormFile("file", name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), b.String()
}

func TestMultipartIsComparedByItsParts(t *testing.T) {
	t.Parallel()
	of := func(name, content string) string {
		media, body := form(t, name, content)
		return fingerprint(t, "POST", "/a", media, body)
	}
	one := of("a.txt", "hello")
	if of("a.txt", "hello") != one {
		t.Error("two boundaries make two fingerprints")
	}
	if of("a.txt", "hello!") == one || of("b.txt", "hello") == one {
		t.Error("another content or name makes no difference")
	}
}

// Parts are different if only their headers are different. The order of headers makes no difference.
func TestMultipartIsComparedByTheHeadersOfItsParts(t *testing.T) {
	t.Parallel()
	of := func(kind, head string) string {
		return fingerprint(t, "POST", "/a", "multipart/"+kind+"; boundary=b", "--b\r\n"+head+"\r\n\r\n{\"amount\":1}\r\n--b--\r\n")
	}
	const json, field = "Content-Type: application/json\r\n", "Content-Disposition: form-data; name=f"
	for name, heads := range map[string][3]string{
		"Content-ID":                {"mixed", json + "Content-ID: <account-1>", json + "Content-ID: <account-2>"},
		"Content-Location":          {"mixed", json + "Content-Location: /a/1/pay", json + "Content-Location: /a/2/pay"},
		"Content-Transfer-Encoding": {"form-data", field + "\r\nContent-Transfer-Encoding: base64", field + "\r\nContent-Transfer-Encoding: binary"},
		"one header more":           {"form-data", field, field + "\r\nContent-ID: <1>"},
		"name of an attachment":     {"mixed", "Content-Disposition: attachment; name=a", "Content-Disposition: attachment; name=b"},
		"disposition":               {"mixed", "Content-Disposition: attachment; filename=a", "Content-Disposition: inline; filename=a"},
		"directory of a file":       {"form-data", field + `; filename="a/x"`, field + `; filename="b/x"`},
		"parameter":                 {"form-data", field + "; size=1", field + "; size=2"},
		"second type":               {"mixed", json + "Content-Type: a/b", json + "Content-Type: a/c"},
	} {
		if of(heads[0], heads[1]) == of(heads[0], heads[2]) {
			t.Errorf("another %s makes no difference", name)
		}
	}
	if of("mixed", json+"Content-ID: <1>") != of("mixed", "content-id: <1>\r\n"+strings.TrimSpace(json)) {
		t.Error("the order of headers, or the case of their names, makes a difference")
	}
	// Rows of the table have the fingerprints of usual forms.
	const usual = "b0b6ac6c1e8ab482be8a48dec3791421bc1f90a26b114b5669c9a2dff7ac5b46"
	if got := of("form-data", field+`; filename="x"`+"\r\nContent-Type: text/plain"); got != usual {
		t.Errorf("the fingerprint of a usual form is %s, want %s", got, usual)
	}
}

// The two forms treat numbers differently.
func TestCanonicalForms(t *testing.T) {
	t.Parallel()
	const in = ` { "b" : 9007199254740993, "a":1e3 } `
	if got, err := idempotency.CanonicalJSON([]byte(in)); err != nil || string(got) != `{"a":1000,"b":9007199254740993}` {
		t.Errorf("CanonicalJSON = %s, %v", got, err)
	}
	if got, err := idempotency.CanonicalJCS([]byte(in)); err != nil || string(got) != `{"a":1000,"b":9007199254740992}` {
		t.Errorf("CanonicalJCS = %s, %v", got, err)
	}
}
