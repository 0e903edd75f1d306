package idempotency

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"

	"github.com/postroom/postroom/idempotency/internal/answer"
	"github.com/postroom/postroom/idempotency/internal/failure"
)

// runner returns what runs the handler. Each attempt has the request and the header as
// they came, whatever an earlier one changed in them.
func (rt *route) runner(w http.ResponseWriter, r *http.Request, body []byte) func(ctx context.Context, a *attempt) (result, error) {
	return func(ctx context.Context, a *attempt) (result, error) {
		again := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req := r.Clone(context.WithValue(ctx, served{}, a.op.keyed))
		req.Body, _ = again()
		req.GetBody, req.ContentLength, req.TransferEncoding = again, int64(len(body)), nil
		defer func() {
			if req.MultipartForm != nil && r.MultipartForm == nil { // net/http removes the files of r alone
				_ = req.MultipartForm.RemoveAll()
			}
		}()
		drops := rt.Oversize == OversizeDrops || rt.Mode == LeaseMode || !a.op.keyed
		outside := w.Header().Clone()
		b := answer.NewBuffer(outside, rt.MaxResponse, drops)
		rt.next.ServeHTTP(b, req)
		status, header, content := b.Answer()
		res := result{response: Response{Status: status, Header: header, Body: content}, dropped: b.Large()}
		res.kept = Response{Status: status, Header: answer.Keepable(header, outside, rt.OmitHeaders), Body: content}
		res.verdict = rt.verdict(status)
		switch {
		case b.Large() && !drops:
			return res, ErrTooLarge
		case rt.TxRequired && res.verdict == keepAll && !a.asked:
			return res, errNoTx
		}
		return res, nil
	}
}

// verdict says what is kept of an answer.
func (rt *route) verdict(status int) verdict {
	switch {
	case status >= 200 && status < 400:
		return keepAll
	case rt.Store == StoreAll, rt.Store == StoreFinal && isFinal(status):
		return keepAnswer
	}
	return undo
}

// isFinal reports whether another attempt would be answered the same.
func isFinal(status int) bool {
	switch status {
	case 401, 403, 408, 409, 421, 423, 425, 429:
		return false
	}
	return status >= 400 && status < 500
}

// answer answers a request with what it came to.
func (rt *route) answer(w http.ResponseWriter, r *http.Request, e ended) {
	switch {
	case errors.Is(e.err, ErrInProgress) && rt.StatusURL != nil:
		w.Header().Set("Location", rt.StatusURL(r, e.key))
		rt.write(w, http.StatusAccepted, CodeInProgress, "")
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
	if rt.AuthorizeReplay != nil {
		if err := rt.AuthorizeReplay(r, rec); err != nil {
			if failure.IsInterruption(err) { // nobody has said no
				rt.g.cfg.Logger.WarnContext(r.Context(), "whether a caller may have a kept answer could not be asked", "scope", rec.Scope, "error", err)
				rt.refuse(w, CodeUnavailable, "")
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
			rt.g.cfg.Logger.ErrorContext(r.Context(), "an answer was not made again", "scope", rec.Scope, "error", err)
			rt.refuse(w, CodeUnavailable, "")
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
		Type: "urn:postroom:problem:" + string(code), Title: titleOf[code], Status: status, Detail: detail, Code: name, Retryable: code.retryable(),
	}
	if cfg.DocsURL != "" {
		p.Type = cfg.DocsURL + "#" + string(code)
		w.Header().Set("Link", "<"+cfg.DocsURL+`>; rel="describedby"`)
	}
	p.Send(w, rt.RetryAfter)
}
