package postroomtest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// cut says at which statement a connection is cut.
type cut struct {
	statement

	after bool // the cut is after the server's execution, so that only the answer is lost
	made  atomic.Bool
}

func (c *cut) when() string {
	if c.after {
		return "after"
	}
	return "before"
}

// watcher records the statements that the client sends on the connections of a pool. It cuts the
// connection at one of these statements.
type watcher struct {
	cut *cut // if nil, the watcher only records

	mu   sync.Mutex
	sent []statement
	n    map[string]int // how many times the client has sent each text
}

// watch wraps a new connection of the pool, so that the watcher sees its messages.
func (w *watcher) watch(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
	return &wire{Conn: conn, watcher: w, texts: map[string]string{}, portals: map[string]string{}, syncs: 1}, nil
}

// statements returns the statements that the client has sent.
func (w *watcher) statements() []statement {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sent)
}

// sees records a statement, and reports whether to cut the connection at this statement.
func (w *watcher) sees(text string) bool {
	if trimmed := strings.TrimSpace(text); trimmed == "" || trimmed == ";" || trimmed == "-- ping" {
		return false // not a statement of the scenario: the pool checks whether the connection still works
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n == nil {
		w.n = map[string]int{}
	}
	w.n[text]++
	s := statement{text, w.n[text]}
	w.sent = append(w.sent, s)
	return w.cut != nil && s == w.cut.statement && w.cut.made.CompareAndSwap(false, true)
}

// wire is a connection that reads all messages. The client's messages show which statements the
// client sends. The server's messages show which of these statements are done.
type wire struct {
	net.Conn

	watcher *watcher

	mu      sync.Mutex
	started bool              // the client has sent its first message, which has no type
	texts   map[string]string // texts of prepared statements, by name
	portals map[string]string // texts of bound statements, by name
	syncs   int               // the number of ReadyForQuery messages that the server still has to send
	open    int               // the number of statements since the client's last Sync
	done    int               // how many statements the server has finished since its last ReadyForQuery
	copies  bool              // the server waits for the data of a COPY
	answer  reader
	cutting bool // the cut has begun: the client gets no more answers
	flushed bool // if the cut waits for an answer, no ReadyForQuery ends this answer, so Write adds a Flush
}

// Write sends messages of the client: all messages, or the messages up to the cut. After the cut it
// sends nothing and returns no error, because the client must not see at which call it lost the
// connection.
func (w *wire) Write(b []byte) (int, error) {
	send, closes, cutting := w.plan(b)
	if !cutting {
		return w.Conn.Write(b)
	}
	if len(send) > 0 {
		_, _ = w.Conn.Write(send) // an error means that the connection ended earlier
	}
	if closes {
		_ = w.Close() // the client notices the cut when it reads
	}
	return len(b), nil
}

// plan decides what to do with messages of the client. The last result reports whether the
// connection is cut at one of these messages, or was cut before. If it is false, Write sends all
// messages. If it is true, Write sends only the returned bytes, and then closes the connection if
// the second result is true.
func (w *wire) plan(b []byte) (send []byte, closes, cutting bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cutting {
		return nil, false, true
	}
	if !w.started {
		w.started = true
		return nil, false, false
	}
	upTo, waits := w.scan(b)
	if upTo < 0 {
		return nil, false, false
	}
	w.cutting = true
	send = slices.Clone(b[:upTo])
	if waits && w.flushed {
		send = append(send, 'H', 0, 0, 0, 4) // Flush: the server sends the answers that it has
	}
	return send, !waits, true
}

// scan reads messages of the client. If one of them has the statement of the cut, scan returns how
// many bytes of b to send before the cut, and whether to wait for the server's answer. Otherwise
// upTo is -1.
func (w *wire) scan(b []byte) (upTo int, waits bool) {
	for at := 0; at+5 <= len(b); {
		size := 1 + int(binary.BigEndian.Uint32(b[at+1:]))
		end := min(at+size, len(b))
		body := b[at+5 : end]
		text, isStatement := "", false
		switch b[at] {
		case 'P': // Parse
			name, rest := cString(body)
			w.texts[name], _ = cString(rest)
		case 'B': // Bind
			portal, rest := cString(body)
			name, _ := cString(rest)
			w.portals[portal] = w.texts[name]
		case 'E': // Execute
			portal, _ := cString(body)
			text, isStatement = w.portals[portal], true
		case 'Q': // Query
			text, _ = cString(body)
			isStatement = true
		case 'S': // Sync
			w.syncs++
			w.open = 0
		}
		if isStatement && w.watcher.sees(text) {
			return w.stop(b, at, end)
		}
		switch b[at] {
		case 'Q':
			w.syncs++
		case 'E':
			w.open++
		}
		at = end
	}
	return -1, false
}

// stop returns the results of scan for a cut. The message b[at:end] has the statement of the cut.
func (w *wire) stop(b []byte, at, end int) (upTo int, waits bool) {
	if !w.watcher.cut.after {
		w.flushed = true
		return at, w.open > 0 // the server still executes the statements before the message
	}
	switch {
	case b[at] == 'Q':
		w.syncs++
		return end, true
	case end < len(b) && b[end] == 'S': // a Sync, which commits the statement if no transaction is open
		w.syncs++
		return end + 5, true
	}
	w.open++
	w.flushed = true
	return end, true
}

// Read returns the server's answers. After the cut it waits until the server has executed the
// statements that Write has sent, and then returns an error.
func (w *wire) Read(b []byte) (int, error) {
	for {
		n, err := w.Conn.Read(b)
		w.mu.Lock()
		if n > 0 {
			w.answer.read(b[:n], w.see)
		}
		cutting := w.cutting
		over := cutting && (err != nil || w.isDone())
		w.mu.Unlock()
		switch {
		case over:
			_ = w.Close()
			return 0, io.ErrUnexpectedEOF
		case !cutting:
			return n, err
		}
	}
}

// see records a message of the server.
func (w *wire) see(kind byte) {
	switch kind {
	case 'Z': // ReadyForQuery
		w.syncs--
		w.done, w.copies = 0, false
	case 'C', 'I', 's': // CommandComplete, EmptyQueryResponse, PortalSuspended
		w.done++
	case 'E': // ErrorResponse: the server does not execute later statements
		w.done = w.open
	case 'G': // CopyInResponse: the server waits for data, which the client no longer sends
		w.copies = true
	}
}

// isDone reports whether the server has executed all statements that were sent.
func (w *wire) isDone() bool {
	if w.copies {
		return true
	}
	if w.flushed {
		return w.syncs <= 0 && w.done >= w.open
	}
	return w.syncs <= 0
}

// reader finds the messages in the bytes of a server, even if a message arrives in pieces.
type reader struct {
	head []byte // the first bytes of a message, as long as fewer than five have arrived
	rest int    // how many bytes of the message have not arrived
}

func (r *reader) read(b []byte, see func(kind byte)) {
	for len(b) > 0 {
		if r.rest > 0 {
			n := min(r.rest, len(b))
			r.rest -= n
			b = b[n:]
			continue
		}
		n := min(5-len(r.head), len(b))
		r.head = append(r.head, b[:n]...)
		b = b[n:]
		if len(r.head) == 5 {
			r.rest = int(binary.BigEndian.Uint32(r.head[1:])) - 4
			see(r.head[0])
			r.head = r.head[:0]
		}
	}
}

// cString returns a text that ends with a zero byte, and the bytes that follow it.
func cString(b []byte) (text string, rest []byte) {
	for i, c := range b {
		if c == 0 {
			return string(b[:i]), b[i+1:]
		}
	}
	return string(b), nil
}
