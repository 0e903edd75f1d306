// Package fleet runs this module's own programs as processes that can be killed and
// stopped: servers, relays, handlers. A program that uses it is also what it starts.
package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// This program is also the servers and relays that it starts and kills.
const (
	roleVariable = "POSTROOM_FLEET_ROLE"
	jobVariable  = "POSTROOM_FLEET_JOB"
)

// Role is what a child can be. It works until ctx ends.
type Role func(ctx context.Context, job []byte) error

// Serve is the program in a child, and reports whether this is one. A child ends
// when its parent does, however that ends: its standard input does then.
func Serve(roles map[string]Role) (served bool, err error) {
	name := os.Getenv(roleVariable)
	if name == "" {
		return false, nil
	}
	serve, ok := roles[name]
	if !ok {
		return true, fmt.Errorf("no such role: %q", name)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end, too
		stop()
	}()
	if err := serve(ctx, []byte(os.Getenv(jobVariable))); err != nil {
		return true, fmt.Errorf("%s: %w", name, err)
	}
	return true, nil
}

// Child is a process that this program started.
type Child struct {
	cmd   *exec.Cmd
	input io.Closer
	gone  chan struct{} // closed when it has ended

	mu   sync.Mutex
	line string // the last that it wrote
}

// Start starts one in a role, with its job in JSON. Its log goes to log; nil is
// nowhere.
func Start(role string, job any, log io.Writer) (*Child, error) {
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
	cmd.SysProcAttr = apart()
	c := &Child{cmd: cmd, gone: make(chan struct{})}
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

// Says returns the last line that the child wrote.
func (c *Child) Says() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.line
}

// Await waits until the child writes a line that begins so.
func (c *Child) Await(ctx context.Context, prefix string) error {
	return Eventually(ctx, 30*time.Second, "a child to be "+prefix, func(context.Context) (bool, error) {
		if c.Ended() {
			return false, errors.New("it ended")
		}
		return strings.HasPrefix(c.Says(), prefix), nil
	})
}

// PID is the child's process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Kill ends the child without a word, stopped or not, and waits until it is gone.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // fails where it is gone already
	<-c.gone
}

// Signal sends a signal. One to a child that has ended is no error: that shows
// elsewhere.
func (c *Child) Signal(s syscall.Signal) error {
	err := c.cmd.Process.Signal(s)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s: %w", s, err)
	}
	return nil
}

// Ended reports whether the child is gone.
func (c *Child) Ended() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// End has the child finish what it is at.
func (c *Child) End() {
	_ = c.input.Close() // fails where it is gone already
	select {
	case <-c.gone:
	case <-time.After(20 * time.Second):
		c.Kill()
	}
}

// Tell writes a line to the parent, in a child.
func Tell(format string, args ...any) { fmt.Printf(format+"\n", args...) }
