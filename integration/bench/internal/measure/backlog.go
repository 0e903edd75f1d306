package measure

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/wire"
	"github.com/postroom/postroom/schema"
)

const (
	goodKey = "key-"
	badKey  = "bad-" // the handler fails for events whose key begins with this
)

// publish fills the stream as a relay does. It distributes the failing events evenly.
func (l *backlog) publish(ctx context.Context) error {
	now, data := time.Now(), body()
	err := publishAll(ctx, l.nc, l.events, func(i int) *nats.Msg {
		key := goodKey
		if l.fails(i) {
			key = badKey
		}
		ev := postroom.Event{
			ID: eventID(i), Source: source, Type: l.b.subject(), Key: key + strconv.Itoa(i),
			Time: now, LoggedAt: now, ContentType: "application/json", Data: data,
		}
		if l.keys > 0 {
			ev.Key, ev.CorrelationID = strconv.Itoa(i%l.keys), ev.Key
		}
		return &nats.Msg{Subject: ev.Type, Header: wire.Encode(ev), Data: ev.Data}
	})
	if err != nil {
		return err
	}
	stored, err := l.b.stored(ctx)
	if err == nil && stored != l.events {
		err = fmt.Errorf("the stream has %d messages, want %d", stored, l.events)
	}
	return err
}

func (l *backlog) fails(i int) bool { return i*l.failing%100 < l.failing }

// healthy returns the number of events for which the handler does not always fail.
func (l *backlog) healthy() int {
	n := 0
	for i := range l.events {
		if !l.fails(i) {
			n++
		}
	}
	return n
}

// block inserts a dead event and l.stuck events that wait behind it.
func (l *backlog) block(ctx context.Context) error {
	if l.stuck == 0 {
		return nil
	}
	if _, err := l.b.pool.Exec(ctx, schema.In(l.schema, stuckSQL), l.stuck, body()); err != nil {
		return fmt.Errorf("have events wait: %w", err)
	}
	if _, err := l.b.pool.Exec(ctx, schema.In(l.schema, "ANALYZE postroom.inbox, postroom.held")); err != nil {
		return fmt.Errorf("have events wait: %w", err)
	}
	return nil
}
