// Natsd is the NATS server that internal/devstack starts. It imports no other package of this
// repository, so that make test-nats can build it with another version of the server. It is a
// program of its own for two reasons. The module of the library does not require the server, and
// tests with the race detector use a server that is compiled without the detector.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: natsd nats.conf\nTests and demos start this; it ends with its standard input.")
		os.Exit(2)
	}
	go func() { // the server goes away with the process that started it
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "natsd:", err)
		os.Exit(1)
	}
}

func serve(conf string) error {
	opts, err := server.ProcessConfigFile(conf)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("make a server: %w", err)
	}
	srv.ConfigureLogger()
	if err := server.Run(srv); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	srv.WaitForShutdown()
	return nil
}
