package measure_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/integration/bench/internal/measure"
	"github.com/postroom/postroom/internal/devtest"
)

// serveRelay makes this program a relay in another process.
const serveRelay = "serve-relay"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == serveRelay {
		if err := measure.ServeRelay(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	devtest.Main(m)
}

// small is a configuration for a quick run, on servers for this test alone.
func small(t testing.TB) measure.Config {
	t.Helper()
	database, err := pgxpool.ParseConfig(devtest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	return measure.Config{
		Database: database, Broker: measure.Broker{URL: devtest.OwnNATS(t).URL(), Where: "in the test"},
		Events: 500, Runs: 2, Span: 200 * time.Millisecond,
		Self: []string{os.Args[0], serveRelay},
	}
}

// wantNothingLeft fails if anything that the run created still exists.
func wantNothingLeft(t testing.TB, cfg measure.Config) {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg.Database.Copy())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var schemas int
	err = pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'postroom\_bench\_%'`).Scan(&schemas)
	if err != nil {
		t.Fatal(err)
	}
	if schemas != 0 {
		t.Errorf("%d schemas are left", schemas)
	}
	// The server takes a moment to notice that a client is gone.
	devtest.Eventually(t, 5*time.Second, "no session is left", func() bool {
		var sessions int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`).Scan(&sessions)
		return err == nil && sessions == 0
	})

	nc, err := nats.Connect(cfg.Broker.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js := devtest.JetStream(t, nc)
	for name := range js.StreamNames(t.Context()).Name() {
		t.Errorf("stream %s is left", name)
	}
}

func TestRunMeasuresEverythingAndLeavesNothing(t *testing.T) {
	t.Parallel()
	cfg := small(t)
	cfg.Broker.SyncedURL = devtest.OwnNATS(t).URL()
	cfg.Events, cfg.Runs, cfg.Span = 100, 1, 100*time.Millisecond // a run has many measurements
	var steps []string
	last := 0
	cfg.Progress = func(done, total int, next string) {
		steps = append(steps, next)
		if last = total; done != len(steps)-1 {
			t.Errorf("progress says %d at step %d", done, len(steps)-1)
		}
	}
	report, err := measure.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) != last+1 || steps[len(steps)-1] != "" {
		t.Errorf("progress: %d calls for %d measurements", len(steps), last)
	}
	var names []string
	for _, f := range report.Figures {
		names = append(names, f.Name)
		checkFigure(t, f)
	}
	if want := measure.Names(); !slices.Equal(names, want) {
		t.Errorf("figures %v, want %v", names, want)
	}
	if m := report.Machine; m.CPUs < 1 || m.Go == "" || m.Postgres.Version == "" || m.NATS.Version == "" || !m.Postgres.Checkpoints {
		t.Errorf("machine: %+v", m)
	}
	wantNothingLeft(t, cfg)
}

func checkFigure(t *testing.T, f measure.Figure) {
	t.Helper()
	if f.Unit == "" || f.Conditions == "" || strings.ContainsAny(f.Conditions, "{}") {
		t.Errorf("%s: unit %q, conditions %q", f.Name, f.Unit, f.Conditions)
	}
	idle := strings.HasPrefix(f.Name, "relay.idle")
	if f.Median < f.Min || f.Median > f.Max || f.Median <= 0 && !idle {
		t.Errorf("%s: median %v, min %v, max %v", f.Name, f.Median, f.Min, f.Max)
	}
	if compared := f.Ratio != nil && *f.Ratio > 0 && *f.ReferenceMedian > 0; compared == idle {
		t.Errorf("%s: compared: %t", f.Name, compared)
	}
	latency := strings.Contains(f.Name, "latency")
	if latency != (f.P50 != nil && *f.P50 <= *f.P99 && *f.P99 == f.Median && *f.ReferenceP50 <= *f.ReferenceP99) {
		t.Errorf("%s: percentiles %v and %v", f.Name, f.P50, f.P99)
	}
}

// Scripts read the names of fields and figures.
func TestReportJSON(t *testing.T) {
	t.Parallel()
	cfg := small(t)
	cfg.Only, cfg.Runs = []string{"latency.wake", "relay.idle_cpu"}, 1
	report, err := measure.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Machine map[string]any
		Figures []map[string]any
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Machine) == 0 || len(got.Figures) != 2 {
		t.Fatalf("report = %s", text)
	}
	for _, f := range got.Figures {
		for _, field := range []string{"name", "unit", "median", "min", "max", "reference_median", "ratio", "conditions"} {
			value, ok := f[field]
			alone := f["name"] == "relay.idle_cpu" && (field == "reference_median" || field == "ratio")
			if !ok || (value == nil) != alone {
				t.Errorf("%v: %s = %v", f["name"], field, value)
			}
		}
		for _, field := range []string{"p50_ms", "p99_ms", "reference_p50_ms", "reference_p99_ms"} {
			if _, ok := f[field]; ok != (f["name"] == "latency.wake") {
				t.Errorf("%v has %s: %t", f["name"], field, ok)
			}
		}
	}
}

// If a figure needs a broker that the Config does not name, it is left out, and the report
// says so.
func TestReportSaysWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	cfg := small(t)
	cfg.Only, cfg.Runs = []string{"relay.atomic", "relay.atomic_fsync"}, 1
	report, err := measure.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Figures) != 1 || !slices.Equal(report.LeftOut, []string{"relay.atomic_fsync"}) {
		t.Errorf("%d figures, and %v is left out", len(report.Figures), report.LeftOut)
	}
}

var errInterrupt = errors.New("tired")

// Whenever a run is interrupted, it leaves nothing behind.
func TestInterruptedRunLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, only, at string        // at: the measurement
		after          time.Duration // from its beginning
		events         int
	}{
		{"before a measurement", "relay.drain", "relay.drain", 0, 500},
		{"while the backlog is loaded", "relay.drain_unkeyed", "relay.drain_unkeyed", 200 * time.Millisecond, 50_000},
		{"while producers write", "producer.write", "transactions, in turns", 500 * time.Millisecond, 500},
		{"while a relay publishes", "live.writers", "live.writers", 700 * time.Millisecond, 500},
		{"while latencies are noted", "latency.wake", "latency.wake", 700 * time.Millisecond, 500},
		{"while the stream is filled", "inbox.transactional", "reference.loop", 400 * time.Millisecond, 200_000},
		{"while the loop works", "inbox.transactional", "reference.loop", 500 * time.Millisecond, 8000},
		{"while an inbox works", "inbox.transactional", "inbox.transactional", 500 * time.Millisecond, 8000},
		{"while a batch fails", "inbox.batched_failing", "inbox.batched_failing", 500 * time.Millisecond, 6000},
		{"while another process measures", "relay.idle_statements", "relay.idle", 500 * time.Millisecond, 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := small(t)
			cfg.Only, cfg.Events, cfg.Span = []string{tt.only}, tt.events, 2*time.Second
			ctx, cancel := context.WithCancelCause(t.Context())
			var interrupted time.Time
			cfg.Progress = func(_, _ int, next string) {
				if next == tt.at {
					time.AfterFunc(tt.after, func() { interrupted = time.Now(); cancel(errInterrupt) })
				}
			}
			_, err := measure.Run(ctx, cfg)
			if took := time.Since(interrupted); took > devtest.Patience(t, 20*time.Second) {
				t.Errorf("it took %s to clean up", took)
			}
			if !errors.Is(err, errInterrupt) {
				t.Errorf("Run = %v, want %v", err, errInterrupt)
			}
			wantNothingLeft(t, cfg)
		})
	}
}

// A broker works on several requests at once. If the client gives up creating a stream, the
// broker may create it after the request that deletes it.
func TestInterruptedCreationLeavesNoStream(t *testing.T) {
	t.Parallel()
	cfg := small(t)
	cfg.Only = []string{"relay.drain"}
	for i := range 20 {
		ctx, cancel := context.WithCancelCause(t.Context())
		cfg.Progress = func(done, _ int, _ string) {
			if done == 0 {
				time.AfterFunc(time.Duration(i)*300*time.Microsecond, func() { cancel(errInterrupt) })
			}
		}
		if _, err := measure.Run(ctx, cfg); !errors.Is(err, errInterrupt) {
			t.Errorf("Run = %v, want %v", err, errInterrupt)
		}
		wantNothingLeft(t, cfg)
	}
}

func TestRunReportsServersThatAreNotThere(t *testing.T) {
	t.Parallel()
	cfg := small(t)
	cfg.Broker.URL = "nats://127.0.0.1:1"
	if _, err := measure.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "connect to NATS") {
		t.Errorf("Run = %v", err)
	}
	cfg = small(t)
	cfg.Database.ConnConfig.Port = 1
	cfg.Database.ConnConfig.Fallbacks = nil
	if _, err := measure.Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "connect to PostgreSQL") {
		t.Errorf("Run = %v", err)
	}
}

func TestRunSaysWhatItLeavesBehind(t *testing.T) {
	t.Parallel()
	cfg := small(t)
	broker := devtest.OwnNATS(t)
	cfg.Broker.URL, cfg.Only = broker.URL(), []string{"producer.write"}
	cfg.Progress = func(done, total int, _ string) {
		if done == total {
			broker.Stop() // too early: the stream is requested once more
		}
	}
	if _, err := measure.Run(t.Context(), cfg); !errors.Is(err, measure.ErrLeftBehind) {
		t.Errorf("Run = %v, want %v", err, measure.ErrLeftBehind)
	}
}

// Transactions take turns with their reference. A transaction that was measured in turns with
// others is not measured again for another figure. The second run has the order of the first one
// reversed.
func TestTransactionsTakeTurns(t *testing.T) {
	t.Parallel()
	cfg := small(t)
	cfg.Span = 500 * time.Millisecond // even on a busy machine, a transaction ends in each turn
	cfg.Only = []string{"producer.write", "producer.write_by_hand", "producer.queue", "live.writers_poll"}
	var measured []string
	cfg.Progress = func(_, _ int, next string) { measured = append(measured, next) }
	report, err := measure.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Figures {
		checkFigure(t, f)
	}
	if want := 3*cfg.Runs + 1; len(measured) != want { // in each run: the turns, a writer with a relay, and a writer without one; then the end
		t.Fatalf("measured %q, want %d steps", measured, want)
	}
	first, second := measured[:3], slices.Clone(measured[3:6])
	if slices.Reverse(second); cfg.Runs != 2 || !slices.Equal(first, second) {
		t.Errorf("%d runs: %q, then in reverse order %q", cfg.Runs, first, second)
	}
}

func TestProfileIsOfTheMeasuredPart(t *testing.T) {
	cfg := small(t) // not parallel: there is one profile in a process
	for _, name := range []string{"relay.drain", "producer.write", "inbox.transactional"} {
		var profile bytes.Buffer
		cfg.Only, cfg.Profile = []string{name}, &profile
		if _, err := measure.Run(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(profile.Bytes(), []byte{0x1f, 0x8b}) { // gzip
			t.Errorf("the profile of %s has %d bytes", name, profile.Len())
		}
	}
}

// The benchmark provokes a handler's failures, so they are not logged.
func TestFailingHandlersLogNothing(t *testing.T) {
	t.Parallel()
	cfg := small(t)
	var log bytes.Buffer
	cfg.Only, cfg.Runs = []string{"inbox.failing", "inbox.batched_failing", "inbox.ordered_flaky"}, 1
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	report, err := measure.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if log.Len() > 0 {
		t.Errorf("log: %s", log.String())
	}
	for i, want := range []string{"backlog of 250 events", "backlog of 125 events"} {
		if got := report.Figures[i].Conditions; !strings.Contains(got, want) {
			t.Errorf("conditions = %q, want %q", got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	self := []string{"self"}
	tests := []struct {
		name string
		cfg  measure.Config
		want string // part of the error; if empty, no error
	}{
		{"nothing is all", measure.Config{}, ""},
		{"few events", measure.Config{Events: 99}, "events: 99"},
		{"negative runs", measure.Config{Runs: -1}, "runs: -1"},
		{"a short time", measure.Config{Span: time.Millisecond}, "seconds: 1ms"},
		{"all faults at once", measure.Config{Events: -1, Runs: -1}, "runs: -1"},
		{"unknown group", measure.Config{Groups: []string{"inboxes"}}, `no such group: "inboxes"`},
		{"unknown figure", measure.Config{Only: []string{"relay.brain"}}, `no such figure: "relay.brain"`},
		{"figure of another group", measure.Config{Groups: []string{"relay"}, Only: []string{"producer.write"}}, "nothing to measure"},
		{"live is the producers'", measure.Config{Groups: []string{"producer"}, Only: []string{"live.writers"}}, ""},
		{"one figure of an inbox", measure.Config{Groups: []string{"inbox"}, Only: []string{"inbox.batched"}}, ""},
		{"no synced broker", measure.Config{Only: []string{"relay.atomic_fsync"}}, "a broker that syncs every message"},
		{"a synced broker", measure.Config{Only: []string{"relay.atomic_fsync"}, Broker: measure.Broker{SyncedURL: "nats://x"}}, ""},
		{"no process of its own", measure.Config{Only: []string{"relay.idle_cpu"}}, "nothing to measure"},
		{"profile of one figure", measure.Config{Only: []string{"relay.drain"}, Profile: &bytes.Buffer{}}, ""},
		{"profile of many", measure.Config{Profile: &bytes.Buffer{}}, "a profile needs exactly one figure"},
		{"profile of another process", measure.Config{Self: self, Only: []string{"relay.idle_cpu"}, Profile: &bytes.Buffer{}}, "a profile needs exactly one figure"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.cfg.Validate()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Validate = %v, want %q", err, tt.want)
			}
		})
	}
}
