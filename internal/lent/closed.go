package lent

import (
	"context"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// closed returns a closed connection, for code that asks for the connection of a transaction that it
// no longer has. The real one may be in another's transaction, and a nil would make the code panic.
// pgx makes connections only by connecting, so closed connects to a server that only says hello.
func closed(cfg *pgx.ConnConfig) *pgx.Conn {
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go hello(server)
		return client, nil
	}
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	cfg.TLSConfig, cfg.Fallbacks, cfg.RequireAuth, cfg.ChannelBinding, cfg.MinProtocolVersion = nil, nil, "", "", ""
	cfg.AfterNetConnect, cfg.ValidateConnect, cfg.AfterConnect, cfg.Tracer = nil, nil, nil, nil
	conn, err := pgx.ConnectConfig(context.Background(), cfg)
	if err != nil {
		return nil // does not happen: see TestAClosedConnection
	}
	_ = conn.Close(context.Background())
	return conn
}

// hello answers the first message of a connection, and ends it.
func hello(server net.Conn) {
	defer server.Close() //nolint:errcheck // there is nothing to lose
	backend := pgproto3.NewBackend(server, server)
	if _, err := backend.ReceiveStartupMessage(); err != nil {
		return
	}
	backend.Send(&pgproto3.AuthenticationOk{})
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if backend.Flush() == nil {
		_, _ = backend.Receive() // the client says goodbye
	}
}
