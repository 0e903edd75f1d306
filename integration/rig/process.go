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

// Process is a process of this program. It can be killed and started again, as a new child process.
type Process struct {
	role string
	job  any
	log  io.Writer

	mu    sync.Mutex
	child *childproc.Child
	fell  int // earlier child processes that ended by themselves
}

// NewProcess returns a process that is not started yet. See [childproc.Start].
func NewProcess(role string, job any, log io.Writer) *Process {
	return &Process{role: role, job: job, log: log}
}

// Start starts a child process.
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

// Now returns the running child process, or the last one. It is nil before the first Start.
func (p *Process) Now() *childproc.Child {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child
}

// Kill kills the running child process, and reports whether it had already ended by itself.
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

// End tells the process to finish, and waits until it has ended. It is not started again.
func (p *Process) End() {
	if child := p.Now(); child != nil {
		child.End()
	}
}

// Fallen returns how many child processes ended by themselves. Do not call it after [Process.End].
func (p *Process) Fallen() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child.Ended() {
		return p.fell + 1
	}
	return p.fell
}

// EndAll tells processes to finish, all at the same time, and waits until they have ended.
func EndAll(processes []*Process) {
	var all sync.WaitGroup
	for _, p := range processes {
		all.Go(p.End)
	}
	all.Wait()
}

// WorkerPool returns the pool of a process, with at most the given number of connections. The
// parameter app is their application name. The pool does not close when ctx ends, so that work that
// has begun can be finished.
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

// WorkerNATS returns the connection of a process to brokers. The brokers may be unavailable at that
// moment.
func WorkerNATS(urls, name string) (*nats.Conn, error) {
	return nats.Connect(urls, append(natsjs.ConnectOptions(), nats.RetryOnFailedConnect(true), nats.Name(name))...)
}

// ResidentPeak returns the largest resident memory of a process in bytes. It is zero if the system
// does not report it.
func ResidentPeak(pid int) int64 {
	kilobytes, err := strconv.ParseInt(strings.TrimSuffix(ProcField(fmt.Sprintf("/proc/%d/status", pid), "VmHWM"), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return kilobytes << 10
}

// ProcField returns the value of the first line with the given name in a file of /proc. It returns
// an empty text if it finds no such line.
func ProcField(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // the file was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
