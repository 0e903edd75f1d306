package idempotency_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/devtest"
)

const contractsPage = "../docs/howto/contracts.md"

// contracts has the contracts of the documentation, by their headings.
var contracts = map[string]func() (idempotency.Config, idempotency.Route){
	"A strict payments API": func() (idempotency.Config, idempotency.Route) {
		config := idempotency.Config{
			Principal: customer,
			Codes:     idempotency.CodesUpper,
		}
		route := idempotency.Route{
			Required: []string{http.MethodPost},
			TTL:      24 * time.Hour,
			Store:    idempotency.StoreFinal,
		}
		return config, route
	},
	"Optional keys, every answer stored": func() (idempotency.Config, idempotency.Route) {
		config := idempotency.Config{
			Principal: customer,
		}
		route := idempotency.Route{
			Optional:       []string{http.MethodPost},
			MismatchStatus: http.StatusBadRequest,
			TTL:            24 * time.Hour,
			From:           idempotency.FromCreation,
			Store:          idempotency.StoreAll,
		}
		return config, route
	},
	"A repetition gets 200 and a status URL": func() (idempotency.Config, idempotency.Route) {
		config := idempotency.Config{
			Principal: customer,
			Codes:     idempotency.CodesDotted,
		}
		route := idempotency.Route{
			Key:            idempotency.KeyFormat{Match: idempotency.UUID},
			MismatchStatus: http.StatusConflict,
			ReplayStatus:   idempotency.CreatedAs200,
			StatusURL:      func(_ *http.Request, k idempotency.Key) string { return "/refunds?key=" + k.Value },
			TTL:            idempotency.TTLPayments,
		}
		return config, route
	},
}

// The documentation says which settings make which contract. Its tables must have the answers of a
// service with these settings, and its settings must be those of this test.
func TestContracts(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("contracts_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(contractsPage)
	if err != nil {
		t.Fatal(err)
	}
	for name, contract := range contracts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, section, found := strings.Cut(string(page), "\n## "+name+"\n")
			if !found {
				t.Fatalf("%s has no section %q", contractsPage, name)
			}
			section, _, _ = strings.Cut(section, "\n## ")
			if want := answers(t, contract); !strings.Contains(section, want) {
				t.Errorf("%s: the table of %q differs from the service's answers:\n%s", contractsPage, name, want)
			}
			_, code, _ := strings.Cut(section, "```go\n")
			code, _, _ = strings.Cut(code, "```")
			for line := range strings.Lines(code) {
				if line = strings.TrimSpace(line); !strings.Contains(string(source), line+"\n") {
					t.Errorf("%s: %q is no line of the contract that is tested", contractsPage, line)
				}
			}
		})
	}
}

// answers returns what a service of the contract answers, as the rows of a table.
func answers(t *testing.T, contract func() (idempotency.Config, idempotency.Route)) string {
	t.Helper()
	cfg, route := contract()
	r := newRig(t, func(c *idempotency.Config) { c.Codes = cfg.Codes })
	if err := r.guard.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	path, conflict, broken := r.mount(route, r.refund), r.mount(route, r.failing(http.StatusConflict)), r.mount(route, r.failing(http.StatusInternalServerError))
	declined := r.mount(route, r.failing(http.StatusUnprocessableEntity))
	gate := newGate(r.refund)
	slow := r.mount(route, gate.serve)

	const key, another = "6c0e3a52-5a51-4f0b-9a7e-3f6f5a3f2b10", `{"amount":2000}`
	var table strings.Builder
	row := func(request string, w *httptest.ResponseRecorder) {
		fmt.Fprintf(&table, "| %s | %s |\n", request, summary(w))
	}
	row("the first request with a key", r.post(path, key))
	row("the same request again", r.post(path, key))
	answer := r.inside(gate, slow, sending{key: key})
	row("the same request while the first runs", r.post(slow, key))
	answer()
	row("another body with this key", r.send(path, sending{key: key, body: another}))
	row("no key", r.post(path, ""))
	row("`no-uuid` as the key", r.post(path, "no-uuid"))
	for _, failing := range []struct{ path, status string }{{declined, "422"}, {conflict, "409"}, {broken, "500"}} {
		r.post(failing.path, key)
		row("the same request again, after the handler answered "+failing.status, r.post(failing.path, key))
	}
	var expires string
	if err := r.pool.QueryRow(t.Context(), `SELECT CASE WHEN abs(extract(epoch FROM expires_at - completed_at - d.d)) < 0.001 THEN 'the answer'
		WHEN abs(extract(epoch FROM expires_at - created_at - d.d)) < 0.001 THEN 'the request' END
		FROM postroom.idempotency, (SELECT make_interval(secs => $1)) AS d (d) WHERE scope = $2`, route.TTL.Seconds(), "POST "+path).Scan(&expires); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&table, "| the same request, more than %d hours after %s | 201: a new request |\n", int(route.TTL.Hours()), expires)

	away := devtest.Pool(t)
	r.pool = away
	r.reset(func(c *idempotency.Config) { c.Codes, c.StoreTimeout = cfg.Codes, time.Second })
	path = r.mount(route, r.refund)
	away.Close()
	row("the database is unavailable", r.post(path, key))
	return table.String()
}

// summary says what an answer tells a client.
func summary(w *httptest.ResponseRecorder) string {
	says := fmt.Sprint(w.Code)
	if code := codeIn(w); code != "" {
		says += " `" + code + "`"
	}
	if at := w.Header().Get("Location"); w.Code == http.StatusAccepted {
		says += ", `Location: " + at + "`"
	}
	if after := w.Header().Get("Retry-After"); after != "" {
		says += ", `Retry-After: " + after + "`"
	}
	if w.Header().Get("Idempotent-Replayed") == "true" {
		says += ", repeated"
	}
	return says
}
