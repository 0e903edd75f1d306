//go:build linux || darwin

// Package workload has the processes that work while chaos breaks things: producers, relays,
// handlers of each kind, operators, and a vendor that a handler calls. Each process records its
// actions in a journal.
package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/postroom/postroom/integration/checker"
	"github.com/postroom/postroom/integration/rig"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/internal/telemetry"
)

// The source, the stream and the subject of all events.
const (
	Source  = "/shop"
	Stream  = "CHAOS"
	Subject = "shop.changed" // also the type of all events

	// Lease is the relays' lease. It is short, so that even a short fault can outlast it.
	Lease = time.Second
)

// The kinds of processes. They are also the application names of their sessions in PostgreSQL.
const (
	Producers = "producer"
	Relays    = "relay"
	Operators = "operator"
)

// Roles are the roles of child processes.
var Roles = map[string]childproc.Role{
	Producers: as(runProducer), Relays: as(runRelay), Operators: as(runOperator),
	Moves: as(runConsumer), Letters: as(runConsumer), Books: as(runConsumer), Counts: as(runConsumer),
}

// Job says what a child process does.
type Job struct {
	Process     string // the name of the process
	Kind        string
	Journal     string // the directory for its history
	Shop, Books string // the databases
	NATS        string
	Vendor      string
	Canary      string // a text in payloads and in the passwords of URLs; it must not appear anywhere else
	Seed        uint64
	Rate        float64 // transactions a second
	Atomic      bool
}

// worker is a child process at work.
type worker struct {
	Job

	journal *checker.Journal
	log     *slog.Logger
	reader  *sdkmetric.ManualReader
	meters  *sdkmetric.MeterProvider
}

// as returns the role of a child process that runs the given function.
func as(run func(ctx context.Context, w *worker) error) childproc.Role {
	return func(ctx context.Context, text []byte) (err error) {
		w := &worker{log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))}
		if err := json.Unmarshal(text, &w.Job); err != nil {
			return err
		}
		if w.journal, err = checker.OpenJournal(w.Journal, w.Process); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.journal.Close()) }()
		w.reader = sdkmetric.NewManualReader()
		w.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.reader))
		go w.signal() // this goroutine ends with the process
		childproc.Tell("ready")
		return run(ctx, w)
	}
}

// connect opens a pool of the given size to a database.
func (w *worker) connect(ctx context.Context, url string, most int32) (*pgxpool.Pool, error) {
	return rig.WorkerPool(ctx, url, w.Kind, most)
}

// broker connects to NATS.
func (w *worker) broker() (*nats.Conn, error) { return rig.WorkerNATS(w.NATS, w.Process) }

// signal records the process's counters a few times a second, until the process ends.
func (w *worker) signal() {
	for {
		w.journal.Note(checker.Record{What: checker.Signals, Phase: checker.OK, Counts: map[string]int64{
			checker.DuplicateAcks:   w.count(telemetry.RelayEvents, "duplicate"),
			checker.InboxDuplicates: w.count(telemetry.InboxDelivered, "duplicate"),
			checker.Goroutines:      int64(runtime.NumGoroutine()),
			checker.Resident:        rig.ResidentPeak(os.Getpid()),
		}})
		time.Sleep(250 * time.Millisecond)
	}
}

// count returns the sum of a counter for one outcome.
func (w *worker) count(name, outcome string) (n int64) {
	var all metricdata.ResourceMetrics
	if err := w.reader.Collect(context.Background(), &all); err != nil {
		return 0
	}
	if text, err := json.Marshal(all); err != nil || bytes.Contains(text, []byte(w.Canary)) {
		w.log.Error("a metric contains the canary, or cannot be read", "canary", w.Canary, "error", err) // at the end of the run, chaos searches this log for the canary
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if m.Name != name || !ok {
				continue
			}
			for _, p := range sum.DataPoints {
				if v, _ := p.Attributes.Value(telemetry.Outcome); v.AsString() == outcome {
					n += p.Value
				}
			}
		}
	}
	return n
}

// Body is the data of an event.
type Body struct {
	Key    int    `json:"key"`
	N      int    `json:"n"`
	Poison string `json:"poison,omitempty"` // the handler that cannot handle the event
	Fate   string `json:"fate,omitempty"`   // what an operator does with the event
	Secret string `json:"secret"`
	Pad    string `json:"pad,omitempty"`
	Later  bool   `json:"later,omitempty"` // the event is scheduled
}

// What operators do with an event that its handler cannot handle.
const (
	cure    = "cure"    // the handler is repaired, and the event is replayed
	discard = "discard" // the event is discarded
	Leave   = "leave"   // the event stays dead
)

// Event returns the event in the form of the checker.
func (b Body) Event(id string) checker.Event {
	return checker.Event{ID: id, Key: b.Key, N: b.N, Poison: b.Poison, Later: b.Later}
}

// Read reads the data of an event.
func Read(data []byte) (b Body, err error) {
	if err := json.Unmarshal(data, &b); err != nil {
		return b, fmt.Errorf("read event: %w", err)
	}
	return b, nil
}
