package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/inbox/internal/delivery"
	"github.com/postroom/postroom/inbox/internal/dispatch"
	"github.com/postroom/postroom/internal/guard"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/wildcard"
	"github.com/postroom/postroom/internal/wire"
)

// standByEvery is how often a process looks whether it may read.
const standByEvery = 500 * time.Millisecond

// suspectTerms is how many readers in a row may end without a word, and without the
// floor having moved, before what they read runs alone.
const suspectTerms = 3

// ErrIsolation says that the database's transactions begin at another isolation level
// than an ordered handler needs.
var ErrIsolation = errors.New("an ordered handler needs default_transaction_isolation to be read committed")

// checkIsolation refuses to run an ordered handler, or what it holds, where statements
// would not see what was committed while they waited for a key.
func (in *Inbox) checkIsolation(ctx context.Context) error {
	if !slices.ContainsFunc(in.consumers, (*consumer).isOrdered) {
		return nil
	}
	var isolation string
	if err := in.pool.QueryRow(ctx, "SELECT current_setting('default_transaction_isolation')").Scan(&isolation); err != nil {
		return fmt.Errorf("look up the isolation level: %w", err)
	}
	if isolation != "read committed" {
		return postroom.Refuse(fmt.Errorf("%w: it is %s; set it for the role of this process", ErrIsolation, isolation))
	}
	return nil
}

// lead reads the stream of an ordered handler in its order, for as long as this is
// the process that does so. A durable consumer would not do: it delivers again out of
// order, and to two processes at a time.
func (c *consumer) lead(ctx, work context.Context) error {
	stream, _, err := c.look(ctx)
	if err != nil {
		return err
	}
	t, err := c.standBy(ctx, stream)
	if t == nil {
		return err
	}
	keeping, cancel := context.WithCancel(work)
	t.unkeep = cancel
	go t.keep(keeping) // until leave
	if err = c.learnKeys(ctx); err == nil {
		err = t.read(ctx)
	}
	if ctx.Err() != nil {
		c.last = t // what is in hand may still be decided
		return nil
	}
	t.end(cmp.Or(err, errTermOver))
	t.leave(work)
	return err
}

// standBy waits until this process may read. It returns nil where ctx ends before.
func (c *consumer) standBy(ctx context.Context, stream jetstream.Stream) (*term, error) {
	for ; ctx.Err() == nil; sleep(ctx, standByEvery) {
		t := &term{c: c, stream: stream, over: make(chan struct{}), kept: make(chan struct{}), taken: time.Now()}
		var takeovers int
		var id *string
		var stored *time.Time
		err := c.inbox.pool.QueryRow(ctx, c.inbox.sql.lead, c.sub.Name, c.inbox.node.name, c.inbox.cfg.AckWait).
			Scan(&t.number, &t.base, &t.floor.at.seq, &id, &stored, &t.subjects, &takeovers, &t.high)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("take the reader's lease: %w", err)
		}
		t.floor.at.id, t.floor.at.stored = value(id), value(stored)
		t.noted = t.floor.at
		if takeovers > suspectTerms {
			t.left.Store(int32(c.hand.most)) //nolint:gosec // a number of messages in memory
			c.log.ErrorContext(ctx, "readers ended without a word, and each had read the same events: these are held and run alone",
				"stream", c.sub.Stream, "from_seq", t.floor.at.seq+1, "takeovers", takeovers, "events", c.hand.most)
		}
		return t, nil
	}
	return nil, nil //nolint:nilnil // there is no term
}

// learnKeys reads of which keys something is held, which may take long: the lease is
// looked after meanwhile. It was taken before: whoever
// read until then holds nothing any more, but what is under way, which this reader
// meets as decided.
func (c *consumer) learnKeys(ctx context.Context) error {
	var keys []string
	batch := &pgx.Batch{}
	batch.Queue(c.inbox.sql.plan)
	batch.Queue(c.inbox.sql.keys, c.sub.Name, dispatch.MaxKeys+1).Query(func(rows pgx.Rows) (err error) {
		keys, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err := c.inbox.pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("read which keys are blocked: %w", err)
	}
	for _, key := range keys {
		c.blocked.Hold(key, time.Time{})
	}
	return nil
}

// read reads the stream until ctx or the term ends, or reading fails.
func (t *term) read(ctx context.Context) error {
	reconnects := t.c.inbox.nc.Stats().Reconnects
	if err := t.check(ctx); err != nil {
		return err
	}
	from := t.floor.now().seq
	consumer, err := t.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Description:       "Postroom ordered handler " + t.c.sub.Name,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       from + 1,
		AckPolicy:         jetstream.AckNonePolicy,
		FilterSubjects:    wildcard.Union(nil, t.subjects),
		InactiveThreshold: thresholdOf(t.stream.CachedInfo().Config, readerThreshold),
		MemoryStorage:     true,
		Replicas:          1,
		Metadata:          map[string]string{identity.InstanceKey: *t.c.inbox.node.instance.Load(), identity.HandlerKey: t.c.sub.Name},
	})
	if err != nil {
		return t.c.refuseClosed(fmt.Errorf("read stream %s: %w", t.c.sub.Stream, err))
	}
	defer t.forget(consumer)
	r := &reading{term: t, consumer: consumer, reconnects: reconnects, gap: make(chan struct{})}
	r.last.Store(from)
	watching, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watch(watching)
	}()
	err = r.pull(ctx)
	cancel()
	<-watched
	return err
}

// forget removes the consumer, which otherwise goes by itself after readerThreshold.
func (t *term) forget(consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := t.stream.DeleteConsumer(ctx, consumer.CachedInfo().Name); err != nil {
		t.c.log.DebugContext(ctx, "reader's consumer not removed; it goes by itself", "error", err)
	}
}

// markOf returns what a message is recognised by.
func markOf(seq uint64, header map[string][]string, stored time.Time) mark {
	m := mark{seq: seq, stored: stored}
	if ids := header[wire.MsgID]; len(ids) > 0 {
		m.id = guard.Clean(ids[0], delivery.MaxKey)
	}
	return m
}
