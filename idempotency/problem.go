package idempotency

import (
	"context"
	"errors"
)

// Code is the value of a problem's member "code". Codes are stable, so programs should decide by
// the code, and not by the status.
type Code string

// The codes of problems.
const (
	CodeMissingKey     Code = "missing_idempotency_key"          // 400
	CodeInvalidKey     Code = "invalid_idempotency_key"          // 400
	CodeNotSupported   Code = "idempotency_not_supported"        // 400: the operation accepts no key
	CodeUnreadable     Code = "unreadable_request"               // 400: the body could not be read
	CodeUnauthorized   Code = "missing_principal"                // 401
	CodeReplayRefused  Code = "replay_refused"                   // 403: Route.AuthorizeReplay refused
	CodeInProgress     Code = "idempotency_in_progress"          // 409, or 202
	CodeUnrepeatable   Code = "idempotency_response_unavailable" // done, but the answer was not kept (409) or cannot be read (503)
	CodeRequestLarge   Code = "request_too_large"                // 413
	CodeMultipart      Code = "multipart_not_supported"          // 415
	CodeMismatch       Code = "idempotency_key_payload_mismatch" // 422, 409 or 400
	CodeResponseLarge  Code = "response_too_large"               // 500
	CodeNotCommitted   Code = "transaction_failed"               // 500
	CodeMisconfigured  Code = "idempotency_misconfigured"        // 500
	CodeContention     Code = "transaction_conflict"             // 503
	CodeInterrupted    Code = "request_interrupted"              // 503: its time ran out, and nothing was done
	CodeUnavailable    Code = "idempotency_store_unavailable"    // 503: this request did nothing
	CodeOutcomeUnknown Code = "idempotency_outcome_unknown"      // 503: try the same key again to find out
)

// Other spellings of the codes, for [Config.Codes].
var (
	CodesUpper = map[Code]string{
		CodeMissingKey: "MISSING_IDEMPOTENCY_KEY", CodeInvalidKey: "INVALID_IDEMPOTENCY_KEY", CodeInProgress: "IDEMPOTENCY_IN_PROGRESS",
		CodeMismatch: "IDEMPOTENCY_KEY_REUSE", CodeUnavailable: "IDEMPOTENCY_STORE_UNAVAILABLE",
		CodeOutcomeUnknown: "IDEMPOTENCY_OUTCOME_UNKNOWN", CodeUnrepeatable: "IDEMPOTENCY_RESPONSE_UNAVAILABLE",
	}
	CodesDotted = map[Code]string{
		CodeMissingKey: "VALIDATION.idempotency.missing_key", CodeInvalidKey: "VALIDATION.idempotency.invalid_key",
		CodeInProgress: "CONFLICT.idempotency.in_progress", CodeMismatch: "CONFLICT.idempotency.payload_mismatch",
		CodeUnavailable: "DEPENDENCY.idempotency.store_unavailable", CodeOutcomeUnknown: "DEPENDENCY.idempotency.outcome_unknown",
		CodeUnrepeatable: "CONFLICT.idempotency.response_unavailable",
	}
)

// statusOf has the status of each code.
var statusOf = map[Code]int{
	CodeMissingKey: 400, CodeInvalidKey: 400, CodeNotSupported: 400, CodeUnreadable: 400, CodeUnauthorized: 401, CodeReplayRefused: 403,
	CodeInProgress: 409, CodeUnrepeatable: 409, CodeRequestLarge: 413, CodeMultipart: 415, CodeMismatch: 422,
	CodeResponseLarge: 500, CodeNotCommitted: 500, CodeMisconfigured: 500, CodeContention: 503, CodeInterrupted: 503, CodeUnavailable: 503, CodeOutcomeUnknown: 503,
}

// titleOf has the title of each code. The title never changes.
var titleOf = map[Code]string{
	CodeMissingKey:     "An Idempotency-Key is required",
	CodeInvalidKey:     "The Idempotency-Key is not valid",
	CodeNotSupported:   "This operation accepts no Idempotency-Key",
	CodeUnreadable:     "The request's body could not be read",
	CodeUnauthorized:   "It is not known who sends the request",
	CodeReplayRefused:  "The request was carried out, but its answer is not for this caller",
	CodeInProgress:     "A request with this Idempotency-Key is in progress",
	CodeUnrepeatable:   "The request was carried out, but its answer is not available",
	CodeRequestLarge:   "The request's body is too large",
	CodeMultipart:      "Multipart bodies are not accepted with an Idempotency-Key",
	CodeMismatch:       "The Idempotency-Key was used for another request",
	CodeResponseLarge:  "The answer is too large, and nothing was done",
	CodeNotCommitted:   "The request could not be carried out: its transaction was not committed",
	CodeMisconfigured:  "The operation is not set up correctly",
	CodeContention:     "The request conflicted with another one, and nothing was done",
	CodeInterrupted:    "The request's time was over before it was carried out, and nothing was done",
	CodeUnavailable:    "Idempotency-Keys cannot be looked up at present, so this request did nothing",
	CodeOutcomeUnknown: "It is not known whether the request was carried out",
}

// detailOf says what the client can do.
var detailOf = map[Code]string{
	CodeMissingKey:     "Send an Idempotency-Key that is unique to this operation, and the same key when you repeat it.",
	CodeMismatch:       "Use a new key for a new request. The first request is not affected.",
	CodeInProgress:     "Send the same request again later, with the same key.",
	CodeContention:     "Send the same request again, with the same key.",
	CodeInterrupted:    "Send the same request again, with the same key, and give it more time.",
	CodeUnavailable:    "Send the same request again later, with the same key.",
	CodeOutcomeUnknown: "Send the same request again, with the same key, to find out.",
	CodeNotSupported:   "Send the request without a key.",
}

// retryable reports whether the same request may have another answer later.
func (c Code) retryable() bool {
	switch c {
	case CodeInProgress, CodeContention, CodeInterrupted, CodeUnavailable, CodeOutcomeUnknown, CodeUnreadable:
		return true
	}
	return false
}

// codeOf returns the code of an error of a call.
func codeOf(err error) Code {
	for _, c := range []struct {
		err  error
		code Code
	}{
		{ErrMissingKey, CodeMissingKey},
		{ErrInvalidKey, CodeInvalidKey},
		{ErrMismatch, CodeMismatch},
		{ErrLeaseLost, CodeInProgress},
		{ErrInProgress, CodeInProgress},
		{ErrDropped, CodeUnrepeatable},
		{ErrUnreadable, CodeUnrepeatable},
		{ErrTooLarge, CodeResponseLarge},
		{errNoTx, CodeMisconfigured},
		{ErrOutcomeUnknown, CodeOutcomeUnknown},
		{ErrContention, CodeContention},
		{ErrInterrupted, CodeInterrupted},
		{ErrUnavailable, CodeUnavailable},
		{ErrNotCommitted, CodeNotCommitted},
		{context.DeadlineExceeded, CodeInterrupted},
		{context.Canceled, CodeInterrupted},
	} {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return CodeNotCommitted
}
