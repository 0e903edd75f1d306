package containers_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postroomtest/containers"
)

const helperVariable = "CONTAINERS_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		helper()
	}
	devtest.Main(m)
}

// boxes skips a test if tests do not run in containers.
func boxes(t *testing.T) {
	t.Helper()
	if os.Getenv("POSTROOM_TEST_SERVERS") != "containers" {
		t.Skip("set POSTROOM_TEST_SERVERS=containers, as make test-containers does")
	}
}

// docker runs Docker's command and returns its output.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// known says whether Docker knows a container, a volume or a network.
func known(what, name string) bool { return exec.Command("docker", what, "inspect", name).Run() == nil }

func TestAContainersRowsSurviveKillAndRestart(t *testing.T) {
	boxes(t)
	t.Parallel()
	p, err := devstack.StartPostgres(t.Context(), devstack.Config{Container: true, MaxConnections: 33})
	check(t, err)
	t.Cleanup(func() { check(t, p.Close()) })
	var most, host string
	query(t, p.URL(), "SHOW max_connections", &most)
	if most != "33" {
		t.Errorf("max_connections is %s, want 33", most)
	}
	query(t, p.URL(), "SELECT trim(E'\\n' FROM pg_read_file('/etc/hostname'))", &host)
	if host != p.Hostname() || host == "" || !strings.HasPrefix(p.Source(), "container ") {
		t.Errorf("the server runs on %q, which is to be container %q; source is %s", host, p.Hostname(), p.Source())
	}
	conn, err := pgx.Connect(t.Context(), p.URL())
	check(t, err)
	_, err = conn.Exec(t.Context(), "SET synchronous_commit = on; CREATE TABLE t AS SELECT 1 AS n")
	check(t, err)
	before, volume := p.URL(), docker(t, "inspect", "-f", "{{(index .Mounts 0).Name}}", host)

	for range 2 {
		check(t, p.Kill())
		if err := p.Kill(); err == nil {
			t.Error("a second Kill found a server")
		}
		check(t, p.Restart(t.Context()))
	}
	check(t, p.Restart(t.Context()))

	if p.URL() != before {
		t.Errorf("URL is %s after the restart, was %s", p.URL(), before)
	}
	var n int
	query(t, p.URL(), "SELECT n FROM t", &n)
	if n != 1 {
		t.Errorf("n is %d, want 1", n)
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a connection survived the kill")
	}
	check(t, p.Close())
	if known("container", host) || known("volume", volume) {
		t.Errorf("container %s or its volume is left", host)
	}
}

func TestContainersGoAwayWithTheirProcess(t *testing.T) {
	boxes(t)
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperVariable+"=yes")
	out, err := cmd.StdoutPipe()
	check(t, err)
	cmd.Stderr = os.Stderr
	check(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	check(t, err)
	names := strings.Fields(line)
	if len(names) != 4 {
		t.Fatalf("helper said %q", line)
	}
	networks := strings.Fields(docker(t, "network", "ls", "--quiet", "--filter", "label="+containers.PIDLabel+"="+strconv.Itoa(cmd.Process.Pid)))
	if len(networks) != 1 {
		t.Errorf("the helper has networks %v, want one", networks)
	}
	for _, name := range names {
		if !known("container", name) {
			t.Errorf("container %s does not run", name)
		}
	}
	check(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for _, name := range names {
		devtest.Eventually(t, 20*time.Second, name+" is removed", func() bool { return !known("container", name) })
	}
	for _, id := range networks {
		devtest.Eventually(t, 20*time.Second, "network "+id+" is removed", func() bool { return !known("network", id) })
	}
}

// helper starts servers in containers, prints the names of the containers and waits.
func helper() {
	stack, err := devstack.Start(context.Background(), devstack.Config{Container: true})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	cluster, err := devstack.StartNATSCluster(context.Background(), 2, devstack.NATSConfig{Container: true})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	check := errors.Join(stack.NATS.Pause(), cluster.Nodes()[0].Pause()) // paused containers are removed too
	if check != nil {
		fmt.Println("error:", check)
		os.Exit(1)
	}
	nodes := cluster.Nodes()
	fmt.Println(stack.Postgres.Hostname(), stack.NATS.Hostname(), nodes[0].Hostname(), nodes[1].Hostname())
	select {}
}

// If a process and its watchdog are killed, their containers are left. They are removed when
// another process starts a container. Containers of a running process stay.
func TestContainersThatWereLeftBehindAreRemoved(t *testing.T) {
	boxes(t)
	host, err := os.Hostname()
	check(t, err)
	gone := exec.Command("true")
	check(t, gone.Run())
	make := func(pid int) string {
		return docker(t, "create", "--label", containers.HostLabel+"="+host, "--label", containers.PIDLabel+"="+strconv.Itoa(pid), os.Getenv("POSTROOM_NATS_IMAGE"))
	}
	theirs, ours := make(gone.Process.Pid), make(os.Getpid())
	defer docker(t, "rm", ours)
	check(t, containers.RemoveLeftOvers(t.Context()))
	if known("container", theirs) {
		t.Error("a container of a process that is gone is left")
	}
	if !known("container", ours) {
		t.Error("a container of a process that runs was removed")
	}
}

func TestScriptFindsTheDefaultImages(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(filepath.Join("..", "..", "integration", "tools", "images", "find"))
	check(t, err)
	for variable, image := range containers.DefaultImages() {
		if want := "find_image " + variable + " " + image + " "; !strings.Contains(string(script), want) {
			t.Errorf("the script does not say %q", want)
		}
	}
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
