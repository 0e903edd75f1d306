package devtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Losing makes the connections of a pool lose one answer of the server: the answer to the first
// statement that has Mark in its text or in its parameters. The server has carried this statement
// out. Then the connection ends.
type Losing struct {
	Mark string
	Says []byte // comes instead of the lost answer, and the connection goes on; see Refusal

	Lost atomic.Bool // set when an answer is lost; set it to false to lose another one
	Down atomic.Bool // if true, no connection works after the lost answer
}

// Pool returns a pool like another one, with such connections.
func (l *Losing) Pool(tb testing.TB, like *pgxpool.Pool) *pgxpool.Pool {
	tb.Helper()
	cfg := like.Config()
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // so that texts go along with each statement
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &losingConn{Conn: conn, of: l}, nil
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(tb.Context()), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

type losingConn struct {
	net.Conn

	of   *Losing
	here atomic.Bool
}

func (c *losingConn) Write(p []byte) (int, error) {
	if c.of.Down.Load() && c.of.Lost.Load() {
		return 0, errors.Join(io.ErrClosedPipe, c.Close())
	}
	if bytes.Contains(p, []byte(c.of.Mark)) && c.of.Lost.CompareAndSwap(false, true) {
		c.here.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *losingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.here.Swap(false) { // the server has answered, so it has carried the statement out
		if len(c.of.Says) == 0 {
			return 0, errors.Join(io.ErrUnexpectedEOF, c.Close())
		}
		return copy(p, c.of.Says), nil
	}
	return n, err
}

// Refusal is the message in which a server refuses a statement. With the severity FATAL, the server
// ends the session: perhaps after the statement committed, for instance while the commit waits for a
// replica.
func Refusal(severity, code string) []byte {
	fields := "S" + severity + "\x00V" + severity + "\x00C" + code + "\x00Man administrator ended it\x00\x00"
	said := append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(4+len(fields))), fields...) //nolint:gosec // short
	if severity == "ERROR" {
		said = append(said, 'Z', 0, 0, 0, 5, 'I') // the server is ready for the next statement
	}
	return said
}
