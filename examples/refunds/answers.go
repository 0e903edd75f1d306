package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/postroom/postroom/outbound"
)

// refusal is an answer that does not report success. It has the form of problem details of RFC
// 9457.
type refusal struct {
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail,omitempty"`
	Code      string `json:"code"`
	Retryable bool   `json:"retryable"`
}

func (r *refusal) Error() string { return r.Code }

// Final answers. A later request with the same key gets the same answer.
var errNoCharge = &refusal{Status: http.StatusNotFound, Code: "charge_not_found", Title: "There is no such charge"}

func invalid(detail string) error {
	return &refusal{Status: http.StatusBadRequest, Code: "invalid_request", Title: "The request is not valid", Detail: detail}
}

func tooLarge(left int64) error {
	return &refusal{
		Status: http.StatusUnprocessableEntity, Code: "refund_exceeds_charge", Title: "The refund is larger than what is left of the charge",
		Detail: fmt.Sprintf("%d cents are left.", left),
	}
}

func declined(reason string) error {
	return &refusal{Status: http.StatusPaymentRequired, Code: "payment_declined", Title: "The provider declined", Detail: reason}
}

// Temporary answers. The guard of package idempotency does not store them, so a client may send the
// request again with the same key.
var (
	errNobody = &refusal{Status: http.StatusUnauthorized, Code: "unauthorized", Title: "It is not known who sends the request"}
	errVendor = &refusal{
		Status: http.StatusServiceUnavailable, Code: "provider_unavailable", Title: "The provider does not answer", Retryable: true,
		Detail: "Send the same request again later, with the same key: what was done is not done again.",
	}
	errStore = &refusal{
		Status: http.StatusServiceUnavailable, Code: "service_unavailable", Title: "The request was not completed", Retryable: true,
		Detail: errVendor.Detail,
	}
)

// refusalOf returns the answer for an error. If a request lost the claim of its key, the guard
// sends another answer instead, and the client sends the request again.
func refusalOf(err error) *refusal {
	var refused *refusal
	var vendor *outbound.Error
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &vendor):
		return errVendor
	}
	return errStore
}

// refuse answers a request with the refusal for an error.
func (s *service) refuse(w http.ResponseWriter, r *http.Request, err error) {
	answer := refusalOf(err)
	if answer.Retryable {
		w.Header().Set("Retry-After", "1")
		s.log.WarnContext(r.Context(), "a request was not completed", "path", r.URL.Path, "code", answer.Code, "error", err)
	}
	reply(w, answer.Status, "application/problem+json", answer)
}

func reply(w http.ResponseWriter, status int, media string, v any) {
	text, _ := json.Marshal(v) // cannot fail: v has only plain values, or JSON of the database
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client may be gone
}
