package devstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	natsPort      = "4222"
	natsRoutePort = "6222"

	// natsBoxDir is the path of the server's directory in a container.
	natsBoxDir = "/postroom"
)

// natsContainer is a server in a container.
type natsContainer struct {
	box   Box
	file  natsFile
	guard *guard // of the server's directory on this machine
}

func startNATSContainer(ctx context.Context, cfg NATSConfig) (_ *NATS, err error) {
	g, err := newGuard("", "nats")
	if err != nil {
		return nil, err
	}
	name := filepath.Base(g.dir)
	cfg.Name = cmp.Or(cfg.Name, name)
	n := &natsContainer{guard: g, file: natsFile{cfg: cfg, dir: g.dir, seen: natsBoxDir, listen: "0.0.0.0:" + natsPort}}
	err = n.file.write(cfg.Options)
	if err == nil {
		n.box, err = runBox(ctx, BoxSpec{
			Server: NATSServer, Name: name,
			Command: []string{"--config", natsBoxDir + "/" + natsConfFile},
			Binds:   []string{g.dir + ":" + natsBoxDir},
			User:    fmt.Sprint(os.Getuid(), ":", os.Getgid()), // so that this process can copy and remove the server's data
			Network: cfg.network, Alias: cfg.Name,
			Answers: n.file.greet,
		})
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return &NATS{server: n, source: "container " + n.box.Image(), hostname: name}, nil
}

func (n *natsContainer) url() string                     { return "nats://" + n.box.Address() }
func (n *natsContainer) dir() string                     { return n.guard.dir }
func (n *natsContainer) start(ctx context.Context) error { return n.box.Start(ctx) }
func (n *natsContainer) stop() error                     { return n.box.Stop() }
func (n *natsContainer) kill() error                     { return n.box.Kill() }
func (n *natsContainer) freeze() error                   { return n.box.Pause() }
func (n *natsContainer) thaw() error                     { return n.box.Resume() }
func (n *natsContainer) close() error                    { return errors.Join(n.box.Close(), n.guard.Close()) }

func (n *natsContainer) reload(options string) error {
	return n.file.reload(options, func() error { return n.box.Signal("SIGHUP") })
}
