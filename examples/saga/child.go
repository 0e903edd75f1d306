package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// endPatience is how long a service may take to finish what it is at.
const endPatience = 24 * drainTimeout

// child is a process of a service: this program once more, with a job.
type child struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	gone   chan struct{} // closed when it has ended
	placed atomic.Bool   // it said that no more orders will be placed
	log    lastWords
}

// startChild starts one. What it logs goes to log.
func startChild(j job, log io.Writer) (*child, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	c := &child{cmd: exec.Command(self), gone: make(chan struct{}), log: lastWords{out: log}}
	c.cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	c.cmd.Stderr = &c.log
	c.cmd.SysProcAttr = apart()
	if c.input, err = c.cmd.StdinPipe(); err != nil { // it ends when we do
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start service %s: %w", j.Service, err)
	}
	go func() { // ends with the child
		defer close(c.gone)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() == sayPlaced {
				c.placed.Store(true)
			}
		}
		_ = c.cmd.Wait() // how it ended is in ProcessState
	}()
	return c, nil
}

// say writes a line to the child.
func (c *child) say(line string) {
	_, _ = io.WriteString(c.input, line+"\n") // fails where it is gone
}

// kill ends the child with SIGKILL, and waits until it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // fails where it is gone already
	<-c.gone
	_ = c.input.Close()
}

// end has the child finish what it is at, and waits until it is gone.
func (c *child) end() error {
	_ = c.input.Close() // fails where it is gone already
	select {
	case <-c.gone:
	case <-time.After(endPatience):
		c.kill()
		return fmt.Errorf("it did not finish within %s, and was killed", endPatience)
	}
	return c.failure()
}

// failure says how a child ended that did not end well. It is called after the end.
func (c *child) failure() error {
	if state := c.cmd.ProcessState; !state.Success() {
		return fmt.Errorf("it ended with %s: %s", state, strings.TrimSpace(c.log.String()))
	}
	return nil
}

// lastWords keeps the end of what a service logs, for when it fails.
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
