package lent

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Code that asks for the connection of a transaction that it no longer has gets a closed one,
// whatever the configuration asks of a server.
func TestAClosedConnection(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://shop:secret@localhost:5432/shop?sslmode=verify-full",
		"postgres://shop@one:5432,two:5433/shop?sslmode=prefer&target_session_attrs=read-write&channel_binding=require",
		"host=/var/run user=shop dbname=shop require_auth=scram-sha-256 connect_timeout=1 search_path=a",
	} {
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		conn := closed(cfg)
		if conn == nil || !conn.IsClosed() {
			t.Fatalf("%s: the connection is %v", url, conn)
		}
		if _, err := conn.Exec(context.Background(), "SELECT 1"); err == nil {
			t.Errorf("%s: a statement succeeded", url)
		}
	}
}
