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

// cut is where a connection is cut.
type cut struct {
	statement

	after bool // the server has executed it, and only the answer is lost
	made  atomic.Bool
}

func (c *cut) when() string {
	if c.after {
		return "after"
	}
	return "before"
}

// watcher knows the statements that are sent on the connections of a pool, and cuts one of
// these.
type watcher struct {
	cut *cut // nil: it only counts

	mu   sync.Mutex
	sent []statement
	n    map[string]int // how often each text was sent
}

// watch is called with each new connection.
func (w *watcher) watch(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
	return &wire{Conn: conn, watcher: w, texts: map[string]string{}, portals: map[string]string{}, syncs: 1}, nil
}

// statements returns what was sent.
func (w *watcher) statements() []statement {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sent)
}

// sees notes a statement, and reports whether the connection is cut at it.
func (w *watcher) sees(text string) bool {
	if trimmed := strings.TrimSpace(text); trimmed == "" || trimmed == ";" || trimmed == "-- ping" {
		return false // the pool asks whether the connection lives
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

// wire is a connection that reads along. The client's messages tell which statements are
// sent, the server's which of them are done.
//
// Wide because it keeps both sides of the protocol.
type wire struct {
	net.Conn

	watcher *watcher

	mu      sync.Mutex
	started bool              // the first message, which has no type, was sent
	texts   map[string]string // of prepared statements, by name
	portals map[string]string // texts of bound ones, by name
	syncs   int               // answers of the server that end with ReadyForQuery, not yet come
	open    int               // statements sent that no such answer ends yet
	done    int               // and of those, how many are done
	copies  bool              // the server waits for the data of a COPY
	answer  reader
	cutting bool // what the server answers is dropped
	flushed bool // the answer that is waited for does not end with ReadyForQuery
}

// Write sends messages of the client: all of them, or those up to the cut. From then on it
// only seems to send: the client is not to see by which call it lost the connection.
func (w *wire) Write(b []byte) (int, error) {
	send, closes, cutting := w.plan(b)
	if !cutting {
		return w.Conn.Write(b)
	}
	if len(send) > 0 {
		_, _ = w.Conn.Write(send) // if that fails, the connection is cut earlier
	}
	if closes {
		_ = w.Close() // the client learns of it when it reads
	}
	return len(b), nil
}

// plan says what is sent of messages of the client if the connection is cut at one of them,
// or was before, and whether it is closed then.
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

// scan reads messages of the client. If the connection is to be cut at one of them, it
// returns how many bytes are still sent, and whether the server's answer is waited for.
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

// stop says what is sent of messages among which is that of the statement at which the
// connection is cut.
func (w *wire) stop(b []byte, at, end int) (upTo int, waits bool) {
	if !w.watcher.cut.after {
		w.flushed = true
		return at, w.open > 0 // those before it are executed
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

// Read returns what the server answers. After the cut it waits until the server has done
// what it is to do, and fails.
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

// see notes a message of the server.
func (w *wire) see(kind byte) {
	switch kind {
	case 'Z': // ReadyForQuery
		w.syncs--
		w.done, w.copies = 0, false
	case 'C', 'I', 's': // CommandComplete, EmptyQueryResponse, PortalSuspended
		w.done++
	case 'E': // ErrorResponse: nothing is done behind it
		w.done = w.open
	case 'G': // CopyInResponse: the server waits for data, which the client does not send any more
		w.copies = true
	}
}

// isDone reports whether the server has done what was sent.
func (w *wire) isDone() bool {
	if w.copies {
		return true
	}
	if w.flushed {
		return w.syncs <= 0 && w.done >= w.open
	}
	return w.syncs <= 0
}

// reader tells the messages of a server apart, however they are cut into pieces.
type reader struct {
	head []byte // of a message that has not come to the fifth byte
	rest int    // bytes of the message that are still to come
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

// cString returns a text that ends with a zero byte, and what follows it.
func cString(b []byte) (text string, rest []byte) {
	for i, c := range b {
		if c == 0 {
			return string(b[:i]), b[i+1:]
		}
	}
	return string(b), nil
}
