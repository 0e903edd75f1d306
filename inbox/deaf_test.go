package inbox_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom/inbox"
	"github.com/postroom/postroom/internal/devstack"
	"github.com/postroom/postroom/internal/devtest"
	"github.com/postroom/postroom/natsjs"
)

// users are the options of a server with two users. The user of an inbox may not subscribe to the
// given subject.
func users(password, not string) string {
	return fmt.Sprintf(`authorization { users: [
		{ user: op, password: op },
		{ user: handler, password: %s, permissions: { subscribe: { deny: %q } } },
	] }`, password, not)
}

// benchOfUsers returns a bench on a server with users, and a log. The inbox connects as one of them.
func benchOfUsers(t *testing.T) (b *bench, server *devstack.NATS, log *told) {
	t.Helper()
	server = devtest.OwnNATS(t)
	reload(t, server, users("right", "nothing"))
	connect := func(user, password string) *nats.Conn {
		nc, err := nats.Connect(server.URL(), append(natsjs.ConnectOptions(), nats.UserInfo(user, password))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	b, log = newBenchOn(t, devtest.Pool(t), connect("op", "op")), new(told)
	cfg := b.config()
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	b.nc = connect("handler", "right")
	b.in = inbox.New(b.pool, b.nc, cfg)
	ordered := b.subscription("ordered")
	ordered.Order = inbox.HoldKey
	b.in.Handle(b.subscription("plain"), effect("plain"))
	b.in.Handle(ordered, effect("ordered"))
	return b, server, log
}

func reload(t *testing.T, server *devstack.NATS, options string) {
	t.Helper()
	if err := server.Reload(options); err != nil {
		t.Fatal(err)
	}
}

// If the user loses the right to receive answers and gets it back, both kinds of reader go on. The log
// says which right is missing.
func TestHandlersGoOnAfterTheirSubscriptionsWereDropped(t *testing.T) {
	t.Parallel()
	b, server, log := benchOfUsers(t)
	b.publish("before")
	b.run()
	b.eventually("the first effects", func() bool { return len(b.effects("plain")) == 1 && len(b.effects("ordered")) == 1 })
	reload(t, server, users("right", "_INBOX.>"))
	for _, handler := range []string{"plain", "ordered"} {
		b.eventually("the log to name the missing right", func() bool {
			return strings.Contains(log.String(), `msg="reading interrupted, will begin again" handler=`+handler+` error="`) &&
				strings.Contains(log.String(), "Permissions Violation for Subscription to")
		})
	}
	b.publish("meanwhile")
	reload(t, server, users("right", "nothing"))
	b.publish("after")
	b.eventually("all effects", func() bool { return len(b.effects("plain")) == 3 && len(b.effects("ordered")) == 3 })
	b.wantOnce("plain", "before", "meanwhile", "after")
	b.wantOnce("ordered", "before", "meanwhile", "after")
}

// The client's own subscription for answers was dropped before the inbox starts.
func TestAnInboxStartsAfterItsSubscriptionWasDropped(t *testing.T) {
	t.Parallel()
	b, server, _ := benchOfUsers(t)
	if err := b.in.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	reload(t, server, users("right", "_INBOX.>"))
	b.eventually("the server to take the right away", func() bool { return errors.Is(b.nc.LastError(), nats.ErrPermissionViolation) })
	reload(t, server, users("right", "nothing"))
	b.publish("it")
	b.run()
	b.eventually("the effects", func() bool { return len(b.effects("plain")) == 1 && len(b.effects("ordered")) == 1 })
}

// While the password is wrong, the inbox waits, and the log says why.
func TestHandlersWaitWhileTheirUserIsRefused(t *testing.T) {
	t.Parallel()
	b, server, log := benchOfUsers(t)
	refused := make(chan error, 1000)
	b.nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })
	b.publish("before")
	b.run()
	b.eventually("the first effects", func() bool { return len(b.effects("plain")) == 1 && len(b.effects("ordered")) == 1 })
	reload(t, server, users("wrong", "nothing"))
	for range 4 {
		if err := devtest.Receive(t, time.Minute, "the broker to refuse the user", refused); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("the client reported %v", err)
		}
	}
	b.eventually("the log to say why", func() bool {
		return strings.Contains(log.String(), "no connection to the broker: nats: Authorization Violation: the broker refuses the user: correct its password or credentials")
	})
	b.publish("meanwhile")
	reload(t, server, users("right", "nothing"))
	b.eventually("all effects", func() bool { return len(b.effects("plain")) == 2 && len(b.effects("ordered")) == 2 })
}
