package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// A process is a running child.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended and Wait has returned
	err  error         // how the child ended; read it after the channel done is closed
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() { // this goroutine ends with the child
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// end sends a signal to the child and waits until the child has ended. It returns nil if the child
// ends in time, with any status, or had ended before.
func (p *process) end(signal os.Signal, patience time.Duration) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s: %w", signal, err)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("process %d still runs %s after %s", p.cmd.Process.Pid, patience, signal)
	}
}

// pause waits for d, or returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
