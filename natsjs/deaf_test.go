package natsjs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/relay/broker"
)

// mayHear are the options of a server whose user may not subscribe to the given subject.
func mayHear(not string) string {
	return fmt.Sprintf(`authorization { users: [ { user: relay, password: relay, permissions: { subscribe: { deny: %q } } } ] }`, not)
}

// withdraw takes the right to receive answers away from a user, for as long as the function while
// runs. The server drops the subscriptions of the user, and does not restore them afterwards.
func withdraw(t *testing.T, server *devstack.NATS, nc *nats.Conn, while func()) {
	t.Helper()
	if err := server.Reload(mayHear("_INBOX.>")); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, time.Minute, "the server to take the right away", func() bool { return errors.Is(nc.LastError(), nats.ErrPermissionViolation) })
	while()
	if n := nc.Stats().Reconnects; n != 0 || !nc.IsConnected() { // a reconnect may not have ended yet
		t.Errorf("the client connects again (%d times), but a new subscription gets no answer either", n)
	}
	if err := server.Reload(mayHear("nothing")); err != nil {
		t.Fatal(err)
	}
}

// If a user loses the right to receive answers and gets it back, the publisher goes on.
func TestPublisherGoesOnAfterItsSubscriptionWasDropped(t *testing.T) {
	t.Parallel()
	server := startNATS(t, devstack.NATSConfig{Options: mayHear("nothing")})
	nc := connect(t, server.URL(), nats.UserInfo("relay", "relay"))
	atomicStream(t, nc, "DEAF", "deaf.a")
	publisher := natsjs.NewPublisher(nc)
	if err := publisher.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := publish(t, nc)
	p.send(event(0, "deaf.a", "0"))
	if o := p.next(); o.class != broker.Stored {
		t.Fatalf("the event before: %+v", o)
	}
	withdraw(t, server, nc, func() {
		p.send(event(1, "deaf.a", "1"))
		if o := p.next(); o.class != broker.Unknown {
			t.Errorf("an event without an answer: %+v, want unknown", o)
		}
	})
	for range 5 {
		p.send(event(1, "deaf.a", "1"))
		if o := p.next(); o.class == broker.Stored {
			return
		}
	}
	t.Error("no event was stored after the user had the right again")
}

// The same in atomic batches. Here the relay would begin the next term.
func TestAtomicTermGoesOnAfterItsSubscriptionWasDropped(t *testing.T) {
	t.Parallel()
	server := startNATS(t, devstack.NATSConfig{Options: mayHear("nothing")})
	nc := connect(t, server.URL(), nats.UserInfo("relay", "relay"))
	atomicStream(t, nc, "DEAF", "deaf.a")
	table := new(leaseTable)
	p := begin(t, nc, table.claim())
	p.store(series("deaf.a", "a", 10, 3)...)
	withdraw(t, server, nc, func() {
		p.send(series("deaf.a", "b", 10, 3)...)
		for _, o := range p.all(10) {
			if o.class != broker.Unknown && o.class != broker.BlockedByKey {
				t.Errorf("an event without an answer: %+v, want unknown", o)
			}
		}
	})
	go func() { p.batches <- asMessages(series("deaf.a", "b", 10, 3)...) }() // the term may end before it takes them
	if err := p.error(); !errors.Is(err, broker.ErrReconnected) {
		t.Errorf("the term ended with %v, want ErrReconnected", err)
	}
}

// The client's own subscription for answers, on which each request relies, was dropped before a term
// begins.
func TestCheckGoesOnAfterItsSubscriptionWasDropped(t *testing.T) {
	t.Parallel()
	server := startNATS(t, devstack.NATSConfig{Options: mayHear("nothing")})
	nc := connect(t, server.URL(), nats.UserInfo("relay", "relay"))
	p := natsjs.NewPublisher(nc)
	if err := p.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	withdraw(t, server, nc, func() {
		if err := p.Check(t.Context()); !errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, postroom.ErrUnrecoverable) {
			t.Errorf("Check without the right = %v, want an outage that names it", err)
		}
	})
	if err := p.Check(t.Context()); err == nil || errors.Is(err, postroom.ErrUnrecoverable) {
		t.Errorf("the first Check with the right = %v, want an outage", err)
	}
	devtest.Eventually(t, time.Minute, "the client to get answers", func() bool { return p.Check(t.Context()) == nil })
}

// withPassword are the options of a server that knows one password.
func withPassword(password string) string {
	return fmt.Sprintf("authorization { user: relay, password: %s }", password)
}

// While the broker refuses the user, the client tries again, and Check says why there is no connection.
// With the options of another connection, the client closes the connection, and Check says what to do.
func TestARefusedUserTriesAgain(t *testing.T) {
	t.Parallel()
	server := startNATS(t, devstack.NATSConfig{Options: withPassword("right")})
	refused := make(chan error, 1000)
	nc := connect(t, server.URL(), nats.UserInfo("relay", "right"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	other, err := nats.Connect(server.URL(), nats.UserInfo("relay", "right"), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.FlusherTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	closed := other.StatusChanged(nats.CLOSED)
	p := natsjs.NewPublisher(nc)
	if err := server.Reload(withPassword("wrong")); err != nil {
		t.Fatal(err)
	}
	for range 4 { // without the option, the client closes the connection at the third
		if err := devtest.Receive(t, time.Minute, "the broker to refuse the user", refused); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("the client reported %v", err)
		}
	}
	for _, want := range []string{"Authorization Violation", "correct its password or credentials"} {
		if err := p.Check(t.Context()); err == nil || errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), want) {
			t.Errorf("Check = %v, want an outage with %q", err, want)
		}
	}
	devtest.Receive(t, time.Minute, "the client to close the other connection", closed)
	for _, want := range []string{"Authorization Violation", "correct its password or credentials", "connect with natsjs.ConnectOptions()"} {
		if err := natsjs.NewPublisher(other).Check(t.Context()); !errors.Is(err, postroom.ErrUnrecoverable) || !strings.Contains(err.Error(), want) {
			t.Errorf("Check of a closed connection = %v, want a refusal with %q", err, want)
		}
	}
	if err := server.Reload(withPassword("right")); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, time.Minute, "the broker to take the user again", func() bool { return p.Check(t.Context()) == nil })
}
