//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/examples/internal/demotest"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postroomtest/servers"
)

// program is the example as a process, in a process group of its own, as a shell starts it.
type program struct {
	cmd      *exec.Cmd
	out      bytes.Buffer
	progress *bufio.Scanner
	said     strings.Builder
}

func startProgram(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(os.Args[0], args...)}
	p.cmd.Env = append(os.Environ(), programVariable+"=1", "POSTROOM_TEST_DATABASE_URL="+servers.PostgresURL(t))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stdout = &p.out
	progress, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.progress = bufio.NewScanner(progress)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // fails if it has ended, as it should have
	return p
}

var aProcess = regexp.MustCompile(`process (\d+)\)`)

// until reads the program's output until it has the given text. It returns the process ids in
// the output.
func (p *program) until(t *testing.T, text string) (pids []int) {
	t.Helper()
	for p.progress.Scan() {
		p.said.WriteString(p.progress.Text() + "\n")
		for _, found := range aProcess.FindAllStringSubmatch(p.progress.Text(), -1) {
			pid, err := strconv.Atoi(found[1])
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		if text != "" && strings.Contains(p.progress.Text(), text) {
			return pids
		}
	}
	if text != "" {
		t.Fatalf("the program ended and did not say %q:\n%s", text, p.said.String())
	}
	return pids
}

// isGone reports whether a process has ended, even if its parent has not waited for it.
func isGone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func wantAllEnded(t *testing.T, pids []int) {
	t.Helper()
	if len(pids) < 3 {
		t.Fatalf("the output names the processes %v, want 3 or more", pids)
	}
	for _, pid := range pids {
		devtest.Eventually(t, 30*time.Second, fmt.Sprint("the end of process ", pid), func() bool { return isGone(pid) })
	}
}

// A Ctrl-C in a terminal also reaches the services. They ignore it, and the program finishes
// the placed orders.
func TestCtrlC(t *testing.T) {
	p := startProgram(t, "--orders", "5000", "--rate", "100", "--kills", "100", "--patience", "1s")
	pids := p.until(t, "is killed")
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	pids = append(pids, p.until(t, "")...)
	if err := p.cmd.Wait(); err != nil || !strings.HasSuffix(strings.TrimSpace(p.out.String()), "verdict=ok") {
		t.Errorf("it ended with %v\n%s\n%s", err, p.said.String(), p.out.String())
	}
	wantAllEnded(t, pids)
	if left := demotest.Databases(t, "postroom_saga_"); len(left) != 0 {
		t.Errorf("databases %v are left", left)
	}
}

// If the program is killed, it cannot end its services. They notice that it is gone.
func TestKilledProgramLeavesNoProcess(t *testing.T) {
	p := startProgram(t, "--orders", "5000", "--rate", "100", "--kills", "100", "--patience", "1s")
	pids := p.until(t, "is killed")
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // killed
	wantAllEnded(t, pids)

	// A user's own server would keep the databases. Here they would disturb other tests.
	conn, err := pgx.Connect(t.Context(), servers.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range demotest.Databases(t, "postroom_saga_") {
		if _, err := conn.Exec(t.Context(), "DROP DATABASE "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
