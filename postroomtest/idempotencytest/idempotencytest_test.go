package idempotencytest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/postroomtest/idempotencytest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// service starts an endpoint, guarded by a route, and describes it.
func service(t *testing.T, rt idempotency.Route) idempotencytest.Endpoint {
	t.Helper()
	return serviceWith(t, rt, idempotency.Config{})
}

func serviceWith(t *testing.T, rt idempotency.Route, cfg idempotency.Config) idempotencytest.Endpoint {
	t.Helper()
	pool := devtest.Pool(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE refund (id bigint GENERATED ALWAYS AS IDENTITY)"); err != nil {
		t.Fatal(err)
	}
	cfg.Principal = func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil }
	guard := idempotency.New(pool, cfg)
	mux := http.NewServeMux()
	mux.Handle("/refunds", guard.Handler(rt, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var id int64
		if err := idempotency.Tx(r.Context()).QueryRow(r.Context(), "INSERT INTO refund DEFAULT VALUES RETURNING id").Scan(&id); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Location", fmt.Sprint("/refunds/", id))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":%d}`, id)
	})))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return idempotencytest.Endpoint{
		URL: server.URL + "/refunds", Body: `{"amount":1000}`, Changed: `{"amount":2000}`,
		Header: http.Header{"Authorization": {"ann"}}, Other: http.Header{"Authorization": {"bob"}},
		Effects: func() (n int, err error) {
			return n, pool.QueryRow(t.Context(), "SELECT count(*) FROM refund").Scan(&n)
		},
	}
}

func TestGuardConforms(t *testing.T) {
	t.Parallel()
	t.Run("as it comes", func(t *testing.T) { idempotencytest.Test(t, service(t, idempotency.Route{})) })
	t.Run("with options", func(t *testing.T) {
		e := service(t, idempotency.Route{MismatchStatus: http.StatusConflict, StatusURL: func(*http.Request, idempotency.Key) string { return "/status" }})
		e.Method, e.KeyOptional, e.MismatchStatus = http.MethodPut, true, http.StatusConflict
		idempotencytest.Test(t, e)
	})
}

const faultyVar = "POSTROOM_TEST_FAULTY"

// TestFaulty is run by TestFaultsAreFound, in its own process, and fails there.
func TestFaulty(t *testing.T) {
	faulty := os.Getenv(faultyVar)
	if faulty == "" {
		t.Skip("it is a part of TestFaultsAreFound")
	}
	var n, effects atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		effects.Add(1)
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, n.Add(1))
	}))
	defer server.Close()
	idempotencytest.Test(t, idempotencytest.Endpoint{
		URL: server.URL, Body: "1", Changed: "2", Other: http.Header{"A": {"b"}},
		Effects: func() (int, error) { return int(effects.Load()), nil },
	})
}

// An endpoint that ignores keys fails every part of the test that it can fail.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFaulty$", "-test.v")
	cmd.Env = append(os.Environ(), faultyVar+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("the process did not fail")
	}
	for _, want := range []string{
		"FAIL: TestFaulty/a_repeated_request", "4 effects, want 1", "the replay is not marked", "a cookie is repeated",
		"FAIL: TestFaulty/a_key_without_quotes", "FAIL: TestFaulty/the_key_of_another", "PASS: TestFaulty/two_keys",
		"FAIL: TestFaulty/a_request_without", "FAIL: TestFaulty/keys_that_are_not_valid", "FAIL: TestFaulty/of_many_requests_at_once",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}

// The settings of the table on the page about the contract, with values that differ from their
// defaults.
var settings = []struct {
	name  string
	route idempotency.Route
	cfg   idempotency.Config
	tell  func(e *idempotencytest.Endpoint) // what the test has to know
	fails bool
}{
	{name: "TTL", route: idempotency.Route{TTL: idempotency.TTLPayments, From: idempotency.FromLastUse}},
	{name: "Wait", route: idempotency.Route{Wait: time.Second}},
	{name: "StatusURL", route: idempotency.Route{StatusURL: func(*http.Request, idempotency.Key) string { return "/status" }}},
	{name: "MismatchStatus", route: idempotency.Route{MismatchStatus: http.StatusConflict}, tell: func(e *idempotencytest.Endpoint) { e.MismatchStatus = http.StatusConflict }},
	{name: "ReplayStatus", route: idempotency.Route{ReplayStatus: idempotency.CreatedAs200}, fails: true},
	{name: "StoreFinal", route: idempotency.Route{Store: idempotency.StoreFinal}},
	{name: "StoreAll", route: idempotency.Route{Store: idempotency.StoreAll}},
	{name: "Required", route: idempotency.Route{Required: []string{http.MethodPut}}, tell: func(e *idempotencytest.Endpoint) { e.Method = http.MethodPut }},
	{name: "Optional", route: idempotency.Route{Optional: []string{http.MethodPost}}, tell: func(e *idempotencytest.Endpoint) { e.KeyOptional = true }},
	{name: "Unsupported", route: idempotency.Route{Unsupported: true}, fails: true},
	{name: "MaxLen", route: idempotency.Route{Key: idempotency.KeyFormat{MaxLen: 255}}},
	{name: "Strict", route: idempotency.Route{Key: idempotency.KeyFormat{Strict: true}}, fails: true},
	{name: "Match", route: idempotency.Route{Key: idempotency.KeyFormat{Match: idempotency.UUID}}, fails: true},
	{name: "Headers", route: idempotency.Route{Headers: []string{"X-Request-Key"}}, fails: true},
	{name: "PrintRaw", route: idempotency.Route{Print: idempotency.PrintRaw}},
	{name: "PrintBody", route: idempotency.Route{Print: idempotency.PrintBody}},
	{name: "PrintJCS", route: idempotency.Route{Print: idempotency.PrintJCS}},
	{name: "PrintHeaders", route: idempotency.Route{PrintHeaders: []string{"Host"}}},
	{name: "PrintFunc", route: idempotency.Route{PrintFunc: func(_ *http.Request, body []byte) []byte { return body }}},
	{name: "Multipart", route: idempotency.Route{Multipart: true}},
	{name: "Scope", route: idempotency.Route{Scope: func(*http.Request) string { return "refund" }}},
	{name: "OmitHeaders", route: idempotency.Route{OmitHeaders: []string{"Location"}}, fails: true},
	{name: "AuthorizeReplay", route: idempotency.Route{AuthorizeReplay: func(*http.Request, idempotency.Record) error { return nil }}},
	{name: "TxRetries", route: idempotency.Route{TxRetries: 2}},
	{name: "CancelOnDisconnect", route: idempotency.Route{CancelOnDisconnect: true}},
	{name: "DocsURL", cfg: idempotency.Config{DocsURL: "https://example.com/"}},
	{name: "StatusHeader", cfg: idempotency.Config{StatusHeader: "X-Status"}, fails: true},
	{name: "ReplayedHeader", cfg: idempotency.Config{ReplayedHeader: "X-Replayed"}, fails: true},
	{name: "RedactKeys", cfg: idempotency.Config{RedactKeys: true}},
}

const settingsVar = "POSTROOM_TEST_SETTINGS"

// TestSettings is run by TestSettingsThatTheTestRefuses, in its own process, and fails there.
func TestSettings(t *testing.T) {
	if os.Getenv(settingsVar) == "" {
		t.Skip("it is a part of TestSettingsThatTheTestRefuses")
	}
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			e := serviceWith(t, s.route, s.cfg)
			if s.tell != nil {
				s.tell(&e)
			}
			idempotencytest.Test(t, e)
		})
	}
}

// The page about the contract names the settings with which this test fails.
func TestSettingsThatTheTestRefuses(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSettings$", "-test.v")
	cmd.Env = append(os.Environ(), settingsVar+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("no setting fails:\n%s", out)
	}
	page, err := os.ReadFile("../../docs/reference/idempotency.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "`idempotencytest.Test` checks the contract")
	list, _, _ = strings.Cut(list, "With `MismatchStatus` and `Optional`")
	for _, s := range settings {
		if failed := strings.Contains(string(out), "--- FAIL: TestSettings/"+s.name+" "); failed != s.fails {
			t.Errorf("%s: the test fails: %t, want %t", s.name, failed, s.fails)
		}
		if named := strings.Contains(list, "`"+s.name+"`"); named != s.fails {
			t.Errorf("%s: the page names it: %t, want %t", s.name, named, s.fails)
		}
	}
}
