package webhook

import (
	"encoding/json"
	"net/http"

	"github.com/postroom/postroom"
)

// outcome says what the receiver did with a request. Metrics contain the outcome.
type outcome string

// Outcomes of requests.
const (
	stored        outcome = "stored"
	duplicate     outcome = "duplicate"
	changed       outcome = "changed"
	conflict      outcome = "conflict"
	ignored       outcome = "ignored"
	handshake     outcome = "handshake"
	rejected      outcome = "rejected"
	withoutID     outcome = "without_id"
	form          outcome = "form"
	encoded       outcome = "encoded"
	unreadable    outcome = "unreadable"
	tooSlow       outcome = "too_slow"
	tooLarge      outcome = "too_large"
	otherMethod   outcome = "other_method"
	noEvent       outcome = "no_event"
	misconfigured outcome = "misconfigured"
	unavailable   outcome = "unavailable"
)

// result is the result of one request.
type result struct {
	outcome outcome
	reason  Reason // the reason of a rejected request; the sender never gets the reason
	err     error  // the error is never sent to the sender
	event   postroom.Event
	reply   *Reply
	remote  string
}

// problem is a problem details object of RFC 9457.
type problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Retryable bool   `json:"retryable"`
}

// answer is an answer: a status, and a body that depends only on the outcome.
type answer struct {
	status int
	body   []byte
}

// The map answers has the answer for each outcome whose status is not 200.
var answers = map[outcome]answer{
	rejected:      newAnswer(http.StatusUnauthorized, "webhook_verification_failed", "The request could not be verified"),
	withoutID:     newAnswer(http.StatusBadRequest, "webhook_without_id", "The request has no id"),
	form:          newAnswer(http.StatusUnsupportedMediaType, "webhook_is_form", "The body is a form; set the webhook to send JSON"),
	encoded:       newAnswer(http.StatusUnsupportedMediaType, "webhook_is_encoded", "The body is compressed; set the webhook to send it as it is"),
	unreadable:    newAnswer(http.StatusBadRequest, "unreadable_request", "The request's body could not be read"),
	tooSlow:       newAnswer(http.StatusRequestTimeout, "request_too_slow", "The request's body arrived too slowly"),
	tooLarge:      newAnswer(http.StatusRequestEntityTooLarge, "request_too_large", "The request's body is too large"),
	otherMethod:   newAnswer(http.StatusMethodNotAllowed, "method_not_allowed", "Webhooks are sent with POST"),
	noEvent:       newAnswer(http.StatusInternalServerError, "webhook_not_processed", "The request could not be processed, and was not stored"),
	misconfigured: newAnswer(http.StatusInternalServerError, "webhook_misconfigured", "The endpoint is not set up correctly"),
	unavailable:   newAnswer(http.StatusServiceUnavailable, "webhook_not_stored", "It is not known whether the request was stored; send it again"),
}

func newAnswer(status int, code, title string) answer {
	p := problem{Type: "urn:postroom:problem:" + code, Title: title, Status: status, Code: code, Retryable: status >= 500 || status == http.StatusRequestTimeout}
	text, _ := json.Marshal(p) // this cannot fail: there are only texts, a number and a bool
	return answer{status: status, body: append(text, '\n')}
}

// status returns the status of the answer.
func (r result) status() int {
	if a, found := answers[r.outcome]; found {
		return a.status
	}
	return http.StatusOK
}

// send answers the request.
func (r result) send(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	switch r.outcome {
	case unavailable:
		h.Set("Retry-After", "1")
	case otherMethod:
		h.Set("Allow", http.MethodPost)
	case encoded:
		h.Set("Accept-Encoding", "identity") // RFC 9110, section 12.5.3
	case tooSlow, tooLarge:
		h.Set("Connection", "close") // the rest of the body was not read
	}
	a := answers[r.outcome]
	if a.status != 0 {
		h.Set("Content-Type", "application/problem+json")
	} else if r.reply != nil {
		a.body = r.reply.Body
		if r.reply.ContentType != "" {
			h.Set("Content-Type", r.reply.ContentType)
		}
	}
	w.WriteHeader(r.status())
	_, _ = w.Write(a.body) // the sender may be gone
}
