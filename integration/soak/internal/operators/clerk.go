//go:build linux || darwin

package operators

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/postroom/postroom/integration/soak/internal/stage"
)

// clerk runs commands of Postroom's command line, with a program that buildClerk built.
type clerk struct {
	stage   *stage.Stage
	program string
	env     []string
}

// buildClerk builds the program.
func buildClerk(ctx context.Context, r *stage.Stage, database, brokers string) (*clerk, error) {
	dir, err := os.MkdirTemp("", "postroom-soak-bin-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	r.Later(func() error { return os.RemoveAll(dir) })
	c := &clerk{stage: r, program: filepath.Join(dir, "postroom")}
	c.env = append(os.Environ(), "POSTROOM_DATABASE_URL="+database, "POSTROOM_NATS_URL="+brokers, "POSTROOM_SCHEMA=")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", c.program, "github.com/postroom/postroom/cmd/postroom")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build postroom (from within its source): %w\n%s", err, out)
	}
	return c, nil
}

// run runs a command. It returns the command's JSON output, and how long the command took. Exit
// status 3 is no failure: it says that the command found something.
func (c *clerk) run(ctx context.Context, args ...string) (out []byte, took time.Duration, err error) {
	cmd := exec.CommandContext(ctx, c.program, append(args, "--json")...)
	cmd.Env = c.env
	var says bytes.Buffer
	cmd.Stderr = &says
	began := time.Now()
	out, err = cmd.Output()
	took = time.Since(began)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		err = nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("postroom %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(says.Bytes()))
	}
	return out, took, nil
}

// question is an operator's question, with the command that answers it.
type question struct {
	asks string
	args []string
	want string // the answer that is right, in words
	read func(out []byte) (answer string, right bool, err error)
}

// patience is how long an operator is willing to wait for an answer.
const patience = time.Second

// ask asks the question, and reports the answer.
func (c *clerk) ask(ctx context.Context, q question) error {
	var worst time.Duration
	var answer string
	var right bool
	for range stage.Pick(c.stage, 3, 1) { // the slowest counts
		out, took, err := c.run(ctx, q.args...)
		if err != nil {
			return err
		}
		worst = max(worst, took)
		if answer, right, err = q.read(out); err != nil {
			return fmt.Errorf("postroom %s: %w", strings.Join(q.args, " "), err)
		}
	}
	c.stage.Say("%s %s", q.asks, worst.Round(time.Millisecond))
	c.stage.Check(q.asks, answer, q.want, right)
	c.judge(typed(q.args), worst)
	return nil
}

// typed returns a command as an operator types it.
func typed(args []string) string {
	line := "postroom"
	for _, arg := range args {
		if strings.Contains(arg, " ") {
			arg = "'" + arg + "'"
		}
		line += " " + arg
	}
	return line
}

// judge reports how long a command took.
func (c *clerk) judge(command string, took time.Duration) {
	c.stage.Measure("`"+command+"`", fmt.Sprintf("%.0f ms", float64(took)/1e6), "under 1 s", took < patience)
}

// reading returns a function that decodes an answer into a T for the function read.
func reading[T any](read func(v T) (answer string, right bool)) func(out []byte) (string, bool, error) {
	return func(out []byte) (string, bool, error) {
		var v T
		if err := json.Unmarshal(out, &v); err != nil {
			return "", false, fmt.Errorf("read the answer: %w", err)
		}
		answer, right := read(v)
		return answer, right, nil
	}
}
