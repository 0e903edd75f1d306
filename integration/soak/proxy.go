//go:build linux || darwin

package main

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

// proxy stands between relays and a server. While it is deaf, what the server
// has to say to subscriptions, acknowledgements before all, is lost; connections
// stay, and what relays publish arrives.
type proxy struct {
	listener net.Listener
	to       string
	deaf     atomic.Bool
	dropped  atomic.Int64 // messages
}

func (r *rig) proxy(to string) (*proxy, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	r.later(listener.Close)
	p := &proxy{listener: listener, to: to}
	go p.serve() // ends with the listener
	return p, nil
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) serve() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.carry(conn) // ends with the connection
	}
}

// carry connects a client to the server. Where one side ends, so does the other.
func (p *proxy) carry(client net.Conn) {
	defer func() { _ = client.Close() }() // may be closed
	server, err := net.Dial("tcp4", p.to)
	if err != nil {
		return // the server is down: the client finds out
	}
	closing := sync.OnceFunc(func() { _, _ = client.Close(), server.Close() }) // may be closed
	var both sync.WaitGroup
	both.Go(func() {
		defer closing()
		_, _ = io.Copy(server, client) // an error is an end
	})
	both.Go(func() {
		defer closing()
		_ = p.answer(client, server) // likewise
	})
	both.Wait()
}

var crlf = []byte("\r\n")

// answer carries what the server says, a frame of the NATS protocol at a time.
func (p *proxy) answer(client io.Writer, server io.Reader) error {
	in, out := bufio.NewReaderSize(server, 1<<16), bufio.NewWriterSize(client, 1<<16)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, message := payload(line)
		if message && p.deaf.Load() {
			p.dropped.Add(1)
			if _, err := in.Discard(size); err != nil {
				return err
			}
			continue
		}
		if _, err := out.Write(line); err != nil {
			return err
		}
		if _, err := io.CopyN(out, in, int64(size)); err != nil {
			return err
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// payload returns how many bytes follow a line of the protocol.
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
