package devstack

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
)

const (
	natsImageVariable = "POSTROOM_NATS_IMAGE"
	defaultNATSImage  = "nats:2"

	natsPort      = "4222"
	natsRoutePort = "6222"

	// natsBoxDir is the path of the server's directory in a container.
	natsBoxDir = "/postroom"
)

// natsContainer is a server in a container.
type natsContainer struct {
	*box

	file natsFile
}

func startNATSContainer(ctx context.Context, cfg NATSConfig) (*NATS, error) {
	n := &natsContainer{file: natsFile{cfg: cfg, seen: natsBoxDir, listen: "0.0.0.0:" + natsPort}}
	b, err := startBox(ctx, boxSpec{
		what: "nats", image: cmp.Or(os.Getenv(natsImageVariable), defaultNATSImage),
		port: natsPort, signal: "SIGTERM", logger: cfg.Logger,
		command: []string{"--config", natsBoxDir + "/" + natsConfFile},
		prepare: n.prepare,
		answers: n.answers,
	})
	if err != nil {
		return nil, err
	}
	n.box = b
	return &NATS{server: n, source: "container " + b.image, hostname: b.name}, nil
}

// prepare writes the server's configuration file. It returns arguments for docker run, with which
// the container sees the file's directory.
func (n *natsContainer) prepare(b *box) ([]string, error) {
	n.file.dir, n.file.advertise = b.guard.dir, address(b)
	n.file.cfg.Name = cmp.Or(n.file.cfg.Name, b.name)
	if err := n.file.write(n.file.cfg.Options); err != nil {
		return nil, err
	}
	args := []string{
		"--volume", b.guard.dir + ":" + natsBoxDir,
		// The server runs as this process's user, so this process can copy and remove its data.
		"--user", fmt.Sprint(os.Getuid(), ":", os.Getgid()),
	}
	if n.file.cfg.network != "" {
		args = append(args, "--network", n.file.cfg.network, "--network-alias", n.file.cfg.Name)
	}
	return args, nil
}

func address(b *box) string { return net.JoinHostPort(b.host, strconv.Itoa(b.port)) }

func (n *natsContainer) answers(ctx context.Context, b *box) error {
	return n.file.greet(ctx, address(b))
}

func (n *natsContainer) url() string                     { return "nats://" + address(n.box) }
func (n *natsContainer) dir() string                     { return n.file.dir }
func (n *natsContainer) start(ctx context.Context) error { return n.box.start(ctx, n.answers) }

func (n *natsContainer) reload(options string) error {
	return n.file.reload(options, func() error { return n.signal("SIGHUP") })
}
