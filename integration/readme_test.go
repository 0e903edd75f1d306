package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
)

// The test in the tutorial is short, passes, and fails if the handler does nothing.
func TestTutorialTest(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/tutorial/consumer.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := goFiles.FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		t.Fatalf("the page has %d Go files, want a program and its test", len(blocks))
	}
	program, test := blocks[0][1], blocks[1][1]
	if lines := strings.Count(test, "\n"); lines > 30 {
		t.Errorf("the test has %d lines, want 30 at most", lines)
	}
	if out, err := goTest(t, program, test); err != nil {
		t.Errorf("the test fails: %v\n%s", err, out)
	}
	for _, broken := range []string{
		strings.Replace(program, `"INSERT INTO charge VALUES ($1, $2)"`, `"SELECT $1::text, $2::int"`, 1),
		strings.Replace(program, "o.ID, o.Amount)", "o.ID, 1)", 1),
	} {
		if out, err := goTest(t, broken, test); err == nil || !strings.Contains(out, "want 4200") {
			t.Errorf("with a handler that does not charge the amount: %v\n%s", err, out)
		}
	}
}

var goFiles = regexp.MustCompile("(?s)```go\n(.*?)```")

// goTest runs the test of a program. Both are files.
func goTest(t *testing.T, program, test string) (out string, err error) {
	t.Helper()
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "main.go"), filepath.Join(dir, "main_test.go")}
	for n, text := range []string{program, test} {
		if err := os.WriteFile(files[n], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := exec.CommandContext(t.Context(), "go", append([]string{"test"}, files...)...).CombinedOutput()
	return string(text), err
}

// The program in the README is short, builds, and does what it says.
func TestReadmeProgram(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := goFiles.FindAllStringSubmatch(string(readme), -1)
	if len(blocks) != 1 {
		t.Fatalf("the README has %d Go programs, want one", len(blocks))
	}
	program := blocks[0][1]
	if lines := strings.Count(program, "\n"); lines >= 60 {
		t.Errorf("the program has %d lines, want fewer than 60", lines)
	}
	dir := t.TempDir()
	file, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", binary, file).CombinedOutput(); err != nil {
		t.Fatalf("the program does not build: %v\n%s", err, out)
	}

	url, nc := devtest.DatabaseURL(t), devtest.NATS(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE shop_order (id text PRIMARY KEY, amount int); CREATE TABLE charge (order_id text, amount int)"); err != nil {
		t.Fatal(err)
	}
	err = natsjs.EnsureStream(t.Context(), nc, jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"order.>"}})
	if err != nil {
		t.Fatal(err)
	}
	service := exec.Command(binary)
	service.Env = append(os.Environ(), "DATABASE_URL="+url, "NATS_URL="+devtest.NATSURL(t))
	service.Stdout, service.Stderr = os.Stdout, os.Stderr
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = service.Process.Kill() }) // fails where it ended, as it should have
	devtest.Eventually(t, 30*time.Second, "the charge", func() bool {
		var amount int
		err := pool.QueryRow(t.Context(), "SELECT amount FROM charge").Scan(&amount)
		return err == nil && amount == 4200
	})
	if err := service.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := service.Wait(); err != nil {
		t.Errorf("after Ctrl-C the program ended with %v, want a clean exit", err)
	}
}
