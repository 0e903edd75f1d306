// Package childproc runs servers, relays and handlers of this module as child processes that their
// parent can stop and kill. A program that uses this package starts itself again, with a role. The
// program's main function calls [Serve] first.
package childproc

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

// A child is this program with these variables in its environment.
const (
	roleVariable = "POSTROOM_CHILD_ROLE"
	jobVariable  = "POSTROOM_CHILD_JOB"
)

// Role does the work of a child. It returns when ctx ends. The parameter job is the JSON of the job
// that the parent gave to [Start].
type Role func(ctx context.Context, job []byte) error

// leavePatience limits how long a child works after its parent has ended, or has told it to finish.
// It is longer than the longest patience that a parent gives to EndWithin.
const leavePatience = 3 * time.Minute

// Serve runs the role of this process if this process is a child, and reports whether it is one.
// When the parent ends or is killed, the child's standard input ends, and then the child ends too.
// Only the parent handles Ctrl-C: the child ignores it.
func Serve(roles map[string]Role) (served bool, err error) {
	name := os.Getenv(roleVariable)
	if name == "" {
		return false, nil
	}
	serve, ok := roles[name]
	if !ok {
		return true, fmt.Errorf("no such role: %q", name)
	}
	signal.Ignore(os.Interrupt) // needed if the system is not Unix; on Unix see the function apart
	ctx, stop := context.WithCancel(context.Background())
	go func() { // this goroutine ends with the process
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); { // Scan also returns false after an error
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

// told has the lines that the parent has sent to this process.
var told = lines{said: make(map[string]chan struct{})}

// lines has a channel for each line that the parent has sent, or that this process waits for.
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
	case <-l.channel(line): // the parent sent the same line before
	default:
		close(l.said[line])
	}
}

// Told returns a channel that the package closes when the parent has sent this line. Call Told in a
// child.
func Told(line string) <-chan struct{} {
	told.mu.Lock()
	defer told.mu.Unlock()
	return told.channel(line)
}

// Child is a process that this program started.
type Child struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	gone  chan struct{} // closed when the child has ended
	log   lastWords

	mu   sync.Mutex
	line string // the last line that the child wrote
}

// Start starts a child with a role. The child gets the parameter job as JSON. The child's standard
// error goes to the writer log. If log is nil, Start drops the standard error.
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
	case nil, *os.File: // the child writes to it directly, because a pipe would break when this process ends
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
	go func() { // this goroutine ends with the child
		defer close(c.gone)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.mu.Lock()
			c.line = lines.Text()
			c.mu.Unlock()
		}
		_ = c.cmd.Wait() // ProcessState says how it ended
	}()
	return c, nil
}

// Says returns the last line that the child wrote.
func (c *Child) Says() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.line
}

// Say sends a line to the child. See [Told].
func (c *Child) Say(line string) {
	_, _ = io.WriteString(c.input, line+"\n") // fails if the child has ended
}

// Await waits, up to 30 seconds, until the last line of the child's output begins with prefix.
func (c *Child) Await(ctx context.Context, prefix string) error {
	return Eventually(ctx, 30*time.Second, "a child to be "+prefix, func(context.Context) (bool, error) {
		if c.Ended() {
			return false, errors.New("it ended")
		}
		return strings.HasPrefix(c.Says(), prefix), nil
	})
}

// PID returns the child's process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Kill kills the child and waits until the child has ended. It also kills a child that a signal has
// stopped.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // fails if the child has ended already
	<-c.gone
}

// Signal sends a signal to the child. If the child has ended, Signal returns no error: call
// [Child.Ended] to find that out.
func (c *Child) Signal(s syscall.Signal) error {
	err := c.cmd.Process.Signal(s)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s: %w", s, err)
	}
	return nil
}

// Ended reports whether the child has ended.
func (c *Child) Ended() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// End tells the child to finish its work. If that takes longer than 20 seconds, End kills
// the child.
func (c *Child) End() {
	_ = c.EndWithin(20 * time.Second) // the caller does not want to know how the child ended
}

// EndWithin tells the child to finish its work. If that takes longer than the given patience,
// EndWithin kills the child. EndWithin returns an error if the child failed or was killed.
func (c *Child) EndWithin(patience time.Duration) error {
	_ = c.input.Close() // fails if the child has ended already
	select {
	case <-c.gone:
	case <-time.After(patience):
		c.Kill()
		return fmt.Errorf("it did not finish within %s, and was killed", patience)
	}
	return c.Failure()
}

// Failure returns an error with the end of the child's log if the child failed. Call it after the
// child has ended.
func (c *Child) Failure() error {
	if state := c.cmd.ProcessState; !state.Success() {
		return fmt.Errorf("it ended with %s: %s", state, strings.TrimSpace(c.log.String()))
	}
	return nil
}

// lastWords keeps the end of a child's log. If the child fails, Failure puts this end into the
// error. If the child writes its log directly to a file, lastWords gets nothing.
type lastWords struct {
	out io.Writer // gets the complete log

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

// Tell sends a line to the parent. Call it in a child.
func Tell(format string, args ...any) { fmt.Printf(format+"\n", args...) }
