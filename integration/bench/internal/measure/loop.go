package measure

import (
	"context"
	"crypto/sha256"
	_ "embed" // for the SQL statement
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/schema"
)

//go:embed sql/decide.sql
var decideSQL string

// prefetch is how many messages the loop keeps in memory.
const prefetch = 500

// loop is the reference of an inbox. It is the code with which a service without Postroom would
// make each effect once. Any failure ends the loop.
func loop(ctx context.Context, l *backlog) error {
	js, err := jetstream.New(l.nc)
	if err != nil {
		return err
	}
	durable, err := js.CreateConsumer(ctx, l.b.stream(), jetstream.ConsumerConfig{
		Durable: "loop", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, FilterSubject: l.b.subject(),
	})
	if err != nil {
		return fmt.Errorf("loop: %w", err)
	}
	work, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	queue := make(chan jetstream.Msg, prefetch)
	reading, err := durable.Consume(func(msg jetstream.Msg) {
		select {
		case queue <- msg:
		case <-work.Done():
		}
	}, jetstream.PullMaxMessages(prefetch))
	if err != nil {
		return fmt.Errorf("loop: %w", err)
	}
	defer reading.Stop()

	decide := schema.In(l.schema, decideSQL)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for work.Err() == nil {
				select {
				case <-work.Done():
				case msg := <-queue:
					if err := l.handle(work, msg, decide); err != nil {
						fail(fmt.Errorf("loop: %w", err))
					}
				}
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil { // the caller ended the loop
		return nil
	}
	return context.Cause(work)
}

// handle makes a message's effect and acknowledges it. A statement is a round trip.
func (l *backlog) handle(ctx context.Context, msg jetstream.Msg, decide string) error {
	header := msg.Headers()
	sum := sha256.New()
	sum.Write([]byte(header.Get("ce-type")))
	sum.Write([]byte{0})
	sum.Write(msg.Data())
	err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, decide, "loop", header.Get("ce-source")+" "+header.Get("ce-id"), sum.Sum(nil)[:16])
		if err != nil || tag.RowsAffected() == 0 { // the event was decided before
			return err
		}
		return l.apply(ctx, tx, header.Get("ce-partitionkey"))
	})
	if err != nil {
		return err
	}
	return msg.Ack()
}
