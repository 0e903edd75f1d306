package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// The expression found matches a line of a chaos report about a broken invariant.
var found = regexp.MustCompile(`(?m)^([A-Za-z]+) +FAILED, (\d+) times`)

// tryChaos builds chaos with a bug in it, and runs it with the seed of the entry.
func (t *trials) tryChaos(ctx context.Context, r *result, overlay string) error {
	seed, seconds, faults, err := r.chaosRun()
	if err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(overlay), "chaos")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, "./integration/chaos")
	build.Dir = t.root
	if out, err := build.CombinedOutput(); err != nil {
		r.Outcome, r.Why = faulty, "it does not build: "+strings.TrimSpace(string(out))
		return nil //nolint:nilerr // the fault is in the entry
	}
	defer func() { _ = os.Remove(program) }() // the program is large
	args := []string{"--seed", fmt.Sprint(seed), "--seconds", fmt.Sprint(seconds)}
	if faults != "" {
		args = append(args, "--only", faults)
	}
	for _, patience := range []string{"1", "3"} { // if a run is undecided, try once more, with more patience
		cmd := exec.CommandContext(ctx, program, append(args, "--patience", patience)...)
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		t.judgeChaos(r, string(out), err)
		if r.Outcome != noticed {
			t.say("%s", tail(string(out), 40))
		}
		if r.Outcome != undecided {
			break
		}
	}
	return nil
}

// judgeChaos reads the report of a chaos run.
func (t *trials) judgeChaos(r *result, out string, err error) {
	r.By, r.Why = nil, lastLine(out)
	for _, m := range found.FindAllStringSubmatch(out, -1) {
		r.By = append(r.By, m[1]+" ×"+m[2])
	}
	var exited *exec.ExitError
	status := 0
	if errors.As(err, &exited) {
		status = exited.ExitCode()
	}
	switch {
	case status == 1 && len(r.By) > 0:
		r.Outcome, r.Why = noticed, ""
	case status == 3:
		r.Outcome = undecided
	case err == nil:
		r.Outcome = unnoticed
	default:
		r.Outcome, r.Why = faulty, fmt.Sprintf("%v: %s", err, r.Why)
	}
}

func lastLine(text string) string { return tail(text, 1) }

// tail returns the last n lines of a text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
