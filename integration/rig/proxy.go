package rig

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
)

// DeafProxy is between relays and a NATS server. While it is deaf, it drops the server's messages
// to subscriptions, which are mostly acknowledgements. Connections stay open, and the relays'
// messages arrive.
type DeafProxy struct {
	Deaf    atomic.Bool
	Dropped atomic.Int64 // the number of dropped messages

	listener net.Listener
	to       string
}

// StartDeafProxy starts a proxy for the server at an address. It is not deaf at first.
func StartDeafProxy(to string) (*DeafProxy, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	p := &DeafProxy{listener: listener, to: to}
	go p.serve() // this goroutine ends with the listener
	return p, nil
}

// URL returns the proxy's URL.
func (p *DeafProxy) URL() string { return "nats://" + p.listener.Addr().String() }

// Close stops accepting connections.
func (p *DeafProxy) Close() error { return p.listener.Close() }

func (p *DeafProxy) serve() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.carry(conn) // this goroutine ends with the connection
	}
}

// carry connects a client to the server. If one side closes, so does the other side.
func (p *DeafProxy) carry(client net.Conn) {
	defer func() { _ = client.Close() }() // the connection may be closed
	server, err := net.Dial("tcp4", p.to)
	if err != nil {
		return // the server is down: the client finds out
	}
	closing := sync.OnceFunc(func() { _, _ = client.Close(), server.Close() }) // the connection may be closed
	var both sync.WaitGroup
	both.Go(func() {
		defer closing()
		_, _ = io.Copy(server, client) // an error ends the copying
	})
	both.Go(func() {
		defer closing()
		_ = p.answer(client, server) // an error ends the copying
	})
	both.Wait()
}

var crlf = []byte("\r\n")

// answer copies the server's bytes, one frame of the NATS protocol at a time. While the proxy is
// deaf, it drops messages.
func (p *DeafProxy) answer(client io.Writer, server io.Reader) error {
	in, out := bufio.NewReaderSize(server, 1<<16), bufio.NewWriterSize(client, 1<<16)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, message := payload(line)
		if message && p.Deaf.Load() {
			p.Dropped.Add(1)
			if _, err := in.Discard(size); err != nil {
				return err
			}
		} else {
			if _, err := out.Write(line); err != nil {
				return err
			}
			if _, err := io.CopyN(out, in, int64(size)); err != nil {
				return err
			}
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// payload returns how many bytes follow a line of the protocol, and whether the line begins a
// message.
func payload(line []byte) (size int, message bool) {
	if !bytes.HasPrefix(line, []byte("MSG ")) && !bytes.HasPrefix(line, []byte("HMSG ")) {
		return 0, false
	}
	fields := bytes.Fields(line)
	n, err := strconv.Atoi(string(fields[len(fields)-1]))
	if err != nil {
		return 0, false // not reached: the server writes no such line
	}
	return n + len(crlf), true
}
