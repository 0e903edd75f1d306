package main

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The vector of Standard Webhooks' own tests, and the same webhook signed with a
// second secret.
const (
	vectorSecret  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secondSecret  = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	vectorID      = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTime    = 1614265330
	vectorBody    = `{"test": 2432232314}`
	vectorSigned  = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	secondSigned  = "v1,78nXHjpFP0tVJQW5D0SBwmVyyW87BV/rL6MgfM/Bw44="
	wrongSigned   = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
	anotherScheme = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
)

func TestVerify(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		secrets   string
		id        string
		stamp     string
		body      string
		signature string
		away      time.Duration // the clock's distance from the timestamp
		ok        bool
	}{
		{"published vector", vectorSecret, vectorID, "", vectorBody, vectorSigned, 0, true},
		{"second secret", secondSecret, vectorID, "", vectorBody, secondSigned, 0, true},
		{"both secrets, old signature", vectorSecret + " " + secondSecret, vectorID, "", vectorBody, vectorSigned, 0, true},
		{"both secrets, new signature", vectorSecret + " " + secondSecret, vectorID, "", vectorBody, secondSigned, 0, true},
		{"one secret, both signatures", secondSecret, vectorID, "", vectorBody, vectorSigned + " " + secondSigned, 0, true},
		{"after one of another version", vectorSecret, vectorID, "", vectorBody, anotherScheme + " " + vectorSigned, 0, true},
		{"wrong signature", vectorSecret, vectorID, "", vectorBody, wrongSigned, 0, false},
		{"another secret", secondSecret, vectorID, "", vectorBody, vectorSigned, 0, false},
		{"another version only", vectorSecret, vectorID, "", vectorBody, anotherScheme, 0, false},
		{"right signature as another version", vectorSecret, vectorID, "", vectorBody, strings.Replace(vectorSigned, "v1", "v2", 1), 0, false},
		{"no signature", vectorSecret, vectorID, "", vectorBody, "", 0, false},
		{"empty signature", vectorSecret, vectorID, "", vectorBody, "v1,", 0, false},
		{"signature that is no base64", vectorSecret, vectorID, "", vectorBody, "v1,!", 0, false},
		{"half a signature", vectorSecret, vectorID, "", vectorBody, vectorSigned[:20] + "==", 0, false},
		{"another body", vectorSecret, vectorID, "", vectorBody + "\n", vectorSigned, 0, false},
		{"another id", vectorSecret, vectorID + "x", "", vectorBody, vectorSigned, 0, false},
		{"another time", vectorSecret, vectorID, strconv.Itoa(vectorTime + 1), vectorBody, vectorSigned, 0, false},
		{"no id", vectorSecret, "", "", vectorBody, vectorSigned, 0, false},
		{"id with a dot", vectorSecret, "msg.1", "", vectorBody, vectorSigned, 0, false},
		{"no timestamp", vectorSecret, vectorID, " ", vectorBody, vectorSigned, 0, false},
		{"timestamp with a sign", vectorSecret, vectorID, "+" + strconv.Itoa(vectorTime), vectorBody, vectorSigned, 0, false},
		{"five minutes old", vectorSecret, vectorID, "", vectorBody, vectorSigned, tolerance, true},
		{"five minutes early", vectorSecret, vectorID, "", vectorBody, vectorSigned, -tolerance, true},
		{"older", vectorSecret, vectorID, "", vectorBody, vectorSigned, tolerance + time.Second, false},
		{"earlier", vectorSecret, vectorID, "", vectorBody, vectorSigned, -tolerance - time.Second, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v, err := newVerifier(strings.Fields(tt.secrets)...)
			if err != nil {
				t.Fatal(err)
			}
			v.now = func() time.Time { return time.Unix(vectorTime, 0).Add(tt.away) }
			if tt.stamp == "" {
				tt.stamp = strconv.Itoa(vectorTime)
			}
			h := http.Header{}
			h.Set("webhook-id", tt.id)
			h.Set("webhook-timestamp", tt.stamp)
			h.Set("webhook-signature", tt.signature)
			id, err := v.verify(h, []byte(tt.body))
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, errUnverified) || err == nil && id != vectorID {
				t.Errorf("verify = %q, %v", id, err)
			}
		})
	}
}

// An id with a dot is refused even where it is signed as it should be.
func TestSignedIDWithADotIsRefused(t *testing.T) {
	t.Parallel()
	v, err := newVerifier(vectorSecret)
	if err != nil {
		t.Fatal(err)
	}
	h, stamp := http.Header{}, strconv.FormatInt(time.Now().Unix(), 10)
	h.Set(headerTimestamp, stamp)
	for id, ok := range map[string]bool{"msg_1": true, "msg.1": false, strings.Repeat("x", 256): false} {
		h.Set(headerID, id)
		h.Set(headerSignature, sign(v.keys[0], id, stamp, []byte(vectorBody)))
		if _, err := v.verify(h, []byte(vectorBody)); (err == nil) != ok {
			t.Errorf("verify of id %.10s: %v", id, err)
		}
	}
}

func TestSecretsAreChecked(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"", "whsec_", "whsec_!"} {
		if _, err := newVerifier(vectorSecret, secret); err == nil {
			t.Errorf("secret %q was taken", secret)
		}
	}
	if _, err := newVerifier(); err == nil {
		t.Error("no secret was taken")
	}
	if key, err := decodeSecret(newSecret()); err != nil || len(key) != 32 {
		t.Errorf("new secret is of %d bytes, %v", len(base64.StdEncoding.EncodeToString(key)), err)
	}
}
