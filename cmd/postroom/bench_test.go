package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/bench"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
)

func TestBenchUsage(t *testing.T) {
	env := environment{}
	tests := []struct {
		name string
		args []string
		says string
	}{
		{"unknown group", []string{"inboxes"}, "measure what? Give relay, producer, latency, inbox"},
		{"unknown figure", []string{"--dev", "--only", "relay.brain"}, `no such figure: "relay.brain"`},
		{"two sets of servers", []string{"--dev", "--nats-url", "nats://localhost"}, "--dev brings its own servers"},
		{"no servers", nil, "which database? Give --database-url"},
		{"no events", []string{"--dev", "--events", "0"}, "have to be more than none"},
		{"less than one run", []string{"--dev", "--runs", "-1"}, "runs: -1, want 1 to"},
		{"a profile of everything", []string{"--dev", "--cpuprofile", "cpu.out"}, "a profile is of one figure"},
		{"not a part", []string{"--dev", "relay", "--only", "latency.poll"}, "nothing to measure"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			postroom(t, env, append([]string{"bench"}, tt.args...)...).want(t, exitUsage).says(t, tt.says)
		})
	}
	postroom(t, env, benchChild, "cook").want(t, exitUsage)
	if help := postroom(t, env, "--help"); strings.Contains(help.out, benchChild) {
		t.Errorf("the help shows %s", benchChild)
	}
	postroom(t, env, "__complete", "bench", "").says(t, "relay\n", "latency\n", "inbox\n")
	postroom(t, env, "__complete", "bench", "--only", "relay.d").says(t, "relay.drain\n")
	postroom(t, env, "__complete", "bench", "--only", "inbox.t").says(t, "inbox.transactional\n")
}

// build builds the program: a benchmark starts it again for some of its parts.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "postroom")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

func TestBenchDev(t *testing.T) {
	t.Parallel()
	devtest.Postgres(t) // or skip
	var errs strings.Builder
	cmd := exec.CommandContext(t.Context(), build(t), "bench", "--dev", "--json", "--events", "500", "--runs", "1", "--seconds", "0.2")
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("bench: %v\n%s", err, errs.String())
	}
	var report bench.Report
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if got, want := len(report.Figures), len(bench.Names()); got != want {
		t.Errorf("%d figures, want %d", got, want)
	}
	if s := report.Machine.Postgres; s.Fsync != "on" && os.Getenv("POSTROOM_DATABASE_URL") == "" {
		t.Errorf("the database is not durable: %+v", s)
	}
}

// The user's own servers, a table, and Ctrl-C.
func TestBenchOnGivenServers(t *testing.T) {
	t.Parallel()
	pool, broker := devtest.EmptyPool(t), devtest.OwnNATS(t)
	binary := build(t)
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"bench"}, args...)...)
		cmd.Env = append(os.Environ(), "POSTROOM_DATABASE_URL="+databaseURL(pool), "POSTROOM_NATS_URL="+broker.URL())
		return cmd
	}
	schemas := func() (n int) {
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'postroom%'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}

	profile := filepath.Join(t.TempDir(), "cpu.out")
	out, err := command("relay", "--events", "500", "--runs", "1", "--only", "relay.drain", "--cpuprofile", profile).CombinedOutput()
	if err != nil {
		t.Fatalf("bench: %v\n%s", err, out)
	}
	for _, want := range []string{"FIGURE ", "relay.drain ", "REFERENCE", "A ratio is", "relay.drain: backlog of 500 events of 512 bytes"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
	if info, err := os.Stat(profile); err != nil || info.Size() == 0 {
		t.Errorf("profile: %v", err)
	}

	cmd := command("producer", "--seconds", "60")
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, 20*time.Second, "it is at work", func() bool {
		var working int // transactions of the command's clients, each of which has written
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND backend_xid IS NOT NULL`).Scan(&working)
		return err == nil && working > 0 && schemas() > 0
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != exitFailed || !strings.Contains(text.String(), "interrupted; what was created on the servers is removed") {
		t.Errorf("interrupted: %v\n%s", err, text.String())
	}
	wantNothingOfBench(t, schemas(), broker)
}

func wantNothingOfBench(t *testing.T, schemas int, broker *devstack.NATS) {
	t.Helper()
	if schemas != 0 {
		t.Errorf("%d schemas are left", schemas)
	}
	nc, err := nats.Connect(broker.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for name := range js.StreamNames(t.Context()).Name() {
		t.Errorf("stream %s is left", name)
	}
}

func TestBar(t *testing.T) {
	var out strings.Builder
	b := &bar{out: &out, terminal: true, began: time.Now()}
	b.show(12, 24, "relay.drain")
	if !strings.Contains(out.String(), "[============            ] 12/24  0s  relay.drain") {
		t.Errorf("bar: %q", out.String())
	}
	out.Reset()
	if _, err := b.Write([]byte("a warning\n")); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "\r\x1b[Ka warning\n[===") {
		t.Errorf("a line of the log: %q", got)
	}

	out.Reset()
	b = newBar(&out) // no terminal
	b.show(1, 2, "x")
	b.clear()
	if out.String() != "" {
		t.Errorf("elsewhere: %q", out.String())
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0.456: "0.46", 45.67: "45.7", 999.6: "1,000", 1234567: "1,234,567", 100: "100"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}
