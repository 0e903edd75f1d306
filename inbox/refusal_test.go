package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox"
)

// losingConn is a connection that can lose an answer of the server. The connections together lose
// one: the answer to the first statement that has mark in its text.
type losingConn struct {
	net.Conn

	mark  []byte
	found *atomic.Bool
	here  atomic.Bool
}

func (c *losingConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, c.mark) && c.found.CompareAndSwap(false, true) {
		c.here.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *losingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.here.Load() { // the server has answered, so it has carried the statement out
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// losingAnswer makes the inbox use such connections. lost reports whether the answer was lost.
func (b *bench) losingAnswer(mark string) (lost *atomic.Bool) {
	b.Helper()
	lost = new(atomic.Bool)
	cfg := b.pool.Config()
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // so that texts go along with each statement
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &losingConn{Conn: conn, mark: []byte(mark), found: lost}, nil
	}
	pool, err := pgxpool.NewWithConfig(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	b.in = inbox.New(pool, b.nc, b.config())
	return lost
}

// The answer to a statement of a step is lost, and the statement is repeated. The call is counted
// once and taken back once. So the record of the call before it, whose outcome is unknown, stays.
func TestACallIsCountedOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, statement string
		answers         []answer // the vendor's; only the last one arrives
	}{
		{"begin", "start", []answer{lost, refuses}},
		{"refuse after one", "undo", []answer{lost, refuses}},
		{"refuse after two", "undo", []answer{lost, lost, refuses}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			lostAnswer := b.losingAnswer(firstLine(b, tt.statement))
			n := len(tt.answers)
			v := newVendor(t, tt.answers...)
			sub := inbox.Subscription{Name: "h", Workers: 1, Attempts: n, VendorWindow: time.Hour, Schedule: postroom.Backoff{10 * time.Millisecond}}
			b.in.HandleExternal(sub, charging(v))
			b.accept("h", "e")
			b.run()
			b.eventually("its death", func() bool { return b.dead("h") == 1 })
			if !lostAnswer.Load() {
				t.Fatal("no answer was lost")
			}
			rows := b.receipts("h")
			if len(rows) != 1 || rows[0].Done || rows[0].Unanswered != n-1 || v.total() != n {
				t.Errorf("receipts %+v after %d calls, want %d without an answer", rows, v.total(), n-1)
			}
		})
	}
}

// A process lost its claim, and its call is refused after the next owner has made a call. The
// refusal says nothing about the next owner's call, whose answer is lost. So that call is looked up
// and not made again.
func TestLateRefusalLeavesALaterCallUnknown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sub := inbox.Subscription{Name: "h", Workers: 1, Attempts: 10, Timeout: 30 * time.Second, Schedule: postroom.Backoff{10 * time.Millisecond}}
	var charges atomic.Int32
	finds := inbox.Lookup(func(context.Context, string) ([]byte, bool, error) {
		return []byte("ch"), charges.Load() > 0, nil
	})
	began, called, refused := make(chan struct{}), make(chan struct{}), make(chan struct{})
	begin, refuse := sync.OnceFunc(func() { close(began) }), sync.OnceFunc(func() { close(refused) })
	old := inbox.New(b.pool, b.nc, b.config())
	old.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		defer refuse()
		_, err := attempt.Step(ctx, "charge", func(context.Context, string) ([]byte, error) {
			begin() // its request waits for a connection
			<-called
			return nil, inbox.NotApplied(errors.New("no connection"))
		}, finds)
		return err
	})
	b.in.HandleExternal(sub, func(ctx context.Context, attempt *inbox.Attempt) error {
		_, err := attempt.Step(ctx, "charge", func(context.Context, string) ([]byte, error) {
			if charges.Add(1) == 1 {
				close(called)
			}
			<-refused
			return nil, errors.New("EOF")
		}, finds)
		return err
	})
	b.accept("h", "e")
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- old.Run(ctx) }()
	<-began
	b.exec("UPDATE postroom.held SET claimed_by = 'gone', next_at = now() - interval '1 s', epoch = epoch + 1") // its claim has run out
	b.run()
	b.waitUntilNoneHeld("h")
	if got := charges.Load(); got != 1 {
		t.Errorf("the next owner called %d times, want 1", got)
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Errorf("Run = %v", err)
	}
}
