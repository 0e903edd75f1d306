package outbound

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/postroom/postroom/internal/guard"
)

// body is the body of a request, which may be sent several times.
type body struct {
	first  io.ReadCloser // the caller's body; nil when it is used or closed
	again  func() (io.ReadCloser, error)
	length int64
	none   bool   // there is nothing to send
	kept   []byte // the body, if it is in memory
	object map[string]json.RawMessage
}

// newBody takes over the body of a request. If the body must be in memory, newBody reads it.
func newBody(req *http.Request, inMemory, repeat bool, limit int64) (*body, error) {
	b := &body{length: req.ContentLength}
	//guard:no-body-stays-none 2 false
	if req.Body == nil || req.Body == http.NoBody {
		b.none = true
		return b, nil
	}
	b.first, b.again = req.Body, req.GetBody
	if !inMemory && (b.again != nil || !repeat) {
		return b, nil
	}
	kept, err := readBody(req.Context(), req.Body, req.ContentLength, limit)
	b.first = nil // readBody closed the caller's body
	if err != nil {
		return nil, err
	}
	b.keep(kept)
	return b, nil
}

func (b *body) keep(kept []byte) {
	b.kept, b.length = kept, int64(len(kept))
	b.again = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(kept)), nil }
}

// readBody reads the complete body and closes it. If the context ends during a read, readBody
// closes the body at once, so that a read that blocks can end.
func readBody(ctx context.Context, r io.ReadCloser, length, limit int64) ([]byte, error) {
	var closed atomic.Bool
	closeOnce := func() {
		if !closed.Swap(true) {
			_ = r.Close() // only the result of the read matters
		}
	}
	defer closeOnce()
	defer context.AfterFunc(ctx, closeOnce)()
	tooLong := fmt.Errorf("the request's body has more than %d bytes, which must be in memory: raise Config.MaxBody; or, if the key is not in the body, set http.Request.GetBody, or Config.Attempts to 1", limit)
	//guard:a-long-body-is-not-read false
	if length > limit {
		return nil, tooLong
	}
	//guard:the-largest-body-is-not-empty = min(limit, math.MaxInt64) + 1
	more := min(limit, math.MaxInt64-1) + 1 // a byte more than the limit, so that a longer body is noticed
	//guard:a-kept-body-has-a-limit 1.2 = max(@, math.MaxInt64)
	kept, err := io.ReadAll(io.LimitReader(r, more))
	switch {
	case ctx.Err() != nil:
		return nil, contextError(ctx)
	case err != nil:
		//guard:an-error-of-a-kept-body-ends-nothing 2.2 = @1
		return nil, fmt.Errorf("read the request's body: %w", guard.Seal(err))
	case int64(len(kept)) > limit:
		return nil, tooLong
	//guard:a-body-has-its-length false
	case length > 0 && int64(len(kept)) != length:
		return nil, fmt.Errorf("the request's body has %d bytes, its ContentLength is %d", len(kept), length)
	}
	return kept, nil
}

// open returns the body for one more attempt, or nil if there is no body.
func (b *body) open() (*sentBody, error) {
	if first := b.first; first != nil {
		b.first = nil
		return &sentBody{ReadCloser: first}, nil
	}
	if b.again == nil {
		return nil, nil
	}
	r, err := b.again()
	if err != nil {
		//guard:an-error-of-getbody-ends-nothing 2.2 = @1
		return nil, fmt.Errorf("GetBody: %w", guard.Seal(err))
	}
	return &sentBody{ReadCloser: r}, nil
}

// close closes the caller's body if it was never sent.
func (b *body) close() {
	if b != nil && b.first != nil {
		_ = b.first.Close()
		b.first = nil
	}
}

// parse reads the body as a JSON object, for a vendor that expects the key as a member.
func (b *body) parse() error {
	if json.Unmarshal(b.kept, &b.object) != nil || b.object == nil {
		return errors.New("the vendor expects the key as a member of the body, but the body is not a JSON object")
	}
	return nil
}

// member returns the text of a member of the body, or "".
func (b *body) member(name string) (text string) {
	if raw, ok := b.object[name]; ok {
		_ = json.Unmarshal(raw, &text) // a member that is not a string is not a key
	}
	return text
}

// insert adds a member at the front of the JSON object and leaves the rest unchanged.
func (b *body) insert(name, text string) error {
	if raw, ok := b.object[name]; ok {
		if b.member(name) == text {
			return nil
		}
		return fmt.Errorf("the request's body already has a member %.40q, %d bytes long, but the operation has another key: remove the member", name, len(raw))
	}
	member, err := json.Marshal(map[string]string{name: text})
	if err != nil {
		return err
	}
	member = member[1 : len(member)-1]
	if len(b.object) > 0 {
		member = append(member, ',')
	}
	brace := bytes.IndexByte(b.kept, '{') + 1
	b.keep(slices.Concat(b.kept[:brace], member, b.kept[brace:]))
	return nil
}

// sentBody is a body that is being sent. It records an error of its reader, because such an error
// is the caller's fault and no reason to try again.
type sentBody struct {
	io.ReadCloser
	closed atomic.Bool
	fault  atomic.Pointer[error]
}

func (s *sentBody) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err == nil || err == io.EOF { //nolint:errorlint // a reader must return io.EOF itself
		return n, err
	}
	//guard:an-error-of-a-sent-body-ends-nothing = @1
	err = guard.Seal(err) // the goroutines of http.Transport use it
	//guard:a-read-behind-the-end-is-no-fault 2 true
	if !errors.Is(err, io.EOF) && !s.closed.Load() {
		s.fault.CompareAndSwap(nil, &err)
	}
	return n, err
}

func (s *sentBody) Close() error {
	//guard:a-body-is-closed-once = @ && false
	if s.closed.Swap(true) {
		return nil
	}
	return s.ReadCloser.Close()
}

func (s *sentBody) broken() error {
	if s == nil {
		return nil
	}
	if err := s.fault.Load(); err != nil {
		return fmt.Errorf("read the request's body: %w", *err)
	}
	return nil
}

// rewindable reports whether a body that was sent can be sent again.
func (b *body) rewindable() bool { return b.none || b.again != nil }
