// Mutants removes guards from the code, one at a time. A guard is a few lines that prevent a fault.
// The lists in this directory have the guards. After each removal, mutants runs the test that has
// to fail without the guard. If a test does not fail, mutants exits with an error.
//
//	make mutants
//	make mutants ONLY=late-row-rule,key-lock
//	make mutants ONLY=key-lock ARGS=--show
//	make mutants PLANTED=1
//	make mutants ONLY=inbox.txt,saga.txt ARGS='--report integration/results/mutants.md'
//
// A marker above the code says which edit removes the guard, so that a rename or a reformat of the
// code touches neither the lists nor the marker. In Go files a marker begins with two slashes, in
// SQL files with two hyphens:
//
//	//guard:a-saga-gets-its-types false
//	if missing := h.missingTypes(all); len(missing) > 0 {
//
// See [edit] for the edits. The checkout does not change: the go command gets the changed file as
// an overlay. With --planted, mutants plants bugs instead. A chaos run or the model has to find
// these. Their markers have the word planted instead of guard.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// plantedFile has the bugs that chaos or the model has to find. The other files have the guards.
const plantedFile = "planted.txt"

// options are the options of the command line.
type options struct {
	only     string
	planted  bool
	asJSON   bool
	race     bool
	parallel int
	show     bool
	report   string
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	var opt options
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&opt.only, "only", "", "names of the guards, bugs or lists to try, with commas between them (default all)")
	flags.BoolVar(&opt.planted, "planted", false, "plant the bugs that chaos or the model has to find, instead of removing guards")
	flags.BoolVar(&opt.asJSON, "json", false, "print the results as JSON")
	flags.BoolVar(&opt.race, "race", false, "run the tests with the race detector, which takes longer")
	flags.IntVar(&opt.parallel, "parallel", 0, "how many guards or bugs to try at the same time (default one for each processor, and half as many with --planted)")
	flags.BoolVar(&opt.show, "show", false, "print what the guards or bugs change, and try none")
	flags.StringVar(&opt.report, "report", "", "also write the results of whole lists to this page")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if opt.parallel <= 0 {
		if opt.parallel = runtime.NumCPU(); opt.planted {
			opt.parallel = max(1, opt.parallel/2)
		}
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	all, err := readAll(root, opt.planted)
	if err != nil {
		return err
	}
	chosen, err := choose(all, opt.only)
	if err != nil {
		return err
	}
	if opt.show {
		for _, e := range chosen {
			text, err := e.show(root)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(out, text); err != nil {
				return fmt.Errorf("print a change: %w", err)
			}
		}
		return nil
	}
	scratch, err := os.MkdirTemp("", "postroom-mutants-")
	if err != nil {
		return fmt.Errorf("make a directory for overlays: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }() // overlays and binaries
	t := &trials{root: root, scratch: scratch, opt: opt, progress: progress}
	began := time.Now()
	results, err := t.run(ctx, chosen)
	if err != nil {
		return err
	}
	if opt.report != "" {
		former, err := os.ReadFile(opt.report)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("read the former report: %w", err)
		}
		if err := os.WriteFile(opt.report, []byte(page(ctx, string(former), all, results, began)), 0o644); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	if err := write(out, results, opt.asJSON); err != nil {
		return err
	}
	return verdict(results)
}

// moduleRoot returns the directory of go.work: the current directory or one above it. It is not
// enough to find a go.mod, because guards and tests are in several modules.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.work")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no go.work in %s or above it", dir)
		}
	}
}

// choose returns the entries with the given names, or all entries if no name is given. The name of
// a list means all its entries.
func choose(all []entry, only string) ([]entry, error) {
	if only == "" {
		return all, nil
	}
	var chosen []entry
	for _, name := range strings.Split(only, ",") {
		found := false
		for _, e := range all {
			if name = strings.TrimSpace(name); e.Name == name || e.list() == name {
				chosen, found = append(chosen, e), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no entry has the name %q", name)
		}
	}
	return chosen, nil
}
