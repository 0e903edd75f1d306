package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// taken is the furthest message of the stream that this process was handed by the
// handler's consumer, and which consumer that was.
type taken struct {
	mu   sync.Mutex
	at   mark
	made time.Time // of the consumer
}

func (t *taken) note(m mark) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.seq > t.at.seq {
		t.at = m
	}
}

// from says which consumer hands over what comes. What another one did, which was made
// before it, says nothing of this one.
func (t *taken) from(made time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.made.Equal(made) {
		t.at, t.made = mark{}, made
	}
}

// of returns the furthest message that the consumer made at a time handed over.
func (t *taken) of(made time.Time) mark {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.made.Equal(made) {
		return mark{}
	}
	return t.at
}

// aheadWait is for how long a consumer may be ahead of its stream: in a cluster they are
// on several servers, of which each learns what is stored in its own time.
const aheadWait = 3 * time.Second

// overtaken reports whether the stream has lost messages that its consumer delivered, and
// behind which one to begin again. The consumer waits for what comes after them: what
// takes their places is not delivered, unless the broker sees to it by itself, as 2.15
// does with one replica.
func (c *consumer) overtaken(ctx context.Context, stream jetstream.Stream, consumer *jetstream.ConsumerInfo, row standing) (from uint64, lost bool, err error) {
	at := c.taken.of(consumer.Created)
	last := max(at.seq, consumer.Delivered.Stream)
	info, err := c.infoOf(ctx, stream)
	for end := time.Now().Add(aheadWait); err == nil && last > info.State.LastSeq && time.Now().Before(end) && ctx.Err() == nil; {
		sleep(ctx, aheadWait/10)
		info, err = c.infoOf(ctx, stream)
	}
	if err != nil {
		return 0, false, err
	}
	kept, err := at.isIn(ctx, stream, info.State)
	if err != nil && c.mayNotRead() {
		c.log.WarnContext(ctx, "whether the broker has lost messages cannot be told where they may not be read; grant $JS.API.STREAM.MSG.GET.* and $JS.API.DIRECT.GET.>",
			"stream", c.sub.Stream, "error", err)
		kept, err = true, nil
	}
	if err != nil || kept && last <= info.State.LastSeq {
		return 0, false, err
	}
	// What took their places was stored after the last of them, and also after the
	// floor was reached, of which a process knows that took nothing itself.
	from = min(consumer.AckFloor.Stream, info.State.LastSeq, row.floor)
	since := at.stored
	switch {
	case kept && at.seq > 0:
		return min(from, at.seq), true, nil
	case at.seq == 0:
		since = row.reached
	}
	place, err := firstSince(ctx, stream, since.Add(-clockSkew), info.State)
	if err != nil && c.mayNotRead() {
		place, err = mark{}, nil // from the start: the ledger absorbs what was decided
	}
	return min(from, place.seq), err == nil, err
}

// mayNotRead reports whether the broker has refused to this user to read single messages.
// It says so to the connection, and the request stays without an answer.
func (c *consumer) mayNotRead() bool {
	err := c.inbox.nc.LastError()
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), ".GET.")
}

func (c *consumer) infoOf(ctx context.Context, stream jetstream.Stream) (*jetstream.StreamInfo, error) {
	info, err := stream.Info(ctx)
	if err == nil && !info.Created.Equal(c.origin.Created) {
		err = errors.New("it was made again")
	}
	if err != nil {
		return nil, c.refuseClosed(fmt.Errorf("look up stream %s: %w", c.sub.Stream, err))
	}
	return info, nil
}

// beginAgain makes the consumer anew where the stream lost what it delivered. The note of
// where the next one begins comes first: this process may die in between.
func (c *consumer) beginAgain(ctx context.Context, stream jetstream.Stream, durable jetstream.Consumer, row standing) (jetstream.Consumer, error) {
	old := durable.CachedInfo()
	from, lost, err := c.overtaken(ctx, stream, old, row)
	if err != nil || !lost {
		return durable, err
	}
	c.lostData(ctx, lostTail)
	c.log.ErrorContext(ctx, "the broker has lost messages that it had acknowledged: this handler begins again before them, and the ledger absorbs what comes twice",
		"stream", c.sub.Stream, "consumer", old.Name, "seq", old.Delivered.Stream, "from_seq", from+1)
	if _, err := c.inbox.pool.Exec(ctx, c.inbox.sql.lower, c.sub.Name, c.origin.Created.Truncate(time.Microsecond), from); err != nil {
		return nil, fmt.Errorf("note where to begin: %w", err)
	}
	if err := stream.DeleteConsumer(ctx, old.Name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("delete consumer %s: %w", old.Name, err)
	}
	again, err := stream.CreateConsumer(ctx, c.config(*c.inbox.node.instance.Load(), from))
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", old.Name, err)
	}
	return again, nil
}
