package natsjs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/jsremedy"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/internal/wildcard"
)

// ErrUnsafeConnection means that a connection has unsafe options. With these options, the client
// would send old events after the relay gave up on them, block for a long time, or close the
// connection for good. Check returns this error. Connect with [ConnectOptions].
var ErrUnsafeConnection = errors.New("unsafe connection to NATS")

// ConnectOptions returns the options that a relay's connection needs. Pass them to
// nats.Connect, together with your options for address and credentials:
//
//   - No reconnect buffer. In this buffer the client would keep events that are published
//     while there is no connection, and send them long after the relay gave up on them.
//   - Unlimited reconnects. By default the client closes the connection for good after
//     about two minutes without a broker.
//   - Unlimited attempts to authenticate. By default the client closes the connection for good
//     if the broker refuses the user twice, for instance while a password is being changed.
//   - A blocked write fails after 5 seconds. By default it blocks all use of the client
//     for a minute.
//   - A ping every 5 seconds. So the client notices a dead connection within seconds, not minutes.
func ConnectOptions() []nats.Option {
	return []nats.Option{
		nats.ReconnectBufSize(-1),
		nats.MaxReconnects(-1),
		//guard:a-refused-user-tries-again remove
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.FlusherTimeout(maxFlush),
	}
}

// maxFlush is the time limit of a write to the connection.
const maxFlush = 5 * time.Second

// checkConnection returns an unrecoverable error if the connection is closed, or has an option that
// ErrUnsafeConnection describes. If the connection is down at the moment, the error is an outage.
func checkConnection(nc *nats.Conn) error {
	var faults []error
	if nc.Opts.ReconnectBufSize >= 0 {
		faults = append(faults, errors.New("it has a reconnect buffer, from which events are sent after the relay gave up on them"))
	}
	if nc.Opts.FlusherTimeout > 2*maxFlush {
		faults = append(faults, fmt.Errorf("a write to it may hang for %s, and the relay with it", nc.Opts.FlusherTimeout))
	}
	if nc.Opts.MaxReconnect >= 0 || !nc.Opts.AllowReconnect {
		faults = append(faults, errors.New("its reconnects are bounded, after which it is closed for good"))
	}
	switch {
	case len(faults) > 0:
		return postroom.Unrecoverable(fmt.Errorf("%w: %w: connect with natsjs.ConnectOptions()", ErrUnsafeConnection, errors.Join(faults...)))
	case nc.IsClosed():
		return postroom.Unrecoverable(jsremedy.Closed(nc))
	case !nc.IsConnected():
		return jsremedy.Explain(withCause(fmt.Errorf("no connection to the broker: %w", nats.ErrDisconnected), nc.LastError()))
	}
	//guard:a-relay-refuses-an-old-broker 0 = error(nil)
	if err := jsremedy.CheckVersion(nc); err != nil {
		return postroom.Unrecoverable(err)
	}
	return nil
}

// withCause adds the error cause to err, if cause is not nil and err does not contain cause.
func withCause(err, cause error) error {
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// EnsureStream creates a stream with the given configuration. At its limits of messages and bytes, a
// new stream refuses messages and drops no old ones. It cannot be purged, and its messages cannot
// be deleted. EnsureStream sets this even if cfg says otherwise. If cfg does not say how to store
// and keep messages, the stream is stored in files and has limits retention.
//
// If cfg allows atomic batches (AllowAtomicPublish), the stream also gets the subject that
// they need; see [LeaseSubjects].
//
// If the stream exists already, EnsureStream changes only two things: it adds the subjects
// that the stream lacks, and allows atomic batches if cfg does.
//
// A relay never creates a stream, because the operator decides about streams.
func EnsureStream(ctx context.Context, nc *nats.Conn, cfg jetstream.StreamConfig) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("relay: ensure stream: %w", err)
	}
	//guard:no-stream-on-an-old-broker 0 = error(nil)
	if err := jsremedy.CheckVersion(nc); err != nil {
		return fmt.Errorf("relay: ensure stream %s: %w", cfg.Name, err)
	}
	cfg.Discard, cfg.DiscardNewPerSubject = jetstream.DiscardNew, cfg.MaxMsgsPerSubject > 0
	cfg.DenyDelete, cfg.DenyPurge = true, true
	if cfg.AllowAtomicPublish {
		cfg.Subjects = wildcard.Union(cfg.Subjects, []string{LeaseSubjects(cfg.Name)})
	}
	stream, err := js.CreateStream(ctx, cfg)
	for tries := 1; isStoreFault(err) && tries < storeTries && sleep.For(ctx, storeWait); tries++ {
		stream, err = js.CreateStream(ctx, cfg)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		stream, err = widen(ctx, js, cfg)
	}
	if err == nil && cfg.AllowAtomicPublish && !stream.CachedInfo().Config.AllowAtomicPublish {
		err = fmt.Errorf("the server, of version %s, has no atomic batches: upgrade it to %s or later", nc.ConnectedServerVersion(), minAtomic)
	}
	if err != nil {
		return fmt.Errorf("relay: ensure stream %s: %w", cfg.Name, err)
	}
	return nil
}

// For a moment after a stream was deleted, a server may be unable to create the files of a new
// stream of the same name. Then EnsureStream tries again.
const (
	storeTries = 20
	storeWait  = 50 * time.Millisecond
)

// isStoreFault reports whether the server could not create the files of a stream.
func isStoreFault(err error) bool {
	const code = 10049
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.ErrorCode == code
}

// widen adds to the stream those subjects of cfg that the stream does not take. It allows atomic
// batches if cfg does.
func widen(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, cfg.Name)
	if err != nil {
		return nil, err
	}
	now := stream.CachedInfo().Config
	atomic := now.AllowAtomicPublish || !cfg.AllowAtomicPublish
	if atomic && len(wildcard.Uncovered(cfg.Subjects, now.Subjects)) == 0 {
		return stream, nil
	}
	now.Subjects = wildcard.Union(now.Subjects, cfg.Subjects)
	now.AllowAtomicPublish = now.AllowAtomicPublish || cfg.AllowAtomicPublish
	return js.UpdateStream(ctx, now)
}
