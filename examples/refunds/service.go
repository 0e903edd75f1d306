package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/examples/internal/demo"
	"github.com/postroom/postroom/idempotency"
	"github.com/postroom/postroom/internal/childproc"
	"github.com/postroom/postroom/natsjs"
	"github.com/postroom/postroom/outbound"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/relay"
)

const (
	stream = "PAYMENTS" // the stream's subjects begin with "payment."

	// lease is how long a killed process keeps the claim of a key, and how long its relay still has
	// the right to publish. After that, another process may take over. If processes seldom die, the
	// defaults are better: a minute for a key, and 5 seconds for the relay.
	lease = 2 * time.Second

	drainTimeout = 5 * time.Second
	connections  = 12 // the size of the pool; a relay that leads has two more
)

// rolePayments is the role in which this program runs as a process of the service.
const rolePayments = "payments"

// sayServes begins the line in which a process prints its address.
const sayServes = "serves "

var roles = map[string]childproc.Role{rolePayments: serve}

// job is what a process of the service needs to know.
type job struct {
	Address        string
	Database, NATS string
	Provider       string // the provider's URL
	Verbose        bool
}

// service answers requests for charges and refunds.
type service struct {
	pool     *pgxpool.Pool
	outbox   *outbox.Outbox
	provider *vendor
	log      *slog.Logger
}

// serve runs a process of the service until ctx ends: its endpoints, its relay, and the
// removal of expired keys.
func serve(ctx context.Context, text []byte) error {
	var j job
	if err := json.Unmarshal(text, &j); err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	log := demo.ServiceLog(os.Stderr, j.Verbose).With("process", os.Getpid())
	base, err := demo.Connect(ctx, j.Database, j.NATS, connections)
	if err != nil {
		return err
	}
	defer base.Close()

	s := &service{
		pool: base.Pool, log: log, outbox: outbox.New(outbox.Config{Source: "/payments"}),
		provider: &vendor{url: j.Provider, api: outbound.NewClient(outbound.Config{AttemptTimeout: 2 * time.Second, Logger: log})},
	}
	guard := idempotency.New(base.Pool, idempotency.Config{Principal: merchantOf, Logger: log})
	events := relay.New(base.Pool, natsjs.NewPublisher(base.NATS), relay.Config{Lease: lease, DrainTimeout: drainTimeout, Logger: log})
	web, err := demo.Listen(j.Address, s.routes(guard), log)
	if err != nil {
		return err
	}
	childproc.Tell("%s%s", sayServes, web.URL())
	return postroom.Run(ctx, guard, events, web)
}

// routes combines the service's endpoints. Authentication comes before the guard, so a request of
// an unknown sender uses up no key.
func (s *service) routes(guard *idempotency.Guard) http.Handler {
	mux := http.NewServeMux()
	for _, k := range []kind{charge, refund} {
		mux.Handle("POST "+k.path, guard.Handler(idempotency.Route{
			// In this mode no transaction is open while the service calls the provider.
			Mode:  idempotency.LeaseMode,
			Lease: lease,
			// If the provider declined a request, or a refund asked for more than is left of its
			// charge, the guard stores that answer for the key.
			Store: idempotency.StoreFinal,
			TTL:   idempotency.TTLPayments,
		}, s.move(k)))
	}
	mux.HandleFunc("GET /ledger", s.ledger)
	return crashable(authenticated(mux))
}
