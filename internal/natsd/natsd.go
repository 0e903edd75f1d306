// Package natsd makes a program a NATS server. It has nothing to do with the rest of this
// module, so that it can be built with another version of the server than the tests are:
// see make test-nats.
package natsd

import (
	"fmt"
	"io"
	"os"

	"github.com/nats-io/nats-server/v2/server"
)

// Variable is the environment variable that makes a program a server. Its first
// argument is the configuration file.
const Variable = "POSTROOM_DEVSTACK_NATS"

// Serve does nothing, unless [Variable] is set: then this process is a server, and Serve
// does not return.
func Serve() {
	if os.Getenv(Variable) == "" {
		return
	}
	go func() { // the server goes away with the process that started it
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "nats-server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(conf string) error {
	opts, err := server.ProcessConfigFile(conf)
	if err != nil {
		return err
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	srv.ConfigureLogger()
	if err := server.Run(srv); err != nil {
		return err
	}
	srv.WaitForShutdown()
	return nil
}
