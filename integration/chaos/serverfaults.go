//go:build linux || darwin

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/postroom/postroom/integration/chaos/internal/workload"
	"github.com/postroom/postroom/integration/rig"
)

// serverFaults are the faults of PostgreSQL and NATS, and of their storage.
type serverFaults struct{ *nemesis }

// onServers makes the function of a [kind] from a method of serverFaults.
func onServers(do func(n serverFaults, f fault) error) func(n *nemesis, f fault) error {
	return func(n *nemesis, f fault) error { return do(serverFaults{n}, f) }
}

func (n serverFaults) killPostgres(f fault) error {
	if err := n.db.server.Kill(); err != nil {
		return err
	}
	n.pause(f)
	ctx, cancel := n.work()
	defer cancel()
	return n.db.restart(ctx)
}

func (n serverFaults) stopPostgres(f fault) error {
	if err := n.db.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	n.pause(f)
	return n.db.signal(syscall.SIGCONT)
}

func (n serverFaults) killNATS(f fault) error {
	return n.withoutNATS(f, []int{int(f.luck % uint64(n.brokers.Len()))}, nil) //nolint:gosec // the number is far below the limit
}

func (n serverFaults) killAllNATS(f fault) error { return n.withoutNATS(f, n.nodes(), nil) }

// nodes returns the numbers of all NATS servers.
func (n serverFaults) nodes() (all []int) {
	for i := range n.brokers.Len() {
		all = append(all, i)
	}
	return all
}

// withoutNATS kills NATS servers, waits, and starts them again. Just before the start, it calls the
// given function (meanwhile), if that is not nil.
func (n serverFaults) withoutNATS(f fault, which []int, meanwhile func() error) error {
	for _, i := range which {
		n.brokers.Kill(i)
	}
	n.pause(f)
	ctx, cancel := n.work()
	defer cancel()
	var errs []error
	if meanwhile != nil {
		errs = append(errs, meanwhile())
	}
	for _, i := range which {
		errs = append(errs, n.brokers.Start(ctx, i))
	}
	return errors.Join(errs...)
}

func (n serverFaults) stopNATS(f fault) error {
	node := n.brokers.Node(int(f.luck % uint64(n.brokers.Len()))) //nolint:gosec // the number is far below the limit
	if err := node.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	n.pause(f)
	return node.Signal(syscall.SIGCONT)
}

func (n serverFaults) stepDown(f fault) error {
	_, _ = n.client.Conn.Request("$JS.API.STREAM.LEADER.STEPDOWN."+workload.Stream, nil, time.Second) // fails if there is no leader just now
	n.pause(f)
	return nil
}

func (n serverFaults) leaseForward(f fault) error {
	return n.leaseClock(f, n.db.shop, "UPDATE postroom.relay SET expires_at = now() - interval '1 second'")
}

func (n serverFaults) leaseBack(f fault) error {
	return n.leaseClock(f, n.db.shop, "UPDATE postroom.relay SET expires_at = expires_at + interval '3 seconds' WHERE isfinite(expires_at)")
}

func (n serverFaults) readerForward(f fault) error {
	return n.leaseClock(f, n.db.books, "UPDATE postroom.subscription SET reader_until = now() - interval '1 second' WHERE reader IS NOT NULL")
}

func (n serverFaults) leaseClock(f fault, d *rig.Database, sql string) error {
	ctx, cancel := n.work()
	defer cancel()
	err := rig.Again(ctx, rig.Patience, "change the lease's clock", func(ctx context.Context) error {
		_, err := d.Pool.Exec(ctx, sql)
		return err
	})
	n.pause(f)
	return err
}

func (n serverFaults) fillNATS(f fault) error {
	if err := n.natsDisk.Fill(); err != nil {
		return err
	}
	n.pause(f)
	// If a server could not write to a stream, that stream does not work until the server is
	// restarted.
	err := n.natsDisk.Free()
	return errors.Join(err, n.withoutNATS(fault{lasts: f.lasts / 10}, n.nodes(), nil))
}

func (n serverFaults) fillPostgres(f fault) error {
	if err := n.dbDisk.Fill(); err != nil {
		return err
	}
	n.pause(f)
	err := n.dbDisk.Free()
	ctx, cancel := n.work()
	defer cancel()
	for range 5 {
		if n.db.answers(ctx) {
			return err
		}
	}
	return errors.Join(err, n.db.restart(ctx)) // PostgreSQL ends if it cannot write its log
}

// powerLoss kills the NATS servers, copies their storage and starts them again. Later it kills them
// again, puts the copy in the place of their storage, and starts them. So the servers lose the
// messages that they acknowledged in between.
func (n serverFaults) powerLoss(f fault) error {
	older := n.dir + "/older"
	each := func(do func(dir, copied string) error) func() error {
		return func() error {
			var errs []error
			for _, i := range n.nodes() {
				errs = append(errs, do(n.brokers.Dir(i), filepath.Join(older, n.brokers.Name(i))))
			}
			return errors.Join(errs...)
		}
	}
	take := each(func(dir, copied string) error { return os.CopyFS(copied, os.DirFS(dir)) })
	restore := each(func(dir, copied string) error {
		return errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(copied)))
	})
	brief := fault{luck: f.luck, lasts: 50 * time.Millisecond}
	if err := n.withoutNATS(brief, n.nodes(), take); err != nil {
		return err
	}
	n.pause(f)
	return errors.Join(n.withoutNATS(brief, n.nodes(), restore), os.RemoveAll(older))
}
