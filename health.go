package postroom

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/postroom/postroom/internal/guard"
)

// Health is what a part of a service knows about itself at one moment. relay.Health and inbox.Health
// are such values. As JSON it is an object.
type Health interface {
	// Live returns nil unless the process must be restarted. During an outage it returns nil,
	// because a part waits until an outage ends.
	Live() error

	// Ready returns nil if the part works, and otherwise the reason why it does not.
	Ready() error
}

// Probe is a part whose health a [HealthHandler] tells. Make one with [NewProbe].
type Probe struct {
	name   string
	health func() Health
}

// NewProbe returns the probe of a part, such as NewProbe("relay", r.Health). The name is the part's
// name in the answer. The function must do no I/O, and may be called at any time.
func NewProbe[H Health](name string, health func() H) Probe {
	return Probe{name: name, health: func() Health { return health() }}
}

// HealthHandler answers GET /livez and GET /readyz about the parts of a process: with 200 if all of
// them are live or ready, and otherwise with 503. Use /livez to restart a process, and /readyz to send
// no requests to it. The answer is a JSON document:
//
//	{"ok":false,"why":"relay: no connection to the broker","parts":{
//	  "relay":{"ok":false,"why":"no connection to the broker","health":{"state":"leading",…}},
//	  "inbox":{"ok":true,"health":{"state":"running",…}}}}
//
// The answer names hosts, users, streams and handlers: serve it where only your own network reaches it.
func HealthHandler(probes ...Probe) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { tell(w, probes, Health.Live) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { tell(w, probes, Health.Ready) })
	return mux
}

// report is the answer of a [HealthHandler].
type report struct {
	verdict

	Parts map[string]part `json:"parts"`
}

type part struct {
	verdict

	Health json.RawMessage `json:"health,omitempty"`
}

type verdict struct {
	OK  bool   `json:"ok"`
	Why string `json:"why,omitempty"` // the reason if OK is false, or why Health is missing
}

// tell writes what the parts say of themselves.
func tell(w http.ResponseWriter, probes []Probe, judge func(Health) error) {
	all := report{verdict: verdict{OK: true}, Parts: make(map[string]part)}
	for _, p := range probes {
		of := p.ask(judge)
		//guard:a-part-that-is-not-ready-is-told false
		if !of.OK && all.OK { // the first reason; the others are with their parts
			all.verdict = verdict{Why: fmt.Sprintf("%s: %s", p.name, of.Why)}
		}
		all.Parts[p.name] = of
	}
	text, _ := json.Marshal(all) //nolint:errchkjson // texts, and JSON
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !all.OK {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(append(text, '\n')) // fails if the client has gone
}

// ask asks a part for its health. Methods of the health and of its errors may panic. A health without
// JSON is left out: the verdict stays, because a restart would not help.
func (p Probe) ask(judge func(Health) error) part {
	var h Health
	of := part{verdict: verdict{OK: true}}
	panicked := guard.Call(func() error {
		h = p.health()
		if err := judge(h); err != nil {
			of.verdict = verdict{Why: err.Error()}
		}
		return nil
	})
	if panicked != nil {
		of.verdict = verdict{Why: panicked.Error()}
	}
	if h == nil {
		return of
	}
	err := guard.Call(func() (err error) { of.Health, err = json.Marshal(h); return err })
	if err != nil && of.OK {
		of.Why = "the health has no JSON"
	}
	return of
}
