package main

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/integration/bench/internal/measure"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
)

func TestUsage(t *testing.T) {
	tests := []struct {
		name string
		args []string
		says string
	}{
		{"unknown group", []string{"inboxes"}, "measure what? Give relay, producer, latency, inbox"},
		{"unknown figure", []string{"--dev", "--only", "relay.brain"}, `no such figure: "relay.brain"`},
		{"two sets of servers", []string{"--dev", "--nats-url", "nats://localhost"}, "--dev brings its own servers"},
		{"no servers", nil, "which database? Give --database-url"},
		{"no events", []string{"--dev", "--events", "0"}, "must be more than 0"},
		{"less than one run", []string{"--dev", "--runs", "-1"}, "runs: -1, want 1 to"},
		{"a profile of everything", []string{"--dev", "--cpuprofile", "cpu.out"}, "a profile needs exactly one figure"},
		{"an unknown child", []string{childCommand, "cook"}, "say what to run"},
		{"an unknown flag", []string{"--devel"}, "not defined"},
		{"not a part", []string{"--dev", "relay", "--only", "latency.poll"}, "nothing to measure"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var errs strings.Builder
			status := run(t.Context(), tt.args, func(string) string { return "" }, nil, io.Discard, &errs)
			if status != exitUsage || !strings.Contains(errs.String(), tt.says) {
				t.Errorf("status %d, want %d, with %q:\n%s", status, exitUsage, tt.says, errs.String())
			}
		})
	}
}

// command returns a run of the program, which is the test binary. A benchmark starts it again for
// some of its parts.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), programVariable+"=1")
	return cmd
}

// programVariable makes the test binary the program.
const programVariable = "POSTROOM_TEST_BENCH"

func TestBenchDev(t *testing.T) {
	t.Parallel()
	devtest.Postgres(t) // or skip
	// Package measure tests all figures. These need every server that --dev starts.
	some := []string{"relay.atomic_fsync", "producer.write", "webhook.ack"}
	var errs strings.Builder
	cmd := command(t, "--dev", "--json", "--events", "500", "--runs", "1", "--seconds", "0.2", "--only", strings.Join(some, ","))
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("bench: %v\n%s", err, errs.String())
	}
	var report measure.Report
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	var names []string
	for _, f := range report.Figures {
		names = append(names, f.Name)
	}
	if !slices.Equal(names, some) {
		t.Errorf("figures %v, want %v", names, some)
	}
	if s := report.Machine.Postgres; s.Fsync != "on" && os.Getenv("POSTROOM_TEST_DATABASE_URL") == "" {
		t.Errorf("the database is not durable: %+v", s)
	}
}

// It runs on the user's own servers, beside a table of the user's, and is ended by Ctrl-C.
func TestBenchOnGivenServers(t *testing.T) {
	t.Parallel()
	pool, broker := devtest.EmptyPool(t), devtest.OwnNATS(t)
	onGiven := func(args ...string) *exec.Cmd {
		cmd := command(t, args...)
		cmd.Env = append(cmd.Env, "POSTROOM_DATABASE_URL="+pool.Config().ConnString(), "POSTROOM_NATS_URL="+broker.URL())
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
	out, err := onGiven("relay", "--events", "500", "--runs", "1", "--only", "relay.drain", "--cpuprofile", profile).CombinedOutput()
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

	cmd := onGiven("producer", "--seconds", "60")
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, 20*time.Second, "it is at work", func() bool {
		var working int // transactions of the command's clients that have written something
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND backend_xid IS NOT NULL`).Scan(&working)
		return err == nil && working > 0 && schemas() > 0
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != exitFailed || !strings.Contains(text.String(), "interrupted; everything that was created on the servers is removed") {
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
	js := devtest.JetStream(t, nc)
	for name := range js.StreamNames(t.Context()).Name() {
		t.Errorf("stream %s is left", name)
	}
}

// If a broker has no JetStream, bench says so at once, and says what to do.
func TestBenchWithoutJetStream(t *testing.T) {
	t.Parallel()
	w := wish{database: devtest.EmptyPool(t).Config().ConnString(), broker: devtest.PlainNATS(t, "jetstream: disabled").ConnectedUrl()}
	_, err := w.servers(t.Context(), new(measure.Config))
	if err == nil || !strings.Contains(err.Error(), "start nats-server with -js") {
		t.Errorf("it says %v", err)
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
		return
	}
	devtest.Main(m)
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0.456: "0.46", 45.67: "45.7", 999.6: "1,000", 1234567: "1,234,567", 100: "100"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}
