package devstack

import (
	"context"
	"errors"
)

// Containers are the functions that run servers in containers. They are nil unless the program
// imports postroomtest/containers, which sets them. That package is a separate module, because a
// client of Docker depends on more modules than this whole module does.
var Containers struct {
	// Run creates a container and starts it. It returns when spec.Answers returns nil.
	Run func(ctx context.Context, spec BoxSpec) (Box, error)

	// Network makes a network for containers, and returns its name.
	Network func(ctx context.Context) (name string, remove func() error, err error)
}

var errNoContainers = errors.New("this program runs no containers: import github.com/postroom/postroom/postroomtest/containers")

// BoxSpec says what to run in a container.
type BoxSpec struct {
	Server  Server
	Name    string // of the container; it is also the container's hostname
	Command []string
	Env     map[string]string
	User    string   // the user and the group that run the server; "" means those of the image
	Binds   []string // directories of this machine and their paths in the container: "from:to"

	// Network is the name of a network, in which Alias is the container's hostname.
	Network, Alias string

	// Answers returns nil if the server at the address accepts connections.
	Answers func(ctx context.Context, address string) error
}

// Server is a kind of server.
type Server string

// The servers that run in containers.
const (
	PostgresServer Server = "postgres"
	NATSServer     Server = "nats"
)

// Box is a server in a container. [Postgres] and [NATS] call one method at a time.
type Box interface {
	Image() string
	Address() string                 // host and port; it stays the same after restarts
	Start(ctx context.Context) error // for a server that is not running
	Stop() error                     // an orderly stop; does nothing if the server is not running
	Kill() error                     // like a crash
	Pause() error
	Resume() error // does nothing if the server is not paused
	Signal(signal string) error
	Close() error // removes the container and its data
}

func runBox(ctx context.Context, spec BoxSpec) (Box, error) {
	if Containers.Run == nil {
		return nil, errNoContainers
	}
	return Containers.Run(ctx, spec)
}
