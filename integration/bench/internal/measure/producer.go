package measure

import (
	"context"
	_ "embed" // for the SQL statements
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/outbox"
	"github.com/postroom/postroom/schema"
)

// clients is the number of clients that work at the same time.
const clients = 8

var (
	//go:embed sql/order.sql
	orderSQL string
	//go:embed sql/by_hand.sql
	byHandSQL string
)

// A producer is a service whose transactions insert a row and write an event.
type producer struct {
	pool    *pgxpool.Pool
	outbox  *outbox.Outbox
	order   string
	insert  string // the statement for the outbox that is written by hand
	subject string
	data    []byte
	serial  atomic.Int64
}

// newProducer returns a producer on an empty log.
func newProducer(ctx context.Context, b *bench) (_ *producer, schemaName string, err error) {
	if schemaName, err = b.empty(ctx); err != nil {
		return nil, "", err
	}
	return producerIn(b, schemaName), schemaName, nil
}

// producerIn returns a producer on the log of a schema.
func producerIn(b *bench, schemaName string) *producer {
	return &producer{
		pool:    b.pool,
		outbox:  outbox.New(outbox.Config{Source: source, Schema: schemaName}),
		order:   schema.In(schemaName, orderSQL),
		insert:  schema.In(schemaName, byHandSQL),
		subject: b.subject(),
		data:    body(),
	}
}

// event returns a new event with a new key.
func (p *producer) event() postroom.Event {
	return postroom.Event{Type: p.subject, Key: fmt.Sprint("key-", p.serial.Add(1)), Data: p.data}
}

// plain runs the transaction without an event.
func (p *producer) plain(ctx context.Context) error {
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, p.order, "customer", 100)
		return err
	})
}

// write runs the transaction with an event, with a round trip for each statement.
func (p *producer) write(ctx context.Context) error { return p.writeEvent(ctx, p.event()) }

// writeEvent does the same as the method write, but with the given event.
func (p *producer) writeEvent(ctx context.Context, ev postroom.Event) error {
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, p.order, "customer", 100); err != nil {
			return err
		}
		return p.outbox.Write(ctx, tx, ev)
	})
}

// byHand runs the transaction without Postroom, with an outbox that is written by hand and costs as
// little as possible.
func (p *producer) byHand(ctx context.Context) error {
	ev := p.event()
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, p.order, "customer", 100); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, p.insert, id.String(), ev.Type, ev.Key, ev.Data)
		return err
	})
}

// queue runs the transaction with an event in one round trip.
func (p *producer) queue(ctx context.Context) error {
	var batch pgx.Batch
	batch.Queue(p.order, "customer", 100)
	if err := p.outbox.Queue(&batch, p.event()); err != nil {
		return err
	}
	return p.pool.SendBatch(ctx, &batch).Close() // PostgreSQL runs a batch as one transaction
}

// txTrial measures how many transactions the clients commit per second.
func txTrial(do func(p *producer, ctx context.Context) error) trial {
	return func(ctx context.Context, b *bench) (sample, error) {
		p, _, err := newProducer(ctx, b)
		if err != nil {
			return sample{}, err
		}
		return throughput(ctx, b, func(ctx context.Context) error { return do(p, ctx) })
	}
}

// liveTrial measures transactions while a relay publishes their events.
func liveTrial(wake bool) trial {
	return func(ctx context.Context, b *bench) (sample, error) {
		p, schemaName, err := newProducer(ctx, b)
		if err != nil {
			return sample{}, err
		}
		return b.withStream(ctx, func(nc *nats.Conn) (sample, error) {
			return live(ctx, b, nc, p, schemaName, wake)
		})
	}
}

func live(ctx context.Context, b *bench, nc *nats.Conn, p *producer, schemaName string, wake bool) (_ sample, err error) {
	var acked, committed atomic.Int64
	r := start(ctx, b, nc, schemaName, probe{acked: func(int64) { acked.Add(1) }})
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.wait(ctx, r.led); err != nil {
		return sample{}, err
	}
	s, err := throughput(ctx, b, func(ctx context.Context) error {
		if err := p.write(ctx); err != nil {
			return err
		}
		committed.Add(1)
		if wake {
			r.Wake()
		}
		return nil
	})
	if err != nil {
		return sample{}, err
	}
	// If the relay falls behind, the figure is too good, and the report says so.
	if behind := committed.Load() - acked.Load(); behind > int64(s.value/4) {
		s.note = "THE RELAY DID NOT KEEP UP"
	}
	return s, nil
}

// throughput lets each client call the function do repeatedly. It returns how many calls all
// clients made per second.
func throughput(ctx context.Context, b *bench, do func(ctx context.Context) error) (sample, error) {
	var count atomic.Int64
	var rate float64
	repeat := func(ctx context.Context, _ int, end <-chan struct{}) error {
		for !over(end) {
			if err := do(ctx); err != nil {
				return err
			}
			count.Add(1)
		}
		return nil
	}
	err := crew(ctx, repeat, func(ctx context.Context) error {
		sleep(ctx, b.cfg.Span/5) // meanwhile the clients connect and prepare statements
		return b.timed(func() error {
			from, began := count.Load(), time.Now()
			sleep(ctx, b.cfg.Span)
			rate = float64(count.Load()-from) / time.Since(began).Seconds()
			return nil
		})
	})
	if err == nil && rate == 0 {
		err = errors.New("no transaction ended in the time")
	}
	return sample{value: rate}, err
}

// crew calls the function lead, and meanwhile runs the function work in all clients. When lead
// returns, crew closes the channel end, so that the clients finish their present work. If a client
// fails, crew ends the context of all clients, and returns the first failure.
func crew(ctx context.Context, work func(ctx context.Context, client int, end <-chan struct{}) error, lead func(ctx context.Context) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	end := make(chan struct{})
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			if err := work(ctx, client, end); err != nil {
				fail(err)
			}
		})
	}
	err := lead(ctx)
	close(end)
	all.Wait()
	return errors.Join(err, context.Cause(ctx))
}

func over(end <-chan struct{}) bool {
	select {
	case <-end:
		return true
	default:
		return false
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
