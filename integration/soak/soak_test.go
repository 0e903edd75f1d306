//go:build linux || darwin

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom/integration/natsfleet"
	"github.com/postroom/postroom/integration/soak/internal/figures"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/devtest"
)

// The scenarios also start the test binary as servers and relays.
func TestMain(m *testing.M) {
	if served, err := childproc.Serve(natsfleet.Roles(roles)); served {
		exit(err)
		return
	}
	devtest.Main(m)
}

// All scenarios, in their short versions, hold.
func TestShort(t *testing.T) {
	db := devtest.Postgres(t)
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "soak.md")
	opt := options{short: true, openFor: 5 * time.Minute, report: file}
	failed := opt.runOn(t.Context(), db, &out, progress{t})
	t.Log(out.String())
	if failed != nil { // after the log, because people read the end of the output first
		t.Errorf("soak: %v", failed)
	}
	report, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names() {
		if !strings.Contains(string(report), "\n## "+name+"\n") {
			t.Errorf("the report has no %s:\n%s", name, report)
		}
	}
}

// progress logs the lines of the scenarios.
type progress struct{ t *testing.T }

func (p progress) Write(text []byte) (int, error) {
	p.t.Log(strings.TrimSpace(string(text)))
	return len(text), nil
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		opt  options
		says string
	}{
		{"unknown scenario", options{only: []string{"brain"}, openFor: time.Minute}, "no such scenario"},
		{"too small", options{openFor: time.Minute, bytes: 10}, "--retained-bytes is 10"},
		{"too short", options{openFor: time.Second}, "--open-for is 1s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := tt.opt.validate(); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("validate = %v, want %q", err, tt.says)
			}
		})
	}
}

// A run of some scenarios keeps the others of the report, in their order.
func TestReportKeepsOtherScenarios(t *testing.T) {
	t.Parallel()
	at := func(day int, commit string) machine {
		return machine{date: time.Date(2026, 11, day, 0, 0, 0, 0, time.UTC), commit: commit}
	}
	result := func(name, figure string) *figures.Result {
		r := &figures.Result{Name: name, About: "About " + name + "."}
		r.Note(figure, "1")
		return r
	}
	first := &report{machine: at(1, "aaaa"), results: []*figures.Result{result("order", "old order"), result("relays", "old relays"), result("forgetful", "old forgetful")}}
	second := &report{machine: at(2, "bbbb"), results: []*figures.Result{result("relays", "new relays")}}
	got := second.markdown(first.markdown(""))
	rest := got
	for _, part := range []string{
		"| [order](#order) | 2026-11-01, aaaa |", "| [relays](#relays) | 2026-11-02, bbbb |", "| [forgetful](#forgetful) | 2026-11-01, aaaa |",
		"## order\n", "old order", "\n\n## relays\n", "new relays", "\n\n## forgetful\n", "old forgetful",
	} {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Fatalf("no %q at its place in:\n%s", part, got)
		}
		rest = after
	}
	if strings.Contains(got, "old relays") || second.markdown(got) != got {
		t.Errorf("the report has an old result, or changes if it is written again:\n%s", got)
	}
}

// The command line in the report can be typed again.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	o := options{only: []string{"order", "open"}, short: true, openFor: time.Minute, report: "integration/results/soak.md"}
	want := fmt.Sprintf("make soak ARGS=%q", "--only order,open --short --open-for 1m0s --report integration/results/soak.md")
	if got := o.commandLine(); got != want {
		t.Errorf("commandLine = %s, want %s", got, want)
	}
}
