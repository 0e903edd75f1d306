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
	if os.Getenv("POSTROOM_TEST_SERVERS") == "containers" { // a user changes one import
		test = strings.Replace(test, `"github.com/postroom/postroom/postroomtest/servers"`, `servers "github.com/postroom/postroom/postroomtest/containers"`, 1)
	}
	files := []string{filepath.Join(dir, "main.go"), filepath.Join(dir, "main_test.go")}
	for n, text := range []string{program, test} {
		if err := os.WriteFile(files[n], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	workspace(t, dir)
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"test", "-count=1", "-vet=off", "-ldflags=-s -w"}, flags...), files...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK="+filepath.Join(dir, "go.work"))
	if os.Getenv("POSTROOM_TEST_SERVERS") == "" { // then the program needs no server of its own
		cmd.Env = append(cmd.Env, "POSTROOM_TEST_DATABASE_URL="+devtest.Postgres(t).URL())
	}
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// workspace makes a directory the module of the tutorial, with its package event, beside the modules of
// this repository.
func workspace(t *testing.T, dir string) {
	t.Helper()
	page, err := os.ReadFile("../docs/tutorial/first-event.md")
	if err != nil {
		t.Fatal(err)
	}
	work, err := os.ReadFile("../go.work")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	event := ""
	for _, block := range goFiles.FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(block[1], "\npackage event\n") {
			event = block[1]
		}
	}
	absolute := regexp.MustCompile(`(?m)(^\t| )\.(/|$)`).ReplaceAllString(string(work), "${1}"+root+"/")
	if err := os.Mkdir(filepath.Join(dir, "event"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod": "module example.com/tutorial\n\ngo 1.26.0\n", "event/event.go": event, "go.work": absolute + "\nuse .\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
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
	broken := strings.Replace(test, "Deliver(ctx, pool, OrderPlaced.Handler(charge), ev)", "Deliver(ctx, pool, OrderPlaced.Handler(chargeBy(pool)), ev)", 1)
	says := `connection cut after statement 3 of 4, "INSERT INTO charge VALUES ($1, $2)": 2 charges (<nil>), want 1`
	if out, err := goTest(t, program, broken, "-run", "TestChargeSurvivesACrash"); err == nil || !strings.Contains(out, says) {
		t.Errorf("with a handler that writes outside its transaction: %v, want %q\n%s", err, says, out)
	}
}

// testOfBilling tests the program of the page about vendors with a server in place of Stripe.
const testOfBilling = `package billing

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/postroomtest"
	"github.com/postroom/postroom/postroomtest/servers"
)

var address string

func TestCharge(t *testing.T) {
	t.Setenv("STRIPE_SECRET_KEY", "sk_test")
	pool := servers.Postgres(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE charge (order_id text, intent text)"); err != nil {
		t.Fatal(err)
	}
	c := New()
	c.Register(inbox.New(pool, nil, inbox.Config{}))
	for _, tt := range []struct {
		name     string
		answers  []int // the last one repeats; 0 breaks the connection
		outcome  postroomtest.Outcome
		class    string
		attempts int
		requests int64
		charged  int
	}{
		{"it charges", []int{200}, postroomtest.Applied, "", 1, 1, 1},
		{"it fails once", []int{503, 200}, postroomtest.Applied, "", 1, 2, 1},
		{"the answer is lost twice", []int{0, 0, 200}, postroomtest.Applied, "", 2, 3, 1},
		{"it declines", []int{402}, postroomtest.Dead, "permanent", 1, 1, 0},
		{"it asks for an hour", []int{429}, postroomtest.Retried, "error", 1, 1, 0},
		{"it is not there", nil, postroomtest.Snoozed, "snoozed", 1, 0, 0},
	} {
		var requests atomic.Int64
		keys := make(chan string, 10)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := requests.Add(1)
			keys <- r.Header.Get("Idempotency-Key")
			if r.Header.Get("Authorization") != "Bearer sk_test" || r.FormValue("amount") != "4200" || r.FormValue("metadata[order]") != tt.name {
				t.Errorf("%s: request %v %v", tt.name, r.Header, r.Form)
			}
			switch status := tt.answers[min(int(n), len(tt.answers))-1]; status {
			case 0:
				panic(http.ErrAbortHandler)
			case 429:
				w.Header().Set("Retry-After", "3600")
				fallthrough
			default:
				w.WriteHeader(status)
				_, _ = w.Write([]byte("{\"id\":\"pi_1\"}"))
			}
		}))
		if address = server.URL; tt.answers == nil {
			server.Close()
		}
		sub := inbox.Subscription{Name: "billing.charge", VendorWindow: 24 * time.Hour}
		got := postroomtest.ApplyExternal(t, pool, sub, inbox.External(c.charge), postroom.NewEvent("order.placed", Order{ID: tt.name, Amount: 4200, Method: "pm_1"}))
		server.Close()
		close(keys)
		if got.Outcome != tt.outcome || got.Class != tt.class || got.Attempts != tt.attempts || requests.Load() != tt.requests {
			t.Errorf("%s: %+v after %d requests, want %s of class %q after %d attempts and %d requests", tt.name, got, requests.Load(), tt.outcome, tt.class, tt.attempts, tt.requests)
		}
		first := ""
		for key := range keys {
			if first == "" {
				first = key
			}
			if len(key) != 32 || key != first {
				t.Errorf("%s: key %q, want %q", tt.name, key, first)
			}
		}
		if n := charges(t.Context(), t, pool, tt.name); n != tt.charged {
			t.Errorf("%s: %d charges, want %d", tt.name, n, tt.charged)
		}
	}
}

func charges(ctx context.Context, t *testing.T, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, order string) (n int) {
	t.Helper()
	if err := db.QueryRow(ctx, "SELECT count(*) FROM charge WHERE order_id = $1 AND intent = 'pi_1'", order).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
`

// The handler on the page about vendors charges an order once, and does what its comments say if the
// vendor fails.
func TestProgramOfThePageAboutVendors(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/howto/call-a-vendor.md")
	if err != nil {
		t.Fatal(err)
	}
	const stripe = `"https://api.stripe.com/v1/payment_intents"`
	_, program, found := strings.Cut(string(page), "```go\n// Billing ")
	program, _, _ = strings.Cut("// Billing "+program, "```")
	if !found || !strings.Contains(program, stripe) {
		t.Fatalf("the page has no program that calls %s", stripe)
	}
	program = strings.Replace(program, stripe, `address+"/v1/payment_intents"`, 1)
	if out, err := goTest(t, program, testOfBilling); err != nil {
		t.Errorf("the test fails: %v\n%s", err, out)
	}
	broken := strings.Replace(program, "outbound.WithKey(ctx, key)", "ctx", 1)
	if out, err := goTest(t, broken, testOfBilling); err == nil || !strings.Contains(out, "it fails once") {
		t.Errorf("without the key of the step: %v\n%s", err, out)
	}
}
