package jsremedy

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// anewPatience is how long Revive waits for the answer on a new subscription.
	anewPatience = 2 * time.Second

	// usualPatience is how much longer Revive then waits for the usual answer, although it sent the
	// usual request first.
	usualPatience = time.Second
)

// Revive makes a deaf connection connect again, and reports whether it did. A connection is deaf if
// it is up and does not get the answers to the client's requests. Call Revive after a request got no
// answer. The parameter subject is the subject of a request of the JetStream API that has no body and
// that this user may send.
//
// The client gets all answers on one subscription, which it makes once. If the user loses the right
// to that subscription, the server drops it. If the user gets the right back, the server does not
// restore the subscription, and the client does not notice that. Only after a reconnect does the
// client make its subscriptions again.
//
// So Revive sends the request in the usual way, and once more with a new subscription. If there is an
// answer only on the new subscription, the connection is deaf. If there is none on either, a
// reconnect would not help: the user may still lack the right, or the server does not answer.
func Revive(ctx context.Context, nc *nats.Conn, subject string) bool {
	reconnects := nc.Stats().Reconnects
	asking, cancel := context.WithTimeout(ctx, anewPatience+2*usualPatience)
	defer cancel()
	usual := make(chan error, 1)
	go func() {
		_, err := nc.RequestWithContext(asking, subject, nil)
		usual <- err
	}()
	//guard:a-reconnect-only-helps-a-deaf-connection false
	if !answersAnew(asking, nc, subject) {
		return false
	}
	late := time.NewTimer(usualPatience)
	defer late.Stop()
	select {
	case err := <-usual:
		if err == nil || errors.Is(err, nats.ErrNoResponders) {
			return false
		}
	case <-late.C:
	}
	// Another call of Revive may have noticed the same.
	if ctx.Err() != nil || !nc.IsConnected() || nc.Stats().Reconnects != reconnects {
		return false
	}
	return nc.ForceReconnect() == nil
}

// AboutStream returns the subject of a request for Revive, which asks about a stream.
func AboutStream(name string) string { return "$JS.API.STREAM.INFO." + name }

// answersAnew reports whether there is an answer to a request on a new subscription. Its subject has
// the form of the client's own one, because a user may have the right to subjects of another form.
func answersAnew(ctx context.Context, nc *nats.Conn, subject string) bool {
	ctx, cancel := context.WithTimeout(ctx, anewPatience)
	defer cancel()
	reply := nc.NewInbox()
	sub, err := nc.SubscribeSync(reply + ".*")
	if err != nil {
		return false
	}
	defer func() { _ = sub.Unsubscribe() }() // Unsubscribe fails only on a closed connection, which has no subscriptions
	if err := nc.PublishRequest(subject, reply+".1", nil); err != nil {
		return false
	}
	_, err = sub.NextMsgWithContext(ctx)
	return err == nil || errors.Is(err, nats.ErrNoResponders)
}
