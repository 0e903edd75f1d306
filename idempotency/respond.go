package idempotency

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/postroom/postroom/idempotency/internal/answer"
	"github.com/postroom/postroom/idempotency/internal/failure"
)

// answer answers a request with the result of the request's call.
func (rt *route) answer(w http.ResponseWriter, r *http.Request, e callResult) {
	switch {
	case errors.Is(e.err, ErrInProgress) && rt.StatusURL != nil:
		w.Header().Set("Location", rt.StatusURL(r, e.key))
		rt.write(w, http.StatusAccepted, CodeInProgress, "")
	case errors.Is(e.err, ErrUnreadable):
		rt.unread(w, r, e.key.Scope, e.err)
	case e.err != nil:
		code := codeOf(e.err)
		if code == CodeNotCommitted || code == CodeMisconfigured || code == CodeResponseLarge {
			rt.g.cfg.Logger.ErrorContext(r.Context(), "a request was rolled back", "pattern", r.Pattern, "code", string(code), "error", e.err)
		}
		rt.refuse(w, code, "")
	case e.outcome == Replayed:
		rt.repeat(w, r, e.record)
	default:
		if e.kept && rt.g.cfg.StatusHeader != Omit {
			e.response.Header.Set(rt.g.cfg.StatusHeader, "stored")
		}
		answer.Become(w.Header(), e.response.Header)
		answer.Send(w, e.response.Status, e.response.Body)
	}
}

// repeat answers with a kept answer.
func (rt *route) repeat(w http.ResponseWriter, r *http.Request, rec Record) {
	//guard:a-replay-is-authorized false
	if rt.AuthorizeReplay != nil {
		if err := rt.AuthorizeReplay(r, rec); err != nil {
			if failure.IsInterruption(err) { // AuthorizeReplay ran out of time and did not refuse
				rt.unread(w, r, rec.Scope, fmt.Errorf("check whether the caller may get it: %w", err))
				return
			}
			rt.g.cfg.Logger.InfoContext(r.Context(), "a kept answer was refused to its caller", "scope", rec.Scope, "error", err)
			rt.refuse(w, CodeReplayRefused, "")
			return
		}
	}
	resp := rec.Response
	if rec.Ref != "" {
		var err error
		if resp, err = rt.render(r.Context(), rec); err != nil {
			rt.unread(w, r, rec.Scope, fmt.Errorf("render it: %w", err))
			return
		}
	}
	if rt.ReplayStatus != nil {
		resp.Status = rt.ReplayStatus(resp.Status)
	}
	h := w.Header()
	maps.Copy(h, resp.Header)
	if rt.g.cfg.StatusHeader != Omit {
		h.Set(rt.g.cfg.StatusHeader, "replayed")
	}
	if rt.g.cfg.ReplayedHeader != Omit {
		h.Set(rt.g.cfg.ReplayedHeader, "true")
	}
	answer.Send(w, resp.Status, resp.Body)
}

// unread answers a request that was carried out earlier, and whose kept answer cannot be read now.
func (rt *route) unread(w http.ResponseWriter, r *http.Request, scope string, err error) {
	rt.g.cfg.Logger.ErrorContext(r.Context(), "a kept answer cannot be read", "scope", scope, "error", err)
	rt.write(w, http.StatusServiceUnavailable, CodeUnrepeatable, "Send the same request again later, with the same key, to get the answer.")
}

func (rt *route) render(ctx context.Context, rec Record) (Response, error) {
	if rt.Render == nil {
		return Response{}, errors.New("the answer was kept as a reference, and Route.Render is not set")
	}
	resp, err := rt.Render(ctx, rec.Ref)
	if resp.Status == 0 {
		resp.Status = rec.Response.Status
	}
	return resp, err
}

// refuse answers with a problem.
func (rt *route) refuse(w http.ResponseWriter, code Code, detail string) {
	status := statusOf[code]
	if code == CodeMismatch {
		status = rt.MismatchStatus
	}
	rt.write(w, status, code, detail)
}

func (rt *route) write(w http.ResponseWriter, status int, code Code, detail string) {
	cfg := &rt.g.cfg
	name := cfg.Codes[code]
	if name == "" {
		name = string(code)
	}
	if detail == "" {
		detail = detailOf[code]
	}
	p := answer.Problem{
		Type: "urn:postroom:problem:" + string(code), Title: titleOf[code], Status: status, Detail: detail, Code: name,
		Retryable: code.retryable() || status == http.StatusServiceUnavailable,
	}
	if cfg.DocsURL != "" {
		p.Type = cfg.DocsURL + "#" + string(code)
		w.Header().Set("Link", "<"+cfg.DocsURL+`>; rel="describedby"`)
	}
	p.Send(w, rt.RetryAfter)
}
