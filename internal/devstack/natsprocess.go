package devstack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// natsProcess is a server in a separate process.
type natsProcess struct {
	program string
	file    natsFile
	guard   *guard
	port    int
	server  *process
	input   io.Closer     // the server's standard input; when it ends, natsd ends
	words   *bytes.Buffer // the server's standard error, which is not in its log; read it after the server has ended
	frozen  bool
}

func startNATSProcess(ctx context.Context, cfg NATSConfig) (*NATS, error) {
	program, err := natsProgram()
	if err != nil {
		return nil, err
	}
	cfg.Name = cmp.Or(cfg.Name, defaultNATSName)
	g, err := newGuard("", "nats")
	if err != nil {
		return nil, err
	}
	n := &natsProcess{program: program, guard: g, file: natsFile{cfg: cfg, dir: g.dir, seen: g.dir}}
	if err := n.startOnFreePort(ctx); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return &NATS{server: n, source: "process"}, nil
}

func (n *natsProcess) startOnFreePort(ctx context.Context) error {
	for try := 1; ; try++ {
		var err error
		if n.port, err = freePort(); err != nil {
			return err
		}
		n.file.listen = n.address()
		if err := n.file.write(n.file.cfg.Options); err != nil {
			return err
		}
		err = n.start(ctx)
		if err == nil || try == portTries || !errors.Is(err, errPortTaken) {
			return err
		}
	}
}

func (n *natsProcess) address() string { return fmt.Sprintf("127.0.0.1:%d", n.port) }
func (n *natsProcess) url() string     { return "nats://" + n.address() }
func (n *natsProcess) dir() string     { return n.guard.dir }

// start starts the process and returns when the server answers.
func (n *natsProcess) start(ctx context.Context) error {
	if err := portFree(n.port); err != nil {
		return err
	}
	cmd := exec.Command(n.program, natsArguments(n.program, filepath.Join(n.guard.dir, natsConfFile))...) // the watchdog recognises the server by this path
	cmd.SysProcAttr = ownSession(nil)
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	n.words = new(bytes.Buffer)
	cmd.Stderr = n.words
	if n.server, err = startProcess(cmd); err != nil {
		return err
	}
	n.input, n.frozen = input, false
	if err := n.await(ctx); err != nil {
		left := n.end(syscall.SIGKILL, time.Second)
		if left == nil {
			err = fmt.Errorf("%w\n%s", err, lastLines(n.file.log()+n.words.String()))
		}
		return errors.Join(err, left)
	}
	return nil
}

// await waits until the server answers.
func (n *natsProcess) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	for {
		answer := n.file.greet(ctx, n.address())
		select {
		case <-n.server.done:
			return fmt.Errorf("the server ended at start: %w", errors.Join(n.server.err, portFree(n.port)))
		default:
		}
		if answer == nil {
			return nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the server: %w: %w", err, answer)
		}
	}
}

func (n *natsProcess) stop() error {
	if err := n.thaw(); err != nil {
		return err
	}
	if n.end(syscall.SIGTERM, 10*time.Second) == nil {
		return nil
	}
	return n.kill()
}

func (n *natsProcess) kill() error { return n.end(syscall.SIGKILL, 5*time.Second) }

// end signals the process and waits for its end.
func (n *natsProcess) end(signal os.Signal, patience time.Duration) error {
	if err := n.server.end(signal, patience); err != nil {
		return err
	}
	_ = n.input.Close() // an error means that it was closed when the process ended
	return nil
}

func (n *natsProcess) freeze() error {
	n.frozen = true
	if err := n.server.cmd.Process.Signal(sigFreeze); err != nil {
		return err
	}
	return awaitFrozen(n.server.cmd.Process.Pid)
}

func (n *natsProcess) thaw() error {
	if !n.frozen {
		return nil
	}
	n.frozen = false
	return n.server.cmd.Process.Signal(sigThaw)
}

func (n *natsProcess) reload(options string) error {
	return n.file.reload(options, func() error { return n.server.cmd.Process.Signal(sigReload) })
}

func (n *natsProcess) close() error { return n.guard.Close() }
