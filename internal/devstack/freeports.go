package devstack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// The ports are lower than the ports that systems use for outgoing connections. So no outgoing
// connection takes the port of a server that was stopped.
const (
	firstPort = 10_000
	lastPort  = 30_000
)

// FreePorts returns n free ports of the loopback interface. Another process may take a port before the
// caller does.
func FreePorts(n int) (ports []int, err error) {
	var last error
	for range 100 * n {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort)
		listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			last = err
			continue
		}
		defer func() { _ = listener.Close() }() // close all listeners at the end, so that all ports differ
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("find a free port: %w", errors.Join(errors.New("all that were tried are taken"), last))
}
