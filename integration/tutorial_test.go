package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
)

// Whoever follows the three pages of the tutorial, in a fresh directory and with a module of their
// own, gets what the pages print. The test runs the commands and programs of the pages in their
// order.
func TestTutorial(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	for _, page := range []string{"first-event", "consumer", "dead-letter"} {
		text, err := os.ReadFile("../docs/tutorial/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		r.page = page
		for _, p := range partsOf(string(text)) {
			r.follow(p)
		}
	}
	r.stop("go run ./billing")
	if want := []string{"charged o-1", "charged o-2", "charged o-3", "charged o-3", "charged o-4"}; !slices.Equal(r.charged, want) {
		t.Errorf("the consumers printed %q, want %q", r.charged, want)
	}
	if r.commands < 30 || r.outputs < 12 || r.files < 3 {
		t.Errorf("%d commands, %d outputs and %d files were found: the test looks for them in the wrong way", r.commands, r.outputs, r.files)
	}
}

// part is a part of a page.
type part struct {
	sort string // prose, commands, output, or the language of a fenced block
	text string
}

var command = regexp.MustCompile(`^(git|go|export|nats-server|createdb|postroom|psql|mkdir) `)

// partsOf splits a page. An indented block is commands if it begins with one. Otherwise it is what
// the last command prints.
func partsOf(page string) (parts []part) {
	add := func(sort, line string) {
		if n := len(parts); n > 0 && parts[n-1].sort == sort {
			parts[n-1].text += line + "\n"
			return
		}
		parts = append(parts, part{sort, line + "\n"})
	}
	fence, last := "", "prose"
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		inner, indented := strings.CutPrefix(line, "    ")
		switch {
		case strings.HasPrefix(line, "```"):
			fence = strings.TrimPrefix(line, "```")
			if last = "prose"; fence != "" {
				parts = append(parts, part{sort: fence})
			}
		case fence != "":
			add(fence, line)
		case line == "": // ends a block
			last = "prose"
		case !indented:
			add("prose", line)
			last = "prose"
		case last == "prose":
			last = "output"
			if command.MatchString(inner) {
				last = "commands"
			}
			if n := len(parts); last == "commands" || parts[n-1].sort != last { // an output may have empty lines
				parts = append(parts, part{sort: last})
			}
			add(last, inner)
		default:
			add(last, inner)
		}
	}
	return parts
}

// reader follows the pages: it has the terminals, and what it has seen in them.
type reader struct {
	*testing.T

	page                     string
	environ                  []string
	dir                      string               // of the next command
	running                  map[string]*terminal // commands that do not end by themselves
	last                     *terminal            // of the last command
	files, commands, outputs int
	file                     string            // the file that the last block named
	ids                      map[string]string // what is here in place of a page's ids, and of its port
	failure                  string            // of the last command; a page may show what such a command prints
	charged                  []string          // what the consumers have printed
	undo                     *strings.Replacer // takes back the last change of a file
}

// terminal has what a command prints.
type terminal struct {
	line    string
	cmd     *exec.Cmd
	done    chan struct{}
	answers io.Writer

	mu   sync.Mutex
	text bytes.Buffer
}

// Write answers a question with yes.
func (t *terminal) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if bytes.HasSuffix(text, []byte("[y/N] ")) {
		if _, err := t.answers.Write([]byte("y\n")); err != nil {
			return 0, err
		}
	}
	return t.text.Write(text)
}

func (t *terminal) printed() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ReplaceAll(t.text.String(), "\r\n", "\n")
}

// fetched are the commands that would bring something from other machines. newReader puts it into
// its place.
var fetched = map[string]bool{
	"git clone https://github.com/postroom/postroom":      true,
	"go install github.com/nats-io/nats-server/v2@latest": true,
}

// forever are the commands that run in a terminal of their own.
var forever = map[string]bool{"nats-server -js": true, "postroom relay": true, "go run ./billing": true}

// newReader gives a person what the first page asks for: PostgreSQL with a role, a checkout, and the
// program of a NATS server. Modules come from this machine's cache, if it has them.
func newReader(t *testing.T) *reader {
	t.Helper()
	for _, program := range []string{"psql", "createdb", "script"} {
		if _, err := exec.LookPath(program); err != nil {
			devtest.Missing(t, err)
		}
	}
	if os.Getenv("POSTROOM_TEST_SERVERS") == "containers" {
		t.Skip("SKIPPED: the pages are about servers on this machine")
	}
	server, err := url.Parse(devtest.OwnPostgres(t, devstack.Config{}).URL())
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{T: t, dir: t.TempDir(), running: map[string]*terminal{}, ids: map[string]string{}}
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(checkout, filepath.Join(r.dir, "postroom")); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(r.dir, "bin")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "nats"), "github.com/nats-io/nats-server/v2")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ports, err := devstack.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %s/nats -a 127.0.0.1 -p %d -sd %s/nats.d \"$@\"\n", bin, ports[0], r.dir)
	if err := os.WriteFile(filepath.Join(bin, "nats-server"), []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	password, _ := server.User.Password()
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	proxies := strings.Fields(string(cache))
	r.ids["4222"] = strconv.Itoa(ports[0])
	r.environ = append(os.Environ(), "GOWORK=", "GOFLAGS=-buildvcs=false", "SHELL=/bin/sh", "GOBIN="+bin, "PATH="+bin+":"+os.Getenv("PATH"), "PGHOST="+server.Hostname(),
		"PGPORT="+server.Port(), "PGUSER="+server.User.Username(), "PGPASSWORD="+password, "LC_ALL=C", "PAGER=cat", "POSTROOM_TEST_DATABASE_URL=",
		"GOPROXY=file://"+filepath.Join(proxies[0], "cache/download")+","+proxies[1])
	t.Cleanup(func() {
		for line := range r.running {
			r.stop(line)
		}
	})
	return r
}

func (r *reader) follow(p part) {
	r.Helper()
	switch p.sort {
	case "prose":
		r.read(p.text)
	case "go":
		r.files++
		path := filepath.Join(r.dir, r.file)
		if err := os.WriteFile(path, []byte(p.text), 0o600); err != nil {
			r.Fatal(err)
		}
	case "diff":
		r.change(p.text)
	case "commands":
		for line := range strings.Lines(p.text) {
			r.commands++
			r.run(strings.TrimSpace(line))
		}
	case "output":
		r.outputs++
		r.compare(p.text)
	default:
		r.Fatalf("%s: the test does not know what to do with a block of %s", r.page, p.sort)
	}
}

var (
	inFile = regexp.MustCompile("`(\\w+/\\w+\\.go)`")
	prints = regexp.MustCompile("[Tt]he consumer prints `([^`]+)`")
	stops  = regexp.MustCompile(`(?i)\bstop the consumer\b`)
	undoes = regexp.MustCompile(`(?i)\bundo the change\b`)
)

// read does what a paragraph asks for.
func (r *reader) read(text string) {
	r.Helper()
	text = strings.Join(strings.Fields(text), " ")
	for _, m := range inFile.FindAllStringSubmatch(text, -1) {
		r.file = m[1]
	}
	if stops.MatchString(text) {
		r.stop("go run ./billing")
	}
	if undoes.MatchString(text) {
		r.edit(r.undo)
	}
	for _, m := range prints.FindAllStringSubmatch(text, -1) {
		r.await(r.running["go run ./billing"], m[1])
	}
}

// change makes the change that a diff shows.
func (r *reader) change(diff string) {
	r.Helper()
	var do, undo []string
	for line := range strings.Lines(diff) {
		if text := line[1:]; line[0] == '-' {
			do = append(do, text)
		} else {
			do, undo = append(do, text), append(undo, text, do[len(do)-1])
		}
	}
	r.edit(strings.NewReplacer(do...))
	r.undo = strings.NewReplacer(undo...)
}

func (r *reader) edit(by *strings.Replacer) {
	r.Helper()
	path := filepath.Join(r.dir, r.file)
	before, err := os.ReadFile(path)
	if err != nil {
		r.Fatal(err)
	}
	after := by.Replace(string(before))
	if after == string(before) {
		r.Fatalf("%s: the change does not fit %s:\n%s", r.page, r.file, before)
	}
	if err := os.WriteFile(path, []byte(after), 0o600); err != nil {
		r.Fatal(err)
	}
}

// run runs a command in a terminal.
func (r *reader) run(line string) {
	r.Helper()
	if r.failure != "" {
		r.fail(r.last, r.failure)
	}
	line, _, _ = strings.Cut(line, "    #")
	if fetched[line] {
		return
	}
	for theirs, ours := range r.ids {
		line = strings.ReplaceAll(line, theirs, ours)
	}
	switch first, rest, _ := strings.Cut(line, " "); {
	case first == "export":
		r.export(rest)
		return
	case strings.Contains(line, " && cd "): // the directory of what follows
		_, rest, _ := strings.Cut(line, " && cd ")
		defer func(dir string) { r.dir = filepath.Join(dir, strings.Fields(rest)[0]) }(r.dir)
	}
	if strings.HasPrefix(line, "postroom republish ") {
		r.recorded()
	}
	r.Logf("%s: %s", r.page, line)
	r.last = r.start(line)
	if forever[line] {
		r.running[line] = r.last
		return
	}
	select {
	case <-r.last.done:
	case <-time.After(devtest.Patience(r.T, time.Minute)):
		r.fail(r.last, "it does not end")
	}
	if state := r.last.cmd.ProcessState; !state.Success() {
		r.failure = state.String()
	}
}

// export sets variables, as a shell does.
func (r *reader) export(assignments string) {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), "sh", "-c", "export "+assignments+" && env -0")
	cmd.Env, cmd.Dir = r.environ, r.dir
	out, err := cmd.Output()
	if err != nil {
		r.Fatal(err)
	}
	r.environ = strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
}

// recorded waits until the relay has recorded all events as published, as it has when a person types
// the next command.
func (r *reader) recorded() {
	r.Helper()
	const all = `psql "$DATABASE_URL" -Atc "SELECT high = (SELECT max(seq) FROM postroom.outbox) AND pending = '{}' FROM postroom.relay"`
	devtest.Eventually(r.T, time.Minute, "the relay to record all events", func() bool {
		cmd := exec.CommandContext(r.Context(), "sh", "-c", all)
		cmd.Env = r.environ
		out, err := cmd.Output()
		return err == nil && strings.TrimSpace(string(out)) == "t"
	})
}

func (r *reader) start(line string) *terminal {
	r.Helper()
	t := &terminal{line: line, done: make(chan struct{})}
	t.cmd = exec.CommandContext(context.WithoutCancel(r.Context()), "script", "-qec", line, "/dev/null")
	if forever[line] {
		t.cmd = exec.CommandContext(context.WithoutCancel(r.Context()), "sh", "-c", line)
	}
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.cmd.Env, t.cmd.Dir, t.cmd.Stdout, t.cmd.Stderr = r.environ, r.dir, t, t
	var err error
	if t.answers, err = t.cmd.StdinPipe(); err != nil {
		r.Fatal(err)
	}
	if err := t.cmd.Start(); err != nil {
		r.Fatal(err)
	}
	go func() {
		defer close(t.done)
		_ = t.cmd.Wait() // ProcessState tells
	}()
	return t
}

// stop is Ctrl-C in the terminal of a command.
func (r *reader) stop(line string) {
	r.Helper()
	t := r.running[line]
	if t == nil {
		r.Fatalf("%s: %s does not run", r.page, line)
	}
	delete(r.running, line)
	_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGINT) // of the whole group, as a terminal does
	select {
	case <-t.done:
	case <-time.After(devtest.Patience(r.T, 30*time.Second)):
		_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL)
		r.Errorf("%s: %s does not end after Ctrl-C:\n%s", r.page, line, t.printed())
	}
	r.charged = append(r.charged, charged.FindAllString(t.printed(), -1)...)
}

var charged = regexp.MustCompile(`(?m)^charged .*$`)

// rereads are commands that a reader gives again until they show what the page shows: another
// process is still at work.
var rereads = regexp.MustCompile(`^(postroom (status|handlers|events|dead groups|dead list|audit)|psql .*TABLE)`)

// compare compares what the last command has printed with the page.
func (r *reader) compare(page string) {
	r.Helper()
	if forever[r.last.line] {
		for line := range strings.Lines(page) {
			r.await(r.last, strings.TrimSpace(line))
		}
		return
	}
	want := regexp.MustCompile(`^` + pattern(page) + `$`)
	until := time.Now().Add(devtest.Patience(r.T, 30*time.Second))
	for {
		r.failure = ""
		if want.MatchString(plain(r.last.printed())) {
			break
		}
		if !rereads.MatchString(r.last.line) || time.Now().After(until) {
			r.Errorf("%s: %s prints:\n%s\nThe page says:\n%s", r.page, r.last.line, r.last.printed(), page)
			break
		}
		r.run(r.last.line)
	}
	got := anID.FindAllString(r.last.printed(), -1)
	for n, id := range anID.FindAllString(page, -1) {
		if n < len(got) {
			r.ids[id] = got[n]
		}
	}
}

// await waits until a command that still runs has printed a text.
func (r *reader) await(t *terminal, text string) {
	r.Helper()
	if t == nil {
		r.Fatalf("%s: the command that is to print %q does not run", r.page, text)
	}
	ok := func() bool { return strings.Contains(t.printed(), text) }
	defer func() {
		if !ok() {
			r.fail(t, "the page says: "+text)
		}
	}()
	devtest.Eventually(r.T, time.Minute, fmt.Sprintf("%q of %s", text, t.line), ok)
}

func (r *reader) fail(t *terminal, why string) {
	r.Helper()
	logs := ""
	for line, other := range r.running {
		logs += "\n" + line + " has printed:\n" + other.printed()
	}
	r.Fatalf("%s: %s prints:\n%s\n%s\n%s", r.page, t.line, t.printed(), why, logs)
}

var (
	anID   = regexp.MustCompile(`(?:[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b)`)
	differ = regexp.MustCompile(`(\d+(\.\d+)?(µs|ms|s|m|h))+\b|\b\w+@\w+\b|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*|…|` + anID.String())
)

// plain is a text without the widths of columns, which depend on what is in them.
func plain(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.Join(strings.Fields(strings.Trim(line, "- +\n")), " "); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// pattern returns the expression of what a page prints: ids, times and names of machines differ.
func pattern(page string) string {
	page = plain(page)
	var b strings.Builder
	at := 0
	for _, m := range differ.FindAllStringIndex(page, -1) {
		b.WriteString(regexp.QuoteMeta(page[at:m[0]]))
		switch text := page[m[0]:m[1]]; {
		case anID.MatchString(text):
			b.WriteString(anID.String())
		case text == "…":
			b.WriteString(`.*`)
		default:
			b.WriteString(`\S+`)
		}
		at = m[1]
	}
	return b.String() + regexp.QuoteMeta(page[at:])
}
