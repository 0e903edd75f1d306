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
	fell  int // lives that ended though nobody ended them, the present one left out
}

// NewProcess returns one that has no life yet. See [childproc.Start].
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

// Now is its present life, or the last one; nil before the first.
func (p *Process) Now() *childproc.Child {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child
}

// Kill ends its life without a word, and reports whether it had ended by itself before.
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

// End has it finish, for good.
func (p *Process) End() {
	if child := p.Now(); child != nil {
		child.End()
	}
}

// Fallen returns how many of its lives ended though nobody ended them. It is not asked after
// [Process.End].
func (p *Process) Fallen() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child.Ended() {
		return p.fell + 1
	}
	return p.fell
}

// EndAll has processes finish, all at once.
func EndAll(processes []*Process) {
	var all sync.WaitGroup
	for _, p := range processes {
		all.Go(p.End)
	}
	all.Wait()
}

// WorkerPool is a process's pool of connections, of which there are so many at the most. App is
// how PostgreSQL calls them. It outlives ctx, so that what was begun can be finished.
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

// ResidentPeak returns the most memory in bytes that a process has had resident,
// zero where the system does not tell.
func ResidentPeak(pid int) int64 {
	kilobytes, err := strconv.ParseInt(strings.TrimSuffix(ProcField(fmt.Sprintf("/proc/%d/status", pid), "VmHWM"), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return kilobytes << 10
}

// ProcField returns the value of the first line of a name in a file of /proc,
// empty where there is none.
func ProcField(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was read only
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
