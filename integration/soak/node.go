//go:build linux || darwin

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	// A server that is killed and goes on with its storage, alone or in a cluster,
	// is one that internal/devstack, whose servers go with their process, does not
	// start.
	"github.com/nats-io/nats-server/v2/server" //nolint:depguard // see above
)

// natsJob describes a server.
type natsJob struct {
	Name, Dir     string
	Port, Cluster int      // ports; Cluster is 0 where it is alone
	Routes        []string // to all servers of the cluster
}

// serveNATS is a server, until ctx ends.
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
		opts.Cluster = server.ClusterOpts{Name: "soak", Host: "127.0.0.1", Port: job.Cluster}
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
	tell("ready")
	<-ctx.Done()
	return nil
}

// serveKeeper removes a directory when ctx ends: then the parent died, and the
// servers that write to it are about to end.
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

// brokers are servers in processes of their own, which can be killed.
type brokers struct {
	rig   *rig
	jobs  []natsJob
	nodes []*child // by job
}

// brokers starts n servers, as a cluster where they are many.
func (r *rig) brokers(ctx context.Context, n int) (*brokers, error) {
	dir, err := os.MkdirTemp("", "postroom-soak-nats-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	keeper, err := startChild("keeper", dir, os.Stderr)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	r.later(func() error {
		defer keeper.kill() // only now: it is for the end of this process
		return os.RemoveAll(dir)
	})
	b := &brokers{rig: r, jobs: make([]natsJob, n), nodes: make([]*child, n)}
	r.later(func() error { b.end(); return nil })
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, err
	}
	var routes []string
	for i := range b.jobs {
		b.jobs[i] = natsJob{Name: fmt.Sprint("node-", i), Port: ports[i], Dir: filepath.Join(dir, fmt.Sprint("node-", i))}
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[n+i]))
	}
	for i := range b.jobs {
		if n > 1 {
			b.jobs[i].Cluster, b.jobs[i].Routes = ports[n+i], routes
		}
		if err := b.start(ctx, i); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// start starts a server, again if it was killed. Its port may be taken for a
// moment.
func (b *brokers) start(ctx context.Context, i int) error {
	var errs error
	for range 5 {
		node, err := startChild("nats", b.jobs[i], b.rig.childLog())
		if err != nil {
			return err
		}
		if err = node.await(ctx, "ready"); err == nil {
			b.nodes[i] = node
			return nil
		}
		node.kill()
		errs = errors.Join(errs, err)
		if !sleep(ctx, 500*time.Millisecond) {
			break
		}
	}
	return fmt.Errorf("start a server: %w", errs)
}

// kill ends a server as a crash would.
func (b *brokers) kill(i int) {
	b.nodes[i].kill()
	b.nodes[i] = nil
}

func (b *brokers) end() {
	for _, node := range b.nodes {
		if node != nil {
			node.end()
		}
	}
}

func (b *brokers) address(i int) string { return fmt.Sprintf("127.0.0.1:%d", b.jobs[i].Port) }

// urls is how clients connect.
func (b *brokers) urls() string {
	var all []string
	for i := range b.jobs {
		all = append(all, "nats://"+b.address(i))
	}
	return strings.Join(all, ",")
}

// freePorts returns ports of the loopback interface that nobody has.
func freePorts(n int) (ports []int, err error) {
	for range n {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find free port: %w", err)
		}
		defer func() { _ = listener.Close() }() // all at once, so that each is another
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
