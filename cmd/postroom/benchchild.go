package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postroom/postroom/internal/bench"
	"github.com/postroom/postroom/internal/devstack"
)

// benchChild is the command by which a benchmark starts parts of itself in
// processes of their own: a broker in the process of its client would share its
// scheduler and its garbage collector.
const benchChild = "bench-child"

func newBenchChild() *cobra.Command {
	return &cobra.Command{
		Use:     benchChild + " relay|nats|synced-nats",
		Short:   "Run a part of 'postroom bench' in a process of its own",
		Long:    "Run a part of 'postroom bench' in a process of its own, until standard input ends. It is no use to call this by hand.",
		Example: "  postroom " + benchChild + " nats",
		Hidden:  true,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// A Ctrl-C reaches this process as well. The parent, which still has to
			// clean up, ends it.
			ctx := context.WithoutCancel(cmd.Context())
			switch args[0] {
			case "relay":
				return bench.ServeRelay(ctx, cmd.InOrStdin(), cmd.OutOrStdout())
			case "nats":
				return serveBroker(ctx, cmd.InOrStdin(), cmd.OutOrStdout(), false)
			case "synced-nats":
				return serveBroker(ctx, cmd.InOrStdin(), cmd.OutOrStdout(), true)
			}
			return usagef("say what to run: relay, nats, synced-nats")
		},
	}
}

// serveBroker runs a broker until in ends, and writes its URL to out. A synced one
// acknowledges what is on its disk.
func serveBroker(ctx context.Context, in io.Reader, out io.Writer, synced bool) error {
	broker, err := devstack.StartNATS(ctx, devstack.NATSConfig{Durable: synced})
	if err != nil {
		return err
	}
	if err := printLine(out, "%s", broker.URL()); err != nil {
		return errors.Join(err, broker.Close())
	}
	_, err = io.Copy(io.Discard, in)
	return errors.Join(err, broker.Close())
}

// childBroker is a broker in a process of its own. It goes when this process
// does.
type childBroker struct {
	url   string
	input io.Closer
	child *exec.Cmd
}

func startBroker(ctx context.Context, self, part string) (*childBroker, error) {
	child := exec.CommandContext(context.WithoutCancel(ctx), self, benchChild, part)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, fmt.Errorf("start a broker: %w", err)
	}
	b := &childBroker{input: in, child: child}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("start a broker: %w", errors.Join(err, b.close()))
	}
	b.url = strings.TrimSpace(line)
	return b, nil
}

func (b *childBroker) close() error {
	if err := errors.Join(b.input.Close(), b.child.Wait()); err != nil {
		return fmt.Errorf("stop the broker: %w", err)
	}
	return nil
}
