package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// outcome is the result of the removal of a guard.
type outcome string

const (
	noticed   outcome = "noticed"
	unnoticed outcome = "NOT NOTICED"  // the test is green without the guard
	faulty    outcome = "FAULTY ENTRY" // the entry does not fit the code or does not build, or its test is not green with the guard
	undecided outcome = "UNDECIDED"    // chaos did not have enough time
)

// result is the result of the trial of an entry.
type result struct {
	entry

	Outcome outcome  `json:"outcome"`
	By      []string `json:"noticed_by,omitempty"` // the tests that failed, or the invariants that broke
	Seconds float64  `json:"seconds"`
	Why     string   `json:"why,omitempty"` // the reason for an outcome other than noticed
}

// trials removes guards and runs their tests.
type trials struct {
	root     string
	scratch  string
	opt      options
	progress io.Writer

	mu sync.Mutex
}

func (t *trials) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.progress, format+"\n", args...)
}

// Without its guard, a test may hang, and go test has to end it. The test gets ten times the time
// that it took with the guard, plus a minute in which its servers start, but at most five minutes.
const (
	testTimeout  = 5 * time.Minute
	leastTimeout = time.Minute
	slower       = 10
)

// run tries all entries. Before that it checks that the entries fit the code, and that their tests
// are green with all guards.
func (t *trials) run(ctx context.Context, all []entry) ([]result, error) {
	for _, e := range all {
		if _, err := e.apply(t.root); err != nil {
			return nil, err
		}
	}
	// Entries of a package follow each other, so that the go command compiles the package once.
	slices.SortStableFunc(all, func(a, b entry) int { return strings.Compare(a.testPackage(), b.testPackage()) })
	before, err := t.unchanged(ctx, all)
	if err != nil {
		return nil, err
	}
	results := make([]result, len(all))
	p := &pace{began: time.Now(), total: len(all)}
	err = t.each(ctx, len(all), func(i int) error {
		results[i] = result{entry: all[i], Outcome: faulty, Why: before[i].why}
		began := time.Now()
		if results[i].Why == "" {
			if err := t.try(ctx, &results[i], i, before[i]); err != nil {
				return err
			}
		}
		results[i].Seconds = time.Since(began).Seconds()
		t.say("%s %-40s %s %s (%.0f s)", p.step(time.Now()), all[i].Name, results[i].Outcome, strings.Join(results[i].By, ", "), results[i].Seconds)
		return nil
	})
	return results, err
}

// pace estimates how long the rest of a run will take at the speed so far.
type pace struct {
	began time.Time
	total int

	mu   sync.Mutex
	done int
}

// step counts one more entry as done, and describes the progress.
func (p *pace) step(now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	left := now.Sub(p.began) / time.Duration(p.done) * time.Duration(p.total-p.done)
	return fmt.Sprintf("[%d of %d, %s left]", p.done, p.total, left.Round(time.Second))
}

// baseline is the result of a test with all guards.
type baseline struct {
	why     string        // why the test can show nothing; empty if it can show something
	took    time.Duration // with all guards
	refused bool          // the server refuses statements even with all guards
}

// timeout is how long the test may take without the guard.
func (u baseline) timeout() time.Duration {
	return min(leastTimeout+slower*u.took, testTimeout)
}

// each calls the function do with every number from 0 to n-1, several calls at the same time. If a
// call fails, the other calls still happen. It returns all errors.
func (t *trials) each(ctx context.Context, n int, do func(i int) error) error {
	next := make(chan int)
	go func() { // this goroutine ends with ctx at the latest
		defer close(next)
		for i := range n {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	var all sync.WaitGroup
	errs := make(chan error, n)
	for range max(1, t.opt.parallel) {
		all.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					errs <- err
				}
			}
		})
	}
	all.Wait()
	close(errs)
	var err error
	for e := range errs {
		err = errors.Join(err, e)
	}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// unchanged runs the tests of all entries with every guard, and returns a [baseline] for each
// entry. If it can, it runs the tests of a package in one go test: see [together].
func (t *trials) unchanged(ctx context.Context, all []entry) ([]baseline, error) {
	packages := make(map[string][]string)
	for _, e := range all {
		if e.Package != chaos && !slices.Contains(packages[e.testPackage()], e.Run) {
			packages[e.testPackage()] = append(packages[e.testPackage()], e.Run)
		}
	}
	type job struct{ pkg, run string }
	var jobs []job
	for pkg, runs := range packages {
		jobs = append(jobs, together(runs, func(run string) job { return job{pkg, run} })...)
	}
	slices.SortFunc(jobs, func(a, b job) int { return strings.Compare(a.pkg+a.run, b.pkg+b.run) })
	seen := make(map[string]*report) // the reports, by package
	var mu sync.Mutex
	err := t.each(ctx, len(jobs), func(i int) error {
		r, err := t.goTest(ctx, jobs[i].pkg, jobs[i].run, "", 4*testTimeout) // one job has many tests
		if r == nil {
			return err
		}
		t.say("%-40s with all guards: %s", jobs[i].pkg, r.word())
		mu.Lock()
		defer mu.Unlock()
		if seen[jobs[i].pkg] == nil {
			seen[jobs[i].pkg] = &report{took: make(map[string]time.Duration)}
		}
		seen[jobs[i].pkg].add(r)
		return err
	})
	known := make([]baseline, len(all))
	for i, e := range all {
		if e.Package != chaos && seen[e.testPackage()] != nil {
			known[i] = seen[e.testPackage()].fitness(e.Run)
		}
	}
	return known, err
}

// together joins regular expressions of tests into one. It does not join an expression that also
// names subtests.
func together[T any](runs []string, as func(run string) T) (jobs []T) {
	var joined []string
	for _, run := range runs {
		if strings.Contains(run, "/") {
			jobs = append(jobs, as(run))
		} else {
			joined = append(joined, "("+run+")")
		}
	}
	if len(joined) > 0 {
		jobs = append(jobs, as(strings.Join(joined, "|")))
	}
	return jobs
}

// testPackage returns the package whose test has to fail.
func (e entry) testPackage() string {
	if e.Package == model {
		return "integration/model"
	}
	return e.Package
}

// overlay writes the changed file, and the file that tells the go command about it.
func (t *trials) overlay(e entry, n int) (string, error) {
	text, err := e.apply(t.root)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(t.scratch, fmt.Sprint(n))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	changed := filepath.Join(dir, filepath.Base(e.File))
	list, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(t.root, filepath.FromSlash(e.File)): changed}})
	if err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := errors.Join(os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(name, list, 0o600)); err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	return name, nil
}

// try removes one guard, and runs the test that has to fail.
func (t *trials) try(ctx context.Context, r *result, n int, before baseline) error {
	overlay, err := t.overlay(r.entry, n)
	if err != nil {
		return err
	}
	if r.Package == chaos {
		return t.tryChaos(ctx, r, overlay)
	}
	tests, err := t.goTest(ctx, r.testPackage(), r.Run, overlay, before.timeout())
	if err != nil {
		return err
	}
	switch refusal := tests.refusal(); {
	case tests.unbuilt:
		r.Outcome, r.Why = faulty, "it does not build: "+tests.tail()
	case refusal != "" && !before.refused && strings.HasSuffix(r.File, ".sql"): // any test notices that
		r.Outcome, r.Why = faulty, "the server refuses the changed statement: "+refusal
	case len(tests.failed) > 0:
		r.Outcome, r.By = noticed, tests.failed
	case !tests.passes:
		r.Outcome, r.Why = faulty, "the package failed, and no test of it: "+tests.tail()
	default:
		r.Outcome, r.Why = unnoticed, "its test passes without it"
	}
	return nil
}

// report is the output of go test.
type report struct {
	passed, failed, skipped []string // tests; of failed tests only the innermost
	hung                    bool     // tests failed because they did not end in time
	unbuilt                 bool
	passes                  bool // go test succeeded
	took                    map[string]time.Duration
	output                  []string
}

func (r *report) add(o *report) {
	r.passed, r.failed, r.skipped = append(r.passed, o.passed...), append(r.failed, o.failed...), append(r.skipped, o.skipped...)
	r.unbuilt, r.output = r.unbuilt || o.unbuilt, append(r.output, o.output...)
	maps.Copy(r.took, o.took)
}

func (r *report) word() string {
	switch {
	case r == nil:
		return "nothing"
	case r.unbuilt:
		return "does not build"
	case !r.passes:
		return "red: " + strings.Join(r.failed, ", ")
	}
	return fmt.Sprintf("green, %d tests", len(r.passed))
}

// refused matches an error of a server that cannot read a statement, or finds wrong types in it.
var refused = regexp.MustCompile(`SQLSTATE (42601|42804|42883|42P18)`)

// refusal returns the first line of the output that says that the server refused a statement.
func (r *report) refusal() string {
	for _, line := range r.output {
		if refused.MatchString(line) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// tail returns the end of the output.
func (r *report) tail() string {
	return strings.TrimSpace(strings.Join(r.output[max(0, len(r.output)-8):], ""))
}

// fitness returns the [baseline] of the tests of a regular expression: whether they can show
// anything, and how long the longest of them takes.
func (r *report) fitness(run string) (u baseline) {
	top, _, _ := strings.Cut(run, "/")
	match := regexp.MustCompile(top)
	is := func(name string) bool { name, _, _ = strings.Cut(name, "/"); return match.MatchString(name) }
	switch {
	case r.unbuilt:
		u.why = "the package does not build with all guards: " + r.tail()
	case slices.ContainsFunc(r.failed, is):
		u.why = fmt.Sprintf("its test is red with all guards, too: %s", r.failed[slices.IndexFunc(r.failed, is)])
	case !slices.ContainsFunc(r.passed, is):
		u.why = "no test ran that " + run + " names, or all were skipped"
	}
	u.refused = r.refusal() != ""
	for name, took := range r.took {
		if is(name) {
			u.took = max(u.took, took)
		}
	}
	return u
}

// goTest runs tests of a package. It links the program without debug information, because that
// takes half the time.
func (t *trials) goTest(ctx context.Context, pkg, run, overlay string, timeout time.Duration) (*report, error) {
	args := []string{"test", "-json", "-count=1", "-vet=off", "-ldflags=-s -w", "-timeout", timeout.String(), "-run", run}
	if overlay != "" {
		args = append(args, "-overlay", overlay, "-failfast")
	}
	if t.opt.race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = t.root
	cmd.Env = append(os.Environ(), "POSTROOM_TEST_REQUIRE=1", "POSTROOM_TEST_PATIENCE=2", "POSTROOM_TEST_OVERLAY="+overlay)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("run go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run go test: %w", err)
	}
	r := readReport(out)
	err = cmd.Wait()
	r.output = append(r.output, stderr.String())
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		return r, fmt.Errorf("run go test: %w", err)
	}
	r.passes = err == nil
	return r, nil
}

// readReport reads the output of go test -json.
func readReport(out io.Reader) *report {
	r := &report{took: make(map[string]time.Duration)}
	running := make(map[string]bool)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var ev struct {
			Action, Test, Output string
			Elapsed              float64
		}
		if json.Unmarshal(lines.Bytes(), &ev) != nil {
			continue // a line that go test did not write
		}
		switch ev.Action {
		case "build-fail":
			r.unbuilt = true
		case "output", "build-output":
			r.output = append(r.output, ev.Output)
			r.hung = r.hung || strings.HasPrefix(ev.Output, "panic: test timed out")
		case "run":
			running[ev.Test] = true
		case "pass", "fail", "skip":
			if ev.Test == "" {
				continue
			}
			delete(running, ev.Test)
			r.took[ev.Test] = time.Duration(ev.Elapsed * float64(time.Second))
			list := map[string]*[]string{"pass": &r.passed, "fail": &r.failed, "skip": &r.skipped}[ev.Action]
			*list = append(*list, ev.Test)
		}
	}
	if r.hung { // the tests that were still running have no result in the output
		for test := range running {
			r.failed = append(r.failed, test+" (hung)")
		}
	}
	r.failed = innermost(r.failed)
	return r
}

// innermost leaves out tests that failed because one of their subtests failed.
func innermost(tests []string) (inner []string) {
	slices.Sort(tests)
	for _, test := range slices.Compact(tests) {
		if !slices.ContainsFunc(tests, func(other string) bool { return strings.HasPrefix(other, test+"/") }) {
			inner = append(inner, test)
		}
	}
	return inner
}
