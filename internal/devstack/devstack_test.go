package devstack_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
)

const helperVariable = "DEVSTACK_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		helper()
	}
	os.Exit(m.Run())
}

// helper is the process that the tests kill. It starts both servers, and a NATS server that is
// paused. Then it prints their directories and waits.
func helper() {
	stack, err := devstack.Start(context.Background(), devstack.Config{Local: true})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	paused, err := devstack.StartNATS(context.Background(), devstack.NATSConfig{})
	if err == nil {
		err = paused.Pause()
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(strings.Join(append(stack.Dirs(), devstack.ServerDir(paused), fmt.Sprint(devstack.ServerPID(paused))), "\t"))
	if os.Getenv(helperVariable) == "exit" {
		os.Exit(3)
	}
	select {}
}

func TestServersGoAwayWithTheirProcess(t *testing.T) {
	local(t)
	for _, how := range []struct {
		name string
		mode string
		end  func(*os.Process) error
	}{
		{"kill -9", "wait", (*os.Process).Kill},
		{"os.Exit", "exit", func(*os.Process) error { return nil }},
		{"Ctrl-C to the process group", "wait", func(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGINT) }},
	} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), helperVariable+"="+how.mode)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			out, err := cmd.StdoutPipe()
			check(t, err)
			check(t, cmd.Start())
			line, err := bufio.NewReader(out).ReadString('\n')
			check(t, err)
			dirs := strings.Split(strings.TrimSpace(line), "\t")
			if len(dirs) != 4 {
				t.Fatalf("helper said %q", line)
			}
			broker, err := strconv.Atoi(dirs[3])
			check(t, err)
			dirs = dirs[:3]
			pid, err := devstack.PostmasterPID(dirs[0])
			if how.mode == "wait" { // otherwise the server may be stopping already
				check(t, err)
			}

			check(t, how.end(cmd.Process))
			_ = cmd.Wait()

			for _, dir := range dirs {
				devtest.Eventually(t, 20*time.Second, dir+" is removed", func() bool {
					_, err := os.Stat(dir)
					return errors.Is(err, fs.ErrNotExist)
				})
			}
			devtest.Eventually(t, 20*time.Second, "the postmaster is gone", func() bool { return pid == 0 || !running(pid) })
			devtest.Eventually(t, 20*time.Second, "the NATS server is gone", func() bool { return !running(broker) })
		})
	}
}

func TestStackServesBoth(t *testing.T) {
	local(t)
	t.Parallel()
	stack, err := devstack.Start(t.Context(), devstack.Config{Local: true, Durable: true, MaxConnections: 33})
	check(t, err)
	dirs := stack.Dirs()
	if got := setting(t, stack.Postgres.URL(), "max_connections"); got != "33" {
		t.Errorf("max_connections is %s, want 33", got)
	}
	if got := setting(t, stack.Postgres.URL(), "fsync"); got != "on" {
		t.Errorf("fsync of a durable server is %s", got)
	}
	if !strings.HasPrefix(stack.NATS.URL(), "nats://127.0.0.1:") {
		t.Errorf("NATS is at %s, want the loopback interface", stack.NATS.URL())
	}

	check(t, stack.Close())
	check(t, stack.Close())
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
}

func TestConfigFaultsAreNamed(t *testing.T) {
	_, err := devstack.StartPostgres(t.Context(), devstack.Config{MaxConnections: -1, PreparedTransactions: -2})
	for _, want := range []string{"MaxConnections is -1", "PreparedTransactions is -2"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

// local skips a test if no local cluster can be started.
func local(t *testing.T) {
	t.Helper()
	dirs, err := devstack.FindHere(t.Context())
	if len(dirs) > 0 {
		return
	}
	if os.Getenv("POSTROOM_TEST_REQUIRE") == "1" {
		t.Fatal(err)
	}
	t.Skip(err)
}

func setting(t *testing.T, url, name string) string {
	t.Helper()
	var value string
	query(t, url, "SELECT current_setting('"+name+"')", &value)
	return value
}

// query scans the one column of the one row that sql returns.
func query(t *testing.T, url, sql string, into any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	defer func() { check(t, conn.Close(t.Context())) }()
	check(t, conn.QueryRow(t.Context(), sql).Scan(into))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// running reports whether a process runs. A zombie does not.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}
