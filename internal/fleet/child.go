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
	"os/signal"
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

// leavePatience is how long a child may take to finish what it is at when its parent has
// let go of it.
const leavePatience = time.Minute

// Serve is the program in a child, and reports whether this is one. A child ends
// when its parent does, however that ends: its standard input does then. A Ctrl-C is for
// the parent.
func Serve(roles map[string]Role) (served bool, err error) {
	name := os.Getenv(roleVariable)
	if name == "" {
		return false, nil
	}
	serve, ok := roles[name]
	if !ok {
		return true, fmt.Errorf("no such role: %q", name)
	}
	signal.Ignore(os.Interrupt) // it does not reach us where apart can help it
	ctx, stop := context.WithCancel(context.Background())
	go func() { // ends with the process
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); { // an error is an end, too
			told.close(lines.Text())
		}
		stop()
		time.Sleep(leavePatience)
		os.Exit(1)
	}()
	if err := serve(ctx, []byte(os.Getenv(jobVariable))); err != nil {
		return true, fmt.Errorf("%s: %w", name, err)
	}
	return true, nil
}

// told has what the parent has said to this process.
var told = lines{said: make(map[string]chan struct{})}

// lines has a channel for each line that somebody waits for, or that was said.
type lines struct {
	mu   sync.Mutex
	said map[string]chan struct{}
}

func (l *lines) channel(line string) chan struct{} {
	if l.said[line] == nil {
		l.said[line] = make(chan struct{})
	}
	return l.said[line]
}

func (l *lines) close(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.channel(line): // it was said before
	default:
		close(l.said[line])
	}
}

// Told returns a channel that is closed when the parent has said a line, in a child.
func Told(line string) <-chan struct{} {
	told.mu.Lock()
	defer told.mu.Unlock()
	return told.channel(line)
}

// Child is a process that this program started.
type Child struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	gone  chan struct{} // closed when it has ended
	log   lastWords

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
	cmd.SysProcAttr = apart()
	c := &Child{cmd: cmd, gone: make(chan struct{}), log: lastWords{out: log}}
	switch log.(type) {
	case nil, *os.File: // without a pipe, which would break when this process ends
		cmd.Stderr = log
	default:
		cmd.Stderr = &c.log
	}
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
		_ = c.cmd.Wait() // how it ended is in ProcessState
	}()
	return c, nil
}

// Says returns the last line that the child wrote.
func (c *Child) Says() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.line
}

// Say writes a line to the child. See [Told].
func (c *Child) Say(line string) {
	_, _ = io.WriteString(c.input, line+"\n") // fails where it is gone
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

// End has the child finish what it is at, and ends it if that takes long.
func (c *Child) End() {
	_ = c.EndWithin(20 * time.Second) // how it ended, the caller does not ask
}

// EndWithin has the child finish what it is at. It returns an error if the child did not end
// well, and ends it if that takes longer than patience.
func (c *Child) EndWithin(patience time.Duration) error {
	_ = c.input.Close() // fails where it is gone already
	select {
	case <-c.gone:
	case <-time.After(patience):
		c.Kill()
		return fmt.Errorf("it did not finish within %s, and was killed", patience)
	}
	return c.Failure()
}

// Failure says how a child ended that did not end well. It is called after the end.
func (c *Child) Failure() error {
	if state := c.cmd.ProcessState; !state.Success() {
		return fmt.Errorf("it ended with %s: %s", state, strings.TrimSpace(c.log.String()))
	}
	return nil
}

// lastWords keeps the end of what a child logs, for when it fails. What goes to a file
// directly it does not see.
type lastWords struct {
	out io.Writer // gets all of it

	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (l *lastWords) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 4 << 10
	l.text = append(l.text, text...)
	l.text = l.text[max(0, len(l.text)-most):]
	return l.out.Write(text)
}

func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// Tell writes a line to the parent, in a child.
func Tell(format string, args ...any) { fmt.Printf(format+"\n", args...) }
