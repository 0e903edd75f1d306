package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/integration/bench/internal/machine"
	"github.com/postroom/postroom/internal/anylog"
	"github.com/postroom/postroom/internal/pglog"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay"
)

// settling is the longest time that a relay needs to slow down to its idle rate. The relay doubles
// its waits until they are as long as [relay.Config.IdlePoll].
const settling = 1500 * time.Millisecond

// An order is the input of [ServeRelay]. The function command sends the order on the standard
// input, because every process of a machine can read a command line, and URLs contain passwords.
type order struct {
	DatabaseURL string
	NATSURL     string
	NATSCreds   string
	Schema      string
	Span        time.Duration
}

// idleness is the answer of [ServeRelay].
type idleness struct {
	Statements int64
	CPU        time.Duration
	Took       time.Duration
}

// idleTrial measures how many statements a relay without work sends to the database, and how much
// processor time the relay uses.
func idleTrial(ctx context.Context, b *bench) (sample, error) {
	idle, err := idle(ctx, b)
	if err != nil {
		return sample{}, err
	}
	seconds := idle.Took.Seconds()
	return sample{value: float64(idle.Statements) / seconds, cpu: 100 * idle.CPU.Seconds() / seconds}, nil
}

// idle runs a relay without work in a separate process.
func idle(ctx context.Context, b *bench) (found idleness, err error) {
	schemaName, err := b.empty(ctx)
	if err != nil {
		return idleness{}, err
	}
	_, err = b.withStream(ctx, func(*nats.Conn) (sample, error) {
		found, err = command(ctx, b, order{
			DatabaseURL: b.cfg.Database.ConnString(), NATSURL: b.cfg.Broker.URL, NATSCreds: b.cfg.Broker.Creds,
			Schema: schemaName, Span: b.cfg.Span,
		})
		return sample{}, err
	})
	return found, err
}

// command starts another process, and makes it carry out an order.
func command(ctx context.Context, b *bench, o order) (idleness, error) {
	child := exec.CommandContext(ctx, b.cfg.Self[0], b.cfg.Self[1:]...) //nolint:gosec // this program itself
	child.Stderr = os.Stderr
	child.WaitDelay = 5 * time.Second
	in, err := child.StdinPipe()
	if err != nil {
		return idleness{}, err
	}
	// The child ends when this pipe ends, even if this process is killed. When ctx ends, Cancel
	// closes the pipe and does not kill the child, so that the child can stop its relay first.
	child.Cancel = in.Close
	out, err := child.StdoutPipe()
	if err != nil {
		return idleness{}, err
	}
	if err := child.Start(); err != nil {
		return idleness{}, fmt.Errorf("start a relay: %w", err)
	}
	var found idleness
	err = json.NewEncoder(in).Encode(o)
	if err == nil {
		err = json.NewDecoder(out).Decode(&found)
	}
	if err = errors.Join(err, child.Wait()); err != nil {
		return idleness{}, fmt.Errorf("relay in a separate process: %w", err)
	}
	return found, nil
}

// ServeRelay reads an order from in, runs a relay without work, writes the result to out, and
// returns. If in ends before that, ServeRelay stops the relay and returns an error.
func ServeRelay(ctx context.Context, in io.Reader, out io.Writer) error {
	var o order
	lines := json.NewDecoder(in)
	if err := lines.Decode(&o); err != nil {
		return fmt.Errorf("bench: read order: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		var more json.RawMessage
		cancel(fmt.Errorf("bench: the process that measures is gone: %w", lines.Decode(&more)))
	}()
	found, err := o.carryOut(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	if err := json.NewEncoder(out).Encode(found); err != nil {
		return fmt.Errorf("bench: answer: %w", err)
	}
	return nil
}

func (o order) carryOut(ctx context.Context) (_ idleness, err error) {
	cfg, err := pgxpool.ParseConfig(o.DatabaseURL)
	if err != nil {
		return idleness{}, errors.New("no such database URL") // the parser's error repeats parts of the URL
	}
	var statements counter
	cfg.ConnConfig.Tracer = &statements
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return idleness{}, err
	}
	defer pool.Close()
	nc, err := connectNATS(o.NATSURL, o.NATSCreds, o.Schema)
	if err != nil {
		return idleness{}, err
	}
	defer nc.Close()

	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	led := make(chan struct{})
	p := probe{led: sync.OnceFunc(func() { close(led) })}
	r := anylog.Relay[*relay.Relay](probedLog{pglog.New(pool).WithSchema(o.Schema), p}, natsjs.NewPublisher(nc), relay.Config{Logger: log})
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()
	select {
	case <-led:
	case <-ctx.Done():
		return idleness{}, ctx.Err()
	}
	sleep(ctx, settling)
	return statements.during(ctx, o.Span)
}

// A counter counts statements.
type counter struct{ n atomic.Int64 }

// TraceQueryStart implements [pgx.QueryTracer].
func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (*counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// during waits for d, and returns this process's statements and processor time in d.
func (c *counter) during(ctx context.Context, d time.Duration) (idleness, error) {
	cpu := time.Duration(0)
	if machine.CanMeasureTime {
		var err error
		if cpu, err = machine.ProcessorTime(); err != nil {
			return idleness{}, err
		}
	}
	began, n := time.Now(), c.n.Load()
	sleep(ctx, d)
	found := idleness{Statements: c.n.Load() - n, Took: time.Since(began)}
	if machine.CanMeasureTime {
		after, err := machine.ProcessorTime()
		if err != nil {
			return idleness{}, err
		}
		found.CPU = after - cpu
	}
	return found, ctx.Err()
}
