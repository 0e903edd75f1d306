package terminal_test

import (
	"strings"
	"testing"

	"github.com/postroom/postroom/internal/terminal"
)

func TestBar(t *testing.T) {
	var out strings.Builder
	b := terminal.NewBar(&out, func() int { return 80 })
	b.Show(12, 24, "relay.drain")
	if !strings.Contains(out.String(), "[============            ] 12/24  0s  relay.drain") {
		t.Errorf("bar: %q", out.String())
	}
	out.Reset()
	b.Show(7, 0, "the total was not known")
	if !strings.Contains(out.String(), "[                        ] 7/0") {
		t.Errorf("bar without a total: %q", out.String())
	}
	out.Reset()
	b.Show(30, 24, "there are more")
	if !strings.Contains(out.String(), "[========================] 30/24") {
		t.Errorf("bar of more than the total: %q", out.String())
	}
	out.Reset()
	if _, err := b.Write([]byte("a warning\n")); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "\r\x1b[Ka warning\n[===") {
		t.Errorf("a line of the log: %q", got)
	}

	out.Reset()
	b = terminal.NewBar(&out, func() int { return 0 }) // not a terminal
	b.Show(1, 2, "x")
	b.Clear()
	if out.String() != "" {
		t.Errorf("elsewhere: %q", out.String())
	}
	if _, err := b.Write([]byte("a warning\n")); err != nil || out.String() != "a warning\n" {
		t.Errorf("a line of the log elsewhere: %q, %v", out.String(), err)
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", 1234567: "1,234,567", -123: "-123", -123456: "-123,456"} {
		if got := terminal.Grouped(n); got != want {
			t.Errorf("Grouped(%d) = %s, want %s", n, got, want)
		}
	}
}
