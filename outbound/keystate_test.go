package outbound_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbound"
)

// written answers each attempt with a body.
func written(code int, media, body string) func(int, *http.Request) (*http.Response, error) {
	return func(int, *http.Request) (*http.Response, error) {
		resp := status(code, "Content-Type", media)
		resp.Body = io.NopCloser(strings.NewReader(body))
		return resp, nil
	}
}

// Services say in their bodies that a call with the key is running, or that the key was used. The
// first is no success and is tried again. After both, the vendor may have acted.
func TestWhatAnAnswerSaysAboutTheKey(t *testing.T) {
	const problem, json = "application/problem+json", "application/json; charset=utf-8"
	for name, tt := range map[string]struct {
		code        int
		media, body string
		protocol    outbound.Protocol

		class     outbound.Class // "" for a success
		attempts  int
		notDone   bool
		permanent bool
	}{
		"a guard with a status URL":            {code: 202, media: problem, body: `{"type":"urn:postroom:problem:idempotency_in_progress","code":"idempotency_in_progress"}`, class: outbound.ClassBusy, attempts: 5},
		"a guard with upper case":              {code: 202, media: problem, body: `{"code":"IDEMPOTENCY_IN_PROGRESS"}`, class: outbound.ClassBusy, attempts: 5},
		"a guard with dots, and JSON":          {code: 202, media: json, body: `{"code":"CONFLICT.idempotency.in_progress"}`, class: outbound.ClassBusy, attempts: 5},
		"a guard with a code of its own":       {code: 409, media: problem, body: `{"type":"https://a.example/errors#idempotency_in_progress","code":"E7"}`, class: outbound.ClassBusy, attempts: 5},
		"a problem with 202":                   {code: 202, media: problem, body: `{"title":"Try later"}`, class: outbound.ClassBusy, attempts: 5},
		"a problem with 202 that is not whole": {code: 202, media: problem, body: `{"title":`, class: outbound.ClassBusy, attempts: 5},
		"202 with a result":                    {code: 202, media: json, body: `{"id":"re_1","code":"accepted"}`, attempts: 1},
		"202 with text":                        {code: 202, media: "text/plain", body: `{"code":"idempotency_in_progress"}`, attempts: 1},
		"201 whose result has such a code":     {code: 201, media: json, body: `{"code":"idempotency_in_progress"}`, attempts: 1},
		"Stripe, in progress":                  {code: 409, media: json, body: `{"error":{"type":"invalid_request_error","code":"idempotency_key_in_use"}}`, protocol: outbound.Stripe(), class: outbound.ClassBusy, attempts: 5},
		"Stripe, another request":              {code: 400, media: json, body: `{"error":{"type":"idempotency_error","message":"…"}}`, protocol: outbound.Stripe(), class: outbound.ClassInvalid, attempts: 1, permanent: true},
		"PayPal, in progress":                  {code: 409, media: json, body: `{"name":"RESOURCE_CONFLICT","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}`, protocol: outbound.PayPal(), class: outbound.ClassBusy, attempts: 5},
		"PayPal, another request":              {code: 422, media: json, body: `{"name":"UNPROCESSABLE_ENTITY","details":[{"field":7,"issue":"PAYPAL_REQUEST_ID_PREVIOUSLY_USED"}]}`, protocol: outbound.PayPal(), class: outbound.ClassInvalid, attempts: 1, permanent: true},
		"Square, another request":              {code: 400, media: json, body: `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"IDEMPOTENCY_KEY_REUSED"}]}`, class: outbound.ClassInvalid, attempts: 1, permanent: true},
		"Amazon Pay, another request":          {code: 400, media: json, body: `{"reasonCode":"DuplicateIdempotencyKey"}`, protocol: outbound.AmazonPay(), class: outbound.ClassInvalid, attempts: 1, permanent: true},
		"Adyen, in progress or done":           {code: 422, media: json, body: `{"status":422,"errorCode":"704","errorType":"validation"}`, protocol: outbound.Adyen(), class: outbound.ClassInvalid, attempts: 1},
		"Adyen, in progress or done, as a 409": {code: 409, media: json, body: `{"status":409,"errorCode":"704"}`, protocol: outbound.Adyen(), class: outbound.ClassConflict, attempts: 1},
		"a vendor whose error is a text":       {code: 409, media: json, body: `{"error":"busy","code":"idempotency_in_progress"}`, class: outbound.ClassBusy, attempts: 5},
		"a guard, another request":             {code: 422, media: problem, body: `{"type":"urn:postroom:problem:idempotency_key_payload_mismatch","code":"E8"}`, class: outbound.ClassInvalid, attempts: 1, permanent: true},
		"a guard that does not repeat to you":  {code: 403, media: problem, body: `{"code":"replay_refused"}`, class: outbound.ClassAuth, attempts: 1, permanent: true},
		"a guard that has dropped the answer":  {code: 409, media: problem, body: `{"code":"idempotency_response_unavailable"}`, class: outbound.ClassConflict, attempts: 1},
		"a used key behind a byte order mark":  {code: 422, media: problem, body: "\ufeff" + `{"code":"idempotency_key_payload_mismatch"}`, class: outbound.ClassInvalid, attempts: 1, permanent: true},
		"a used key with a type written twice": {code: 422, media: json + "; charset=UTF-8", body: `{"code":"idempotency_key_payload_mismatch"}`, class: outbound.ClassInvalid, attempts: 1, permanent: true},
		"a used key, with hyphens":             {code: 422, media: problem, body: `{"type":"https://a.example/errors/idempotency-key-payload-mismatch"}`, class: outbound.ClassInvalid, attempts: 1, permanent: true},
		"in progress, with hyphens":            {code: 409, media: problem, body: `{"type":"https://a.example/errors/Idempotency-In-Progress"}`, class: outbound.ClassBusy, attempts: 5},
		"a refusal with another code":          {code: 422, media: problem, body: `{"code":"no_funds"}`, class: outbound.ClassInvalid, attempts: 1, notDone: true, permanent: true},
		"a refusal whose body is not JSON":     {code: 400, media: json, body: `idempotency_error`, class: outbound.ClassInvalid, attempts: 1, notDone: true, permanent: true},
		"a refusal that broke off":             {code: 400, media: json, body: `{"error":{"type":"idempotency_error"`, class: outbound.ClassInvalid, attempts: 1, notDone: true, permanent: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &vendor{answer: written(tt.code, tt.media, tt.body)}
				got, err := client(v, outbound.Config{Protocol: tt.protocol}).Fetch(request(outbound.WithKey(t.Context(), "k"), t, "POST", `{}`))
				if v.count() != tt.attempts {
					t.Errorf("%d attempts, want %d (%v)", v.count(), tt.attempts, err)
				}
				if tt.class == "" {
					if err != nil || string(got) != tt.body {
						t.Errorf("Fetch = %q, %v; want the body", got, err)
					}
					return
				}
				var e *outbound.Error
				if !errors.As(err, &e) || e.Class != tt.class || string(e.Last.Body) != tt.body {
					t.Fatalf("Fetch = %q, %v; want class %s and the body", got, err, tt.class)
				}
				if is := errors.Is(err, postroom.ErrNotApplied); is != tt.notDone {
					t.Errorf("NotApplied = %t, want %t", is, tt.notDone)
				}
				if is := errors.Is(outbound.ForHandler(err), postroom.ErrPermanent); is != tt.permanent {
					t.Errorf("permanent: %t, want %t", is, tt.permanent)
				}
				answer, _ := v.answer(0, nil)
				if err := outbound.CheckResponse(answer); !errors.As(err, &e) || e.Class != tt.class || string(e.Last.Body) != tt.body {
					t.Errorf("CheckResponse of the response = %v; want class %s and the body", err, tt.class)
				}
			})
		})
	}
}

// A refusal whose JSON was not read whole may say that the key was used. So it does not prove that
// the vendor did nothing, if the call has a key.
func TestAnUnreadRefusalProvesNothing(t *testing.T) {
	const used = `{"code":"idempotency_key_payload_mismatch"}`
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := io.WriteString(z, used)
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	long := func(code string) string {
		return `{"detail":"` + strings.Repeat("x", 16<<10) + `","code":"` + code + `"}`
	}
	for name, body := range map[string]func() io.Reader{
		"long":       func() io.Reader { return strings.NewReader(long("idempotency_key_payload_mismatch")) },
		"compressed": func() io.Reader { return bytes.NewReader(packed.Bytes()) },
		"broken off": func() io.Reader {
			return io.MultiReader(strings.NewReader(used[:9]), iotest.ErrReader(io.ErrUnexpectedEOF))
		},
	} {
		for _, code := range []int{400, 403, 422} {
			v := &vendor{answer: func(int, *http.Request) (*http.Response, error) {
				resp := status(code, "Content-Type", "application/problem+json")
				if name == "compressed" {
					resp.Header.Set("Content-Encoding", "gzip")
				}
				resp.Body = io.NopCloser(body())
				return resp, nil
			}}
			_, err := client(v, outbound.Config{}).Fetch(request(outbound.WithKey(t.Context(), "k"), t, "POST", `{}`))
			if err == nil || errors.Is(err, postroom.ErrNotApplied) {
				t.Errorf("%s, %d: %v, NotApplied %t; want an error, and a doubt", name, code, err, errors.Is(err, postroom.ErrNotApplied))
			}
			if _, err := client(v, outbound.Config{}).Fetch(request(t.Context(), t, "POST", `{}`)); !errors.Is(err, postroom.ErrNotApplied) {
				t.Errorf("%s, %d, without a key: %v is no rejection", name, code, err)
			}
		}
	}
}

// Without a key, a call that is in progress is not made again, and is no success.
func TestInProgressWithoutAKey(t *testing.T) {
	v := &vendor{answer: written(202, "application/problem+json", `{"code":"idempotency_in_progress"}`)}
	_, err := client(v, outbound.Config{}).Fetch(request(t.Context(), t, "POST", `{}`))
	var e *outbound.Error
	if !errors.As(err, &e) || e.Reason != outbound.ReasonUnsafe || v.count() != 1 || errors.Is(err, postroom.ErrNotApplied) {
		t.Errorf("%v after %d attempts; want one, and an error that says that the vendor may have acted", err, v.count())
	}
}
