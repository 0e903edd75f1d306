//go:build linux || darwin

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postroom/postroom/integration/checker"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	good := options{seconds: 1, nodes: 3, rate: 1, more: 1, atomic: "true", only: []string{"kill relay"}}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	err := options{nodes: 2, atomic: "perhaps", only: []string{"rain"}}.validate()
	for _, want := range []string{"--seconds is 0", "--nodes is 2", "--rate is 0", "--patience is 0", `--atomic is "perhaps"`, `no such kind of fault: "rain"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("validate = %v, want %s", err, want)
		}
	}
}

// A seed always makes the same plan. Each run has the required faults, and none that is
// impossible with its options.
func TestPlan(t *testing.T) {
	t.Parallel()
	shape := func(plan [lanes][]fault) (text string) {
		for _, lane := range plan {
			for _, f := range lane {
				text += fmt.Sprintln(f.kind.name, f.after, f.lasts, f.luck)
			}
		}
		return text
	}
	o := options{seconds: 30, nodes: 3}
	once := shape(makePlan(7, o, true))
	if again := shape(makePlan(7, o, true)); again != once {
		t.Error("one seed made two plans")
	}
	if shape(makePlan(8, o, true)) == once {
		t.Error("two seeds made one plan")
	}
	for _, k := range kinds {
		all := makePlan(7, o, true)[k.lane]
		has := func(list []fault) bool {
			return slices.ContainsFunc(list, func(f fault) bool { return f.kind.name == k.name })
		}
		if !has(all) {
			t.Errorf("%s is never planned", k.name)
		}
		if k.first && !has(all[:6]) {
			t.Errorf("%s is not among the first", k.name)
		}
		alone := makePlan(7, options{seconds: 30, nodes: 1}, false)[k.lane]
		if (k.cluster || k.disk) && has(alone) {
			t.Errorf("%s is planned for one server without a disk of its own", k.name)
		}
		for _, f := range all {
			if f.kind.lane != k.lane || f.lasts <= 0 || f.lasts > f.kind.longest || f.after <= 0 {
				t.Fatalf("planned: %s in lane %d, after %s, for %s", f.kind.name, k.lane, f.after, f.lasts)
			}
		}
	}
	o.only = []string{"step down"}
	for lane, all := range makePlan(7, o, true) {
		for _, f := range all {
			if f.kind.name != "step down" {
				t.Fatalf("%s is planned in lane %d, though it was not chosen", f.kind.name, lane)
			}
		}
	}
}

// The last line and the exit status say how a run ended.
func TestReport(t *testing.T) {
	t.Parallel()
	lost := checker.Verdict{Violations: map[checker.Name][]string{checker.NoLoss: {"event a", "event b"}}}
	for _, tt := range []struct {
		verdict checker.Verdict
		last    string
		status  int
	}{
		{lost, "chaos: events=0 faults=0 lost=2 ghosts=0 double_effects=0 misordered=0 verdict=FAILED", 1},
		{checker.Verdict{}, "chaos: events=0 faults=0 lost=0 ghosts=0 double_effects=0 misordered=0 verdict=undecided", 3},
		{checker.Verdict{Pending: []string{"held events: 7", "undecided at books: 9"}}, `chaos: events=0 faults=0 lost=0 ghosts=0 double_effects=0 misordered=0 verdict=undecided pending="held events: 7; undecided at books: 9"`, 3},
		{checker.Verdict{Coverage: checker.Coverage{
			Events: 5, Faults: map[string]int{"kill relay": 2}, UnknownCommits: 1, DuplicateAcks: 1, TakeOvers: 1, InboxDuplicates: 1, Dead: 1, Released: 1,
			Cancelled: 1, CalledOff: 1, Rescheduled: 1, Pauses: 1,
		}}, "chaos: events=5 faults=2 lost=0 ghosts=0 double_effects=0 misordered=0 verdict=ok", 0},
	} {
		r := report{verdict: tt.verdict}
		var out strings.Builder
		if err := r.print(&out); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(out.String(), "\n"+tt.last+"\n") || !strings.Contains(r.markdown(), tt.last) {
			t.Errorf("printed, want %s:\n%s", tt.last, out.String())
		}
		var failed *failure
		status := 0
		if errors.As(r.failure(), &failed) {
			status = failed.status
		}
		if status != tt.status {
			t.Errorf("exit status %d, want %d", status, tt.status)
		}
	}
}
