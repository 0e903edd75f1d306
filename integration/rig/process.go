package rig

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/natsjs"
)

// Process is one of this program's own processes, over all its lives.
type Process struct {
	role string
	job  any
	log  io.Writer

	mu    sync.Mutex
	child *childproc.Child
	fell  int // earlier lives that ended although nothing ended them
}

// NewProcess returns a process without a life. See [childproc.Start].
func NewProcess(role string, job any, log io.Writer) *Process {
	return &Process{role: role, job: job, log: log}
}

// Start begins a life.
func (p *Process) Start() error {
	child, err := childproc.Start(p.role, p.job, p.log)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.child = child
	return nil
}

// Now returns its present life, or the last one. It is nil before the first.
func (p *Process) Now() *childproc.Child {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child
}

// Kill kills its present life, and reports whether that had ended by itself before.
func (p *Process) Kill() (fell bool) {
	child := p.Now()
	fell = child.Ended()
	if fell {
		p.mu.Lock()
		p.fell++
		p.mu.Unlock()
	}
	child.Kill()
	return fell
}

// End makes it finish, for good.
func (p *Process) End() {
	if child := p.Now(); child != nil {
		child.End()
	}
}

// Fallen returns how many of its lives ended although nothing ended them. Do not call it after
// [Process.End].
func (p *Process) Fallen() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child.Ended() {
		return p.fell + 1
	}
	return p.fell
}

// EndAll makes processes finish, all at the same time.
func EndAll(processes []*Process) {
	var all sync.WaitGroup
	for _, p := range processes {
		all.Go(p.End)
	}
	all.Wait()
}

// WorkerPool is a process's pool, with at most the given number of connections. App is their
// application name. It outlives ctx, so that work that has begun can be finished.
func WorkerPool(ctx context.Context, url, app string, most int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = most
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	cfg.ConnConfig.RuntimeParams["application_name"] = app
	return pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg)
}

// WorkerNATS is a process's connection to brokers, which may be away when it begins.
func WorkerNATS(urls, name string) (*nats.Conn, error) {
	return nats.Connect(urls, append(natsjs.ConnectOptions(), nats.RetryOnFailedConnect(true), nats.Name(name))...)
}

// ResidentPeak returns the most resident memory of a process in bytes. It is zero if the
// system does not report it.
func ResidentPeak(pid int) int64 {
	kilobytes, err := strconv.ParseInt(strings.TrimSuffix(ProcField(fmt.Sprintf("/proc/%d/status", pid), "VmHWM"), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return kilobytes << 10
}

// ProcField returns the value of the first line with a name in a file of /proc, or an empty
// text.
func ProcField(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
