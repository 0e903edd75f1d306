package conformance_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/idempotency/conformance"
	"github.com/postroom/postroom/internal/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// service starts an endpoint, guarded by a route, and describes it.
func service(t *testing.T, rt idempotency.Route) conformance.Endpoint {
	t.Helper()
	pool := devtest.Pool(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE refund (id bigint GENERATED ALWAYS AS IDENTITY)"); err != nil {
		t.Fatal(err)
	}
	guard := idempotency.New(pool, idempotency.Config{Principal: func(r *http.Request) (string, error) {
		return r.Header.Get("Authorization"), nil
	}})
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
	return conformance.Endpoint{
		URL: server.URL + "/refunds", Body: `{"amount":1000}`, Changed: `{"amount":2000}`,
		Header: http.Header{"Authorization": {"ann"}}, Other: http.Header{"Authorization": {"bob"}},
		Effects: func() (n int, err error) {
			return n, pool.QueryRow(t.Context(), "SELECT count(*) FROM refund").Scan(&n)
		},
	}
}

func TestGuardConforms(t *testing.T) {
	t.Parallel()
	t.Run("as it comes", func(t *testing.T) { conformance.Test(t, service(t, idempotency.Route{})) })
	t.Run("with options", func(t *testing.T) {
		e := service(t, idempotency.Route{MismatchStatus: http.StatusConflict, StatusURL: func(*http.Request, idempotency.Key) string { return "/status" }})
		e.Method, e.KeyOptional, e.MismatchStatus = http.MethodPut, true, http.StatusConflict
		conformance.Test(t, e)
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
	conformance.Test(t, conformance.Endpoint{
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
