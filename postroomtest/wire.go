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

	after bool // after the server has executed it: only the answer is lost
	made  atomic.Bool
}

func (c *cut) when() string {
	if c.after {
		return "after"
	}
	return "before"
}

// watcher records the statements that are sent on the connections of a pool, and cuts the
// connection at one of them.
type watcher struct {
	cut *cut // nil: it only records

	mu   sync.Mutex
	sent []statement
	n    map[string]int // how many times each text was sent
}

// watch is called with each new connection.
func (w *watcher) watch(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
	return &wire{Conn: conn, watcher: w, texts: map[string]string{}, portals: map[string]string{}, syncs: 1}, nil
}

// statements returns the statements that were sent.
func (w *watcher) statements() []statement {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sent)
}

// sees records a statement, and reports whether the connection must be cut at it.
func (w *watcher) sees(text string) bool {
	if trimmed := strings.TrimSpace(text); trimmed == "" || trimmed == ";" || trimmed == "-- ping" {
		return false // the pool checks whether the connection still works
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

// wire is a connection that reads all messages. The client's messages show which statements are
// sent, the server's messages show which of them are done.
//
// Wide because it keeps both sides of the protocol.
type wire struct {
	net.Conn

	watcher *watcher

	mu      sync.Mutex
	started bool              // the first message, which has no type, was sent
	texts   map[string]string // of prepared statements, by name
	portals map[string]string // texts of bound statements, by name
	syncs   int               // answers that end with ReadyForQuery and have not arrived yet
	open    int               // statements that were sent and that no such answer has ended yet
	done    int               // how many of those are done
	copies  bool              // the server waits for the data of a COPY
	answer  reader
	cutting bool // answers of the server are dropped
	flushed bool // the awaited answer does not end with ReadyForQuery
}

// Write sends messages of the client: all of them, or those up to the cut. After the cut it only
// pretends to send, because the client must not see at which call it lost the connection.
func (w *wire) Write(b []byte) (int, error) {
	send, closes, cutting := w.plan(b)
	if !cutting {
		return w.Conn.Write(b)
	}
	if len(send) > 0 {
		_, _ = w.Conn.Write(send) // an error means that the connection is cut earlier
	}
	if closes {
		_ = w.Close() // the client notices when it reads
	}
	return len(b), nil
}

// plan returns which of the client's messages are sent, and whether the connection is closed after
// them. cutting reports whether the connection is cut at one of these messages, or was cut before.
// If it is false, all messages are sent.
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
		send = append(send, 'H', 0, 0, 0, 4) // Flush: the server answers what it has
	}
	return send, !waits, true
}

// scan reads messages of the client. If the connection must be cut at one of them, scan returns how
// many bytes are still sent, and whether to wait for the server's answer.
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

// stop says which of the messages are sent. One of them has the statement at which the connection
// is cut.
func (w *wire) stop(b []byte, at, end int) (upTo int, waits bool) {
	if !w.watcher.cut.after {
		w.flushed = true
		return at, w.open > 0 // the statements before it are executed
	}
	switch {
	case b[at] == 'Q':
		w.syncs++
		return end, true
	case end < len(b) && b[end] == 'S': // which commits it, unless a transaction is open
		w.syncs++
		return end + 5, true
	}
	w.open++
	w.flushed = true
	return end, true
}

// Read returns the server's answers. After the cut it waits until the server has executed the
// statements that it must execute, and then fails.
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
	case 'E': // ErrorResponse: later statements are not executed
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

// reader splits the messages of a server, even if they arrive in pieces.
type reader struct {
	head []byte // of a message whose fifth byte has not arrived
	rest int    // bytes of the message that have not arrived
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
