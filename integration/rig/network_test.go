package rig

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// A deaf way carries what the client sends to the server, and nothing back. Afterwards it
// works again.
func TestDeafWay(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	received := make(chan string, 10)
	go func() { // ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() }) // not earlier, because the runtime closes a forgotten connection
			text := make([]byte, 5)
			if _, err := conn.Read(text); err == nil {
				received <- string(text)
				_, _ = conn.Write(text) // the client may be gone
			}
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	n := NewNetwork()
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	address, err := n.Way("p", "server", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(patience time.Duration) error {
		conn, err := net.Dial("tcp4", address)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if _, err := conn.Write([]byte("hello")); err != nil {
			return err
		}
		if got := <-received; got != "hello" {
			return fmt.Errorf("the server received %q", got)
		}
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 5))
		return err
	}
	var unanswered error
	err = Poison(t.Context(), n.To("p", "server"), []Toxic{Loses(Downstream)}, true, func() { unanswered = ask(200 * time.Millisecond) })
	if err != nil || !errors.Is(unanswered, os.ErrDeadlineExceeded) {
		t.Errorf("Poison = %v, and through a deaf way: %v", err, unanswered)
	}
	if err := ask(30 * time.Second); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
