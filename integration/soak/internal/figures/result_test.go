package figures

import (
	"bytes"
	"strings"
	"testing"
)

// A bound that does not hold shows in the report, and the run fails.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	long, short := Result{Name: "x"}, Result{Name: "x", Short: true}
	for _, r := range []*Result{&long, &short} {
		r.Note("a", "%d", 1)
		r.Check("b", "1", "1", true)
		r.Measure("c", "2", "1", false)
	}
	if !long.IsBroken() || short.IsBroken() {
		t.Errorf("broken: long %t, short %t; a short run judges no measurement", long.IsBroken(), short.IsBroken())
	}
	short.Count("d", 1234, "this one")
	var out bytes.Buffer
	if err := short.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"x (0s): FAILED", "c        2                 1       not judged", "d        1,234: this one   0       FAILED"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	if !short.IsBroken() {
		t.Error("not broken by what must not have happened")
	}
}
