// Package health reports over HTTP whether a relay is alive and whether it is ready.
package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/postroom/postroom/relay"
	port "github.com/postroom/postroom/relay/broker"
)

// Report is the JSON document that the health endpoints send.
type Report struct {
	OK        bool        `json:"ok"`
	Why       string      `json:"why,omitempty"` // the reason if OK is false
	State     relay.State `json:"state"`
	Since     time.Time   `json:"since,omitzero"`
	Connected bool        `json:"connected"` // whether the relay is connected to the broker
	Recorded  time.Time   `json:"recorded,omitzero"`
	Checked   time.Time   `json:"checked,omitzero"`
	Faults    []string    `json:"faults,omitempty"` // the faults of the streams
	Out       []string    `json:"streams_out,omitempty"`
	Losses    []loss      `json:"losses,omitempty"`  // the last loss of each stream
	Backlog   *backlog    `json:"backlog,omitempty"` // the backlog that a leader measured last
	LastError string      `json:"last_error,omitempty"`
	ErrorAt   time.Time   `json:"last_error_at,omitzero"`
}

// loss describes a loss that the relay found in a stream.
type loss struct {
	Stream   string       `json:"stream"`
	Reason   port.Verdict `json:"reason"`
	At       time.Time    `json:"at"`
	Events   int          `json:"events"`
	Late     int          `json:"late"`
	Repaired time.Time    `json:"repaired,omitzero"` // when the relay recorded that the events are published again
}

// backlog describes the backlog that a leader measured last.
type backlog struct {
	At     time.Time        `json:"at"`
	AgeS   float64          `json:"age_s"`
	Events int64            `json:"events"`
	Held   map[string]int64 `json:"held"`
}

func newBacklog(h relay.Health) *backlog {
	if h.LagMeasuredAt.IsZero() {
		return nil
	}
	l := h.Lag
	return &backlog{
		At: h.LagMeasuredAt, AgeS: l.Age.Seconds(), Events: l.Events,
		Held: map[string]int64{"scheduled": l.Scheduled, "retry": l.Retrying, "key": l.Waiting, "dead": l.Dead},
	}
}

func newReport(h relay.Health, verdict error) Report {
	report := Report{
		OK: verdict == nil, State: h.State, Since: h.Since, Connected: h.Connected, Recorded: h.RecordedAt, Checked: h.StreamsOKAt, ErrorAt: h.ErrAt,
		Out: h.UnavailableStreams, Backlog: newBacklog(h),
	}
	if verdict != nil {
		report.Why = verdict.Error()
	}
	for _, fault := range h.Faults {
		report.Faults = append(report.Faults, fault.Error())
	}
	for _, l := range h.Losses {
		report.Losses = append(report.Losses, loss{l.Stream, l.Verdict, l.FoundAt, l.Events, l.OutOfOrder, l.RepairedAt})
	}
	if h.Err != nil {
		report.LastError = h.Err.Error()
	}
	return report
}

// Handler serves /livez, /readyz and /metrics.
func Handler(health func() relay.Health, metrics http.Handler) http.Handler {
	answer := func(verdict func(relay.Health) error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			h := health()
			report := newReport(h, verdict(h))
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			if !report.OK {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_ = json.NewEncoder(w).Encode(report) // fails if the client has gone
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", answer(relay.Health.Live))
	mux.HandleFunc("GET /readyz", answer(relay.Health.Ready))
	mux.Handle("GET /metrics", metrics)
	return mux
}

// Serve serves handler until the caller calls the result stop. If the address is empty, it serves
// nothing. Call stop only after the relay has ended, because while a relay is ending, the endpoints
// must still answer that the relay is alive and not ready.
func Serve(ctx context.Context, address string, handler http.Handler, log *slog.Logger) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve health endpoints (--listen): %w", err)
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("health endpoints ended", "error", err)
		}
	}()
	log.Info("health endpoints", "address", listener.Addr().String())
	return func() {
		_ = server.Close() // the server closes all connections, and refuses new ones
		<-done
	}, nil
}
