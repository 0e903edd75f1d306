// Testtimes writes how long the tests of each package take. It reads the output of go test -json
// from standard input, and writes a file that docs/reference/sizes.md shows.
//
//	make test-times
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

const module = "github.com/postroom/postroom"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: testtimes file <json")
		os.Exit(2)
	}
	packages, err := read(os.Stdin)
	if err == nil {
		header := fmt.Sprintf("Measured on %s at commit %s, with %s and %d processors.", time.Now().UTC().Format(time.DateOnly), commit(), runtime.Version(), runtime.NumCPU())
		err = os.WriteFile(os.Args[1], []byte(table(header, packages)), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testtimes:", err)
		os.Exit(1)
	}
}

// commit returns the last commit of the checkout.
func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // in seconds
}

// times are those of one package.
type times struct {
	name           string
	seconds        float64
	slowest        string // a test
	slowestSeconds float64
}

// read reads the output of go test -json. It passes over lines that are no JSON. A test that failed is
// an error: it may have ended early.
func read(from io.Reader) ([]times, error) {
	var done []times
	running := make(map[string]*times)
	failed := 0
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue
		}
		if running[e.Package] == nil {
			running[e.Package] = &times{name: cmp.Or(strings.TrimPrefix(strings.TrimPrefix(e.Package, module), "/"), ".")}
		}
		p := running[e.Package]
		switch {
		case e.Action == "fail":
			failed++
		case e.Action != "pass":
		case e.Test == "":
			p.seconds = e.Elapsed
			done = append(done, *p)
		case !strings.Contains(e.Test, "/") && e.Elapsed >= p.slowestSeconds:
			p.slowest, p.slowestSeconds = e.Test, e.Elapsed
		}
	}
	switch {
	case lines.Err() != nil:
		return nil, lines.Err()
	case failed > 0:
		return nil, fmt.Errorf("%d tests and packages failed", failed)
	case len(done) == 0:
		return nil, errors.New("no package was tested")
	}
	return done, nil
}

// table returns a line for each package, the slowest package first. Tabs separate the columns.
func table(header string, packages []times) string {
	slices.SortFunc(packages, func(a, b times) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), strings.Compare(a.name, b.name))
	})
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n", header)
	for _, p := range packages {
		fmt.Fprintf(&text, "%s\t%.1f\t%s\t%.1f\n", p.name, p.seconds, p.slowest, p.slowestSeconds)
	}
	return text.String()
}
