package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// slowest is a factor: a body may take at most slowest times ReceiverConfig.Patience to arrive.
const slowest = 10

// newBody returns a new body with the bytes b.
func newBody(b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }

var errEncoded = errors.New("the body is compressed (Content-Encoding): set the provider to send it as it is")

// isEncoded reports whether a request says that its body is compressed. Some providers sign such a
// body before they compress it, and others afterwards, and the handler could not read it. Some
// providers name a character set here, which says nothing about a compression.
func isEncoded(h http.Header) bool {
	for _, codings := range h.Values("Content-Encoding") {
		for coding := range strings.SplitSeq(codings, ",") {
			coding = strings.ToLower(strings.TrimSpace(coding))
			//guard:webhook-character-set-is-no-compression 3 true
			if coding != "" && coding != "identity" && coding != "utf-8" {
				return true
			}
		}
	}
	return false
}

// limit limits the time for the body, and reports whether it could. If this ResponseWriter cannot set a
// deadline, the server's deadline applies. The limit holds for a body that is not read, too: the server
// reads the rest of a body before it sends the answer.
func (r *Receiver) limit(w http.ResponseWriter) bool {
	//guard:webhook-patience-with-a-body false
	return http.NewResponseController(w).SetReadDeadline(time.Now().Add(slowest*r.cfg.Patience)) == nil
}

// read returns the body of a request, or the outcome if it cannot be read. The parameter limited says
// whether there is a deadline for the body.
func (r *Receiver) read(w http.ResponseWriter, req *http.Request, limited bool) ([]byte, outcome, error) {
	if req.ContentLength > int64(r.cfg.MaxBody) {
		return nil, tooLarge, fmt.Errorf("the body has %d bytes, at most %d are allowed", req.ContentLength, r.cfg.MaxBody)
	}
	//guard:webhook-large-body 1 = @2
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, int64(r.cfg.MaxBody)))
	var size *http.MaxBytesError
	switch {
	case errors.As(err, &size):
		return nil, tooLarge, fmt.Errorf("the body has more than %d bytes", size.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, tooSlow, fmt.Errorf("read the body: %w", err)
	case err != nil:
		return nil, unreadable, fmt.Errorf("read the body: %w", err)
	}
	if limited { // if the deadline stayed, it would end the request's context
		if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); err != nil {
			return nil, unreadable, fmt.Errorf("read the body: %w", err)
		}
	}
	return body, "", nil
}
