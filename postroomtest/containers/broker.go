package containers

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/testcontainers/testcontainers-go"
	natscontainer "github.com/testcontainers/testcontainers-go/modules/nats"

	"github.com/postroom/postroom/internal/devstack"
)

// accounts is how many accounts the NATS server has. A test has one account.
const accounts = 100

// broker is the NATS server of this process's tests.
type broker struct {
	accounts chan string // the URLs of the accounts that no test uses
}

// sharedNATS starts the server on its first call, and returns it.
var sharedNATS = sync.OnceValues(func() (*broker, error) {
	password := rand.Text()
	var conf strings.Builder
	conf.WriteString("listen: 0.0.0.0:4222\njetstream: enabled\naccounts {\n")
	for i := range accounts {
		fmt.Fprintf(&conf, "test%d { jetstream: enabled, users: [ { user: test%[1]d, password: %q } ] }\n", i, password)
	}
	conf.WriteString("}\n")
	url := func(i int, address string) string { return fmt.Sprintf("nats://test%d:%s@%s", i, password, address) }
	b, err := run(context.Background(), devstack.BoxSpec{
		Server: devstack.NATSServer, Name: "postroom-nats-" + strings.ToLower(rand.Text()[:10]),
		Answers: func(_ context.Context, address string) error {
			nc, err := nats.Connect(url(0, address))
			if err == nil {
				nc.Close()
			}
			return err
		},
	}, testcontainers.CustomizeRequestOption(func(req *testcontainers.GenericContainerRequest) error {
		return natscontainer.WithConfigFile(strings.NewReader(conf.String()))(req) // a new reader for each try
	}))
	if err != nil {
		return nil, err
	}
	started := &broker{accounts: make(chan string, accounts)}
	for i := range accounts {
		started.accounts <- url(i, b.Address())
	}
	return started, nil
})
