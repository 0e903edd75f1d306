package rig

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Client is the rig's own connection to the brokers. It always reconnects.
type Client struct {
	URLs string
	Conn *nats.Conn
	JS   jetstream.JetStream
}

// Connect connects to brokers.
func Connect(urls, name string) (*Client, error) {
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.Name(name),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // the runs cause these errors on purpose
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &Client{URLs: urls, Conn: nc, JS: js}, nil
}

// Close ends the connection.
func (c *Client) Close() error {
	c.Conn.Close()
	return nil
}

// Stored returns how many messages a stream has.
func (c *Client) Stored(ctx context.Context, stream string) (int, error) {
	s, err := c.JS.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("count messages: %w", err)
	}
	return int(s.CachedInfo().State.Msgs), nil //nolint:gosec // the number is far below the limit
}
