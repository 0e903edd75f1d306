package answer

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// Send sends the status and the body of an answer. w must already have the header.
func Send(w http.ResponseWriter, status int, body []byte) {
	if HasBody(status) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	if HasBody(status) {
		_, _ = w.Write(body) // if the client is gone, a retry gets the answer
	}
}

// IsFinal reports whether an answer is an error that another attempt would get too.
func IsFinal(status int) bool {
	switch status {
	case 401, 403, 408, 409, 421, 423, 425, 429:
		return false
	}
	return status >= 400 && status < 500
}

// Become makes h equal to the header other. So it removes headers of h that other does not have.
func Become(h, other http.Header) {
	//guard:a-header-can-be-taken-away remove
	clear(h)
	maps.Copy(h, other)
}

// Problem is a problem details object of RFC 9457.
type Problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail,omitempty"`
	Code      string `json:"code"`
	Retryable bool   `json:"retryable"`
}

// Send answers with the problem. If p.Retryable is set, the answer has a Retry-After header. The
// value of this header is the parameter again, rounded up to whole seconds.
func (p Problem) Send(w http.ResponseWriter, again time.Duration) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if p.Retryable {
		seconds := int64(again / time.Second)
		if again%time.Second > 0 {
			seconds++
		}
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	text, _ := json.Marshal(p) // cannot fail for fields of these types
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(text, '\n')) // the client may be gone
}
