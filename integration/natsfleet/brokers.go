// Package natsfleet runs NATS servers in processes of their own, for chaos and soak. Chaos and soak
// kill these processes, stop them and cut their connections. A server that is started again goes on
// with its storage.
package natsfleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/devstack"
)

const (
	roleNATS   = "nats"
	roleKeeper = "keeper"
)

// Roles returns the roles of a program that uses this package, for [childproc.Serve]: the roles of
// the package itself, and the program's own roles, the parameter more.
func Roles(more map[string]childproc.Role) map[string]childproc.Role {
	roles := map[string]childproc.Role{roleNATS: serveNATS, roleKeeper: serveKeeper}
	maps.Copy(roles, more)
	return roles
}

// natsJob describes a server.
type natsJob struct {
	Name, Dir     string
	Port, Cluster int      // ports; Cluster is 0 if the server is alone
	Routes        []string // the routes to all servers of the cluster
}

// serveNATS runs a server until ctx ends.
func serveNATS(ctx context.Context, text []byte) error {
	var job natsJob
	if err := json.Unmarshal(text, &job); err != nil {
		return err
	}
	opts := &server.Options{
		ServerName: job.Name, Host: "127.0.0.1", Port: job.Port, NoSigs: true,
		JetStream: true, StoreDir: job.Dir, DisableJetStreamBanner: true, NoLog: true,
	}
	if job.Cluster != 0 {
		opts.Cluster = server.ClusterOpts{Name: "postroom", Host: "127.0.0.1", Port: job.Cluster}
		opts.Routes = server.RoutesFromStr(strings.Join(job.Routes, ","))
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	srv.Start()
	defer func() { srv.Shutdown(); srv.WaitForShutdown() }()
	if !srv.ReadyForConnections(20 * time.Second) {
		return errors.New("not ready for connections")
	}
	childproc.Tell("ready")
	<-ctx.Done()
	return nil
}

// serveKeeper removes a directory when ctx ends. Then the parent has died, and the servers that
// write to the directory are about to end. So serveKeeper removes the directory again and again for
// five seconds.
func serveKeeper(ctx context.Context, text []byte) error {
	var dir string
	if err := json.Unmarshal(text, &dir); err != nil {
		return err
	}
	<-ctx.Done()
	var err error
	for range 50 {
		time.Sleep(100 * time.Millisecond)
		err = os.RemoveAll(dir)
	}
	return err
}

// Brokers are NATS servers in processes of their own. A server that is killed and started again
// goes on with its storage.
type Brokers struct {
	log    io.Writer
	dir    string
	keeper *childproc.Child
	jobs   []natsJob
	nodes  []*childproc.Child // by job; an element is nil while its server is down
}

// StartBrokers starts n servers, as a cluster if there are several. They store in a new directory
// in parent. If the parameter parent is empty, the new directory is in the system's directory for
// temporary files. The standard error of the servers goes to the writer log, unless that is nil.
func StartBrokers(ctx context.Context, n int, parent string, log io.Writer) (b *Brokers, err error) {
	dir, err := os.MkdirTemp(parent, "postroom-fleet-nats-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	keeper, err := childproc.Start(roleKeeper, dir, os.Stderr)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	b = &Brokers{log: log, dir: dir, keeper: keeper, jobs: make([]natsJob, n), nodes: make([]*childproc.Child, n)}
	if err := b.startAll(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Brokers) startAll(ctx context.Context) error {
	n := len(b.jobs)
	ports, err := devstack.FreePorts(2 * n)
	if err != nil {
		return err
	}
	var routes []string
	for i := range b.jobs {
		name := fmt.Sprint("node-", i)
		b.jobs[i] = natsJob{Name: name, Port: ports[i], Dir: filepath.Join(b.dir, name)}
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[n+i]))
	}
	for i := range b.jobs {
		if n > 1 {
			b.jobs[i].Cluster, b.jobs[i].Routes = ports[n+i], routes
		}
		if err := b.Start(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// Start starts a server, maybe again after a kill. It tries several times, because the server's
// port may be taken for a moment.
func (b *Brokers) Start(ctx context.Context, i int) error {
	var errs error
	for range 5 {
		node, err := childproc.Start(roleNATS, b.jobs[i], b.log)
		if err != nil {
			return err
		}
		if err = node.Await(ctx, "ready"); err == nil {
			b.nodes[i] = node
			return nil
		}
		node.Kill()
		errs = errors.Join(errs, err)
		if !childproc.Sleep(ctx, 500*time.Millisecond) {
			break
		}
	}
	return fmt.Errorf("start a server: %w", errs)
}

// Kill ends a server as a crash would.
func (b *Brokers) Kill(i int) {
	b.nodes[i].Kill()
	b.nodes[i] = nil
}

// Close ends all servers and removes what they stored.
func (b *Brokers) Close() error {
	for _, node := range b.nodes {
		if node != nil {
			node.End()
		}
	}
	defer b.keeper.Kill() // last: if this process ends before, the keeper removes the directory
	return os.RemoveAll(b.dir)
}

// Len returns how many servers there are.
func (b *Brokers) Len() int { return len(b.jobs) }

// Node returns the process of a server, or nil while the server is down.
func (b *Brokers) Node(i int) *childproc.Child { return b.nodes[i] }

// Name returns the name of a server.
func (b *Brokers) Name(i int) string { return b.jobs[i].Name }

// Dir returns the directory in which a server stores.
func (b *Brokers) Dir(i int) string { return b.jobs[i].Dir }

// Address returns the address at which a server listens.
func (b *Brokers) Address(i int) string { return fmt.Sprintf("127.0.0.1:%d", b.jobs[i].Port) }

// URLs returns the URLs of all servers, for clients.
func (b *Brokers) URLs() string {
	var all []string
	for i := range b.jobs {
		all = append(all, "nats://"+b.Address(i))
	}
	return strings.Join(all, ",")
}
