//go:build linux || darwin

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// This program is also the servers and relays that it starts and kills.
const (
	roleVariable = "POSTROOM_SOAK_ROLE"
	jobVariable  = "POSTROOM_SOAK_JOB"
)

// roles are what a child can be. Each runs until ctx ends.
var roles = map[string]func(ctx context.Context, job []byte) error{
	"nats":   serveNATS,
	"relay":  serveRelay,
	"keeper": serveKeeper,
}

// serveChild is the program in a child, and reports whether this is one. A child
// ends when its parent does, however that ends: its standard input does then.
func serveChild() (served bool, err error) {
	role := os.Getenv(roleVariable)
	if role == "" {
		return false, nil
	}
	serve, ok := roles[role]
	if !ok {
		return true, fmt.Errorf("no such role: %q", role)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end, too
		stop()
	}()
	if err := serve(ctx, []byte(os.Getenv(jobVariable))); err != nil {
		return true, fmt.Errorf("%s: %w", role, err)
	}
	return true, nil
}

// childLogger is for a child's relay or server.
func childLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// child is a process that this program started.
type child struct {
	cmd   *exec.Cmd
	input io.Closer
	gone  chan struct{} // closed when it has ended

	mu   sync.Mutex
	line string // the last that it wrote
}

// startChild starts one. Its log goes to log.
func startChild(role string, job any, log io.Writer) (*child, error) {
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, jobVariable+"="+string(text))
	cmd.Stderr = log
	// In a group of its own, a Ctrl-C does not reach it, and the kernel wakes it
	// with a hang-up when this program dies while it is stopped.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c := &child{cmd: cmd, gone: make(chan struct{})}
	if c.input, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a %s: %w", role, err)
	}
	go func() { // ends with the child
		defer close(c.gone)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.mu.Lock()
			c.line = lines.Text()
			c.mu.Unlock()
		}
		_ = c.cmd.Wait() // how it ended, nobody asks
	}()
	return c, nil
}

// says returns the last line that the child wrote.
func (c *child) says() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.line
}

// await waits until the child writes a line that begins so.
func (c *child) await(ctx context.Context, prefix string) error {
	return eventually(ctx, 30*time.Second, "a child to be "+prefix, func(context.Context) (bool, error) {
		if c.ended() {
			return false, errors.New("it ended")
		}
		return strings.HasPrefix(c.says(), prefix), nil
	})
}

// pid is the child's process id.
func (c *child) pid() int { return c.cmd.Process.Pid }

// kill ends the child without a word, stopped or not, and waits until it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // fails where it is gone already
	<-c.gone
}

func (c *child) signal(s syscall.Signal) error {
	err := c.cmd.Process.Signal(s)
	if err != nil && !errors.Is(err, os.ErrProcessDone) { // that shows elsewhere
		return fmt.Errorf("send %s: %w", s, err)
	}
	return nil
}

// ended reports whether the child is gone.
func (c *child) ended() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// end has the child finish what it is at.
func (c *child) end() {
	_ = c.input.Close() // fails where it is gone already
	select {
	case <-c.gone:
	case <-time.After(20 * time.Second):
		c.kill()
	}
}

// childLog is where children log to.
func (r *rig) childLog() io.Writer {
	if r.opt.verbose {
		return os.Stderr
	}
	return nil
}

// tell writes a line to the parent.
func tell(format string, args ...any) { fmt.Printf(format+"\n", args...) }
