package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postroom/postroom/internal/devtest"
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
func goTest(t *testing.T, program, test string, flags ...string) (out string, err error) {
	t.Helper()
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "main.go"), filepath.Join(dir, "main_test.go")}
	for n, text := range []string{program, test} {
		if err := os.WriteFile(files[n], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"test", "-count=1", "-vet=off", "-ldflags=-s -w"}, flags...), files...)...)
	if os.Getenv("POSTROOM_TEST_SERVERS") == "" { // then the program needs no server of its own
		cmd.Env = append(os.Environ(), "POSTROOM_TEST_DATABASE_URL="+devtest.Postgres(t).URL())
	}
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// The program in the README is short, builds, works as the page says, and ends cleanly. Its
// test, on the page about tests, is short too, and fails if the handler does nothing.
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
	test := testFile([]string{"os", "syscall", "testing"}, blockOf(t, "func TestAnOrderIsChargedOnce"))
	if lines := strings.Count(test, "\n"); lines > 30 {
		t.Errorf("its test has %d lines, want 30 at most:\n%s", lines, test)
	}
	if out, err := goTest(t, program, test); err != nil {
		t.Errorf("the test fails: %v\n%s", err, out)
	}
	broken := strings.Replace(program, "o.ID, o.Amount)", "o.ID, 1)", 1)
	if out, err := goTest(t, broken, test); err == nil || !strings.Contains(out, "want 4200") {
		t.Errorf("with a handler that does not charge the amount: %v\n%s", err, out)
	}
}

// blockOf returns the code block of the page about tests with the given beginning.
func blockOf(t *testing.T, begin string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/howto/test-a-handler.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range goFiles.FindAllStringSubmatch(string(page), -1) {
		if strings.HasPrefix(b[1], begin) {
			return b[1]
		}
	}
	t.Fatalf("no block of the page begins with %q", begin)
	return ""
}

// testFile returns a test as a file, with its imports besides package servers.
func testFile(imports []string, test string) string {
	return "package main\n\nimport (\n\t\"" + strings.Join(imports, "\"\n\t\"") + "\"\n\n\t\"github.com/postroom/postroom/postroomtest/servers\"\n)\n\n" + test
}

// The examples of the page about tests pass with a correct handler. For a wrong handler, the
// example about crashes reports the error that the page shows.
func TestExamplesOfThePageAboutTests(t *testing.T) {
	t.Parallel()
	shop, err := os.ReadFile("testdata/howto/main.go")
	if err != nil {
		t.Fatal(err)
	}
	program := string(shop)
	billing := blockOf(t, "func TestBilling")
	batched := strings.Replace(strings.Replace(billing, "TestBilling", "TestBatchedBilling", 1), "Order: inbox.HoldKey", "Batch: 10", 1)
	test := "package main\n\n" + blockOf(t, "import (") + "\nfunc TestProducer(t *testing.T) {\n\t" + blockOf(t, "pool, nc := ") + "_ = nc\n" +
		blockOf(t, "tx, err := ") + "}\n"
	for _, block := range []string{
		blockOf(t, "func TestCharge("), blockOf(t, "func TestChargeSurvives"), blockOf(t, "func TestChargeAtAVendor"), billing, batched,
	} {
		test += "\n" + block
	}
	if out, err := goTest(t, program, test); err != nil {
		t.Errorf("the examples fail: %v\n%s", err, out)
	}
	broken := strings.Replace(test, "Deliver(ctx, pool, postroom.JSON(charge), ev)", "Deliver(ctx, pool, postroom.JSON(chargeBy(pool)), ev)", 1)
	says := `connection cut after statement 3 of 4, "INSERT INTO charge VALUES ($1, $2)": 2 charges (<nil>), want 1`
	if out, err := goTest(t, program, broken, "-run", "TestChargeSurvivesACrash"); err == nil || !strings.Contains(out, says) {
		t.Errorf("with a handler that writes outside its transaction: %v, want %q\n%s", err, says, out)
	}
}
