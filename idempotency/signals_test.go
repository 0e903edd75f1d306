package idempotency_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/idempotency"
)

func TestSignals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(r.refund)
	path := r.mount(idempotency.Route{}, g.serve)
	answer := r.inside(g, path, sending{key: "secret-key"})
	r.want(r.post(path, "secret-key"), 409, "")
	answer()
	spans := tracetest.NewSpanRecorder()
	ctx, span := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("").Start(t.Context(), "POST")
	r.send(path, sending{key: "secret-key", ctx: ctx})
	span.End()
	r.send(path, sending{key: "secret-key", body: "2"})

	for name, want := range map[string]int64{
		"idempotent.created": 1, "idempotent.replayed": 1, "idempotent.conflict": 1, "idempotent.in_progress": 1, "idempotent.store_error": 0, "idempotent.takeover": 0,
	} {
		if got := r.counts()[name]; got != want {
			r.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	have := attribute.NewSet(spans.Ended()[0].Attributes()...)
	for key, want := range map[attribute.Key]string{"postroom.key": "secret-key", "postroom.outcome": "replayed", "postroom.attempt": "1"} {
		if v, _ := have.Value(key); v.String() != want {
			r.Errorf("the span's %s is %q, want %q", key, v.String(), want)
		}
	}
	log := r.log.String()
	for _, want := range []string{
		`"level":"DEBUG","msg":"idempotency key","scope":"POST ` + path + `","key":"secret-key","attempt":1,"outcome":"created","from":"absent","to":"complete"`,
		`"outcome":"replayed","from":"complete","to":"complete"`,
		`"code":"idempotency_key_payload_mismatch"`, `"code":"idempotency_in_progress"`,
	} {
		if !strings.Contains(log, want) {
			r.Errorf("%s is not in the log:\n%s", want, log)
		}
	}
	if strings.Contains(log, "amount") || strings.Contains(log, "call") {
		r.Errorf("a body is in the log:\n%s", log)
	}
}

// LogOutcomes logs one line for each request with a key, at its level and with a digest of the
// key: a success, a replay and a conflict.
func TestLogOutcomes(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *idempotency.Config) { c.LogOutcomes = slog.LevelInfo })
	path := r.mount(idempotency.Route{}, r.refund)
	for _, body := range []string{"1", "1", "2"} {
		r.send(path, sending{key: "secret-key", body: body})
	}
	var outcomes []string
	for line := range strings.Lines(r.log.String()) {
		var l struct {
			Level, Msg, Key, Outcome string
			Duration                 int64
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Msg != "idempotency key" {
			continue
		}
		outcomes = append(outcomes, l.Level+" "+l.Outcome)
		if len(l.Key) != 8 || l.Duration <= 0 {
			t.Errorf("a line lacks the key's digest or the duration: %s", line)
		}
	}
	if want := []string{"INFO created", "INFO replayed", "INFO conflict"}; !slices.Equal(outcomes, want) || strings.Contains(r.log.String(), "secret-key") {
		t.Errorf("logged %q, want %q, without the key", outcomes, want)
	}
}

func TestRedactedKeys(t *testing.T) { // E65
	t.Parallel()
	r := newRig(t, func(c *idempotency.Config) { c.RedactKeys = true })
	path := r.mount(idempotency.Route{}, r.refund)
	r.post(path, "secret-key")
	r.send(path, sending{key: "secret-key", body: "2"})
	if log := r.log.String(); strings.Contains(log, "secret-key") || !strings.Contains(log, `"key":"85dbe15d"`) {
		r.Errorf("the log is:\n%s", log)
	}
}

// The guard's own answers are not kept, and do not count as answers of the handler.
func TestOwnAnswersAreNotKept(t *testing.T) { // E36
	t.Parallel()
	r := newRig(t)
	path := r.mount(idempotency.Route{Store: idempotency.StoreAll, MaxResponse: 4}, func(w http.ResponseWriter, _ *http.Request) {
		if r.calls.Add(1) == 1 {
			_, _ = w.Write([]byte("too much"))
			return
		}
		_, _ = w.Write([]byte("ok"))
	})
	r.want(r.post(path, "k"), 500, "response_too_large")
	r.want(r.post(path, "k"), 200, "")
	if n := r.counts()["idempotent.created"]; n != 1 {
		r.Errorf("%d are said to be created", n)
	}
}

// The log says what happens to a call that began earlier, with the facts that an operator needs to
// ask the vendor. The caller's key may be hidden.
func TestSignalsOfCalls(t *testing.T) {
	t.Parallel()
	b := &bank{rig: newRig(t, func(c *idempotency.Config) { c.RedactKeys = true }), answers: []error{errLost, errLost, errLost}}
	_, _ = b.pay(postroom.VendorWindow(time.Hour))
	_, _ = b.pay(postroom.VendorWindow(time.Hour))
	_, _ = b.pay(postroom.VendorWindow(0))
	_, _ = b.pay(b.lookupReturns(false, nil))
	log := b.log.String()
	for _, want := range []string{
		`"level":"INFO","msg":"a call is made again with the same key","scope":"pay","key":"8254c329","call":"charge","called_with":"` + b.keys[0] + `","since":"`,
		`"level":"WARN","msg":"the outcome of a call is not known","scope":"pay","key":"8254c329","call":"charge","called_with":"` + b.keys[0] + `","since":"`,
		`"msg":"a call was looked up"`, `"unanswered":2,"found":false}`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("%s is not in the log:\n%s", want, log)
		}
	}
}
