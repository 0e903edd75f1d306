package fleet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports below those that systems give to connections: what listens on one of these
// finds it free again after it was away.
const (
	firstPort = 10_000
	lastPort  = 30_000
)

// FreePorts returns ports of the loopback interface that nobody has.
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
		defer func() { _ = listener.Close() }() // all at once, so that each is another
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("find a free port: %w", errors.Join(errors.New("all that were tried are taken"), last))
}
