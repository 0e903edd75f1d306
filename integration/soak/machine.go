//go:build linux || darwin

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/internal/devstack"
)

// machine describes the machine of a run.
type machine struct {
	date                   time.Time
	commit, cpu, memory    string
	postgres, fsync, where string
}

func describe(ctx context.Context, db *devstack.Postgres) (machine, error) {
	m := machine{
		date: time.Now().UTC(), commit: commit(ctx), cpu: rig.ProcField("/proc/cpuinfo", "model name"), where: db.Source(),
	}
	if kilobytes, err := strconv.Atoi(strings.TrimSuffix(rig.ProcField("/proc/meminfo", "MemTotal"), " kB")); err == nil {
		m.memory = fmt.Sprintf("%.0f GiB", float64(kilobytes)/(1<<20))
	}
	conn, err := pgx.Connect(ctx, db.URL())
	if err != nil {
		return m, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // the connection is not needed any more
	err = conn.QueryRow(ctx, "SELECT current_setting('server_version'), current_setting('fsync')").Scan(&m.postgres, &m.fsync)
	if err != nil {
		return m, fmt.Errorf("read settings: %w", err)
	}
	return m, nil
}

// run names the run in a report.
func (m machine) run() string { return m.date.Format("2006-01-02") + ", " + m.commit }

func (m machine) markdown() string {
	return fmt.Sprintf("| the newest run | |\n| --- | --- |\n"+
		"| began | %s, at commit %s |\n| machine | %d processors (%s, %s), %s |\n| PostgreSQL | %s (%s), fsync %s |\n"+
		"| NATS | %s, with file storage |\n| Go | %s |\n\n"+
		"Servers, relays and producers share this machine. Each server is a process, and so is each relay,\n"+
		"if a scenario says nothing else.\n",
		m.date.Format("2006-01-02 15:04 UTC"), m.commit, runtime.NumCPU(), cmp.Or(m.cpu, runtime.GOARCH), runtime.GOOS, cmp.Or(m.memory, "memory unknown"),
		m.postgres, m.where, m.fsync, natsserver.VERSION, runtime.Version())
}

// commit returns the commit of the code, if git knows it.
func commit(ctx context.Context) string {
	head, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(head))
	changes, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no").Output()
	if err == nil && len(changes) > 0 {
		name += " with changes"
	}
	return name
}

// freeDisk returns how many bytes are free on the disk of throwaway servers.
func freeDisk() (int64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(os.TempDir(), &fs); err != nil {
		return 0, fmt.Errorf("look for free disk: %w", err)
	}
	return int64(fs.Bavail * uint64(fs.Bsize)), nil //nolint:gosec // the number is far below the limit
}
