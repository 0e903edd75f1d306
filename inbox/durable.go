package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/wildcard"
)

var (
	// ErrForeignConsumer says that the durable consumer of a handler belongs to
	// another Postroom: its ledger knows nothing of what this one decided.
	ErrForeignConsumer = errors.New("the durable consumer belongs to another Postroom instance")

	// ErrOtherStream says that a handler is subscribed to another stream than the
	// one it is registered for. Its ledger is one, and so is its place in a stream.
	ErrOtherStream = errors.New("the handler is subscribed to another stream")
)

// standing is the handler's row of postroom.subscription.
type standing struct {
	stream   string
	created  time.Time // of the stream
	types    []string
	floor    uint64
	reached  time.Time // the floor, or before
	backfill uint64
	isNew    bool
}

// look looks the stream up, and notes the subscription.
func (c *consumer) look(ctx context.Context) (jetstream.Stream, standing, error) {
	js, err := jetstream.New(c.inbox.nc)
	if err != nil {
		return nil, standing{}, err
	}
	stream, err := js.Stream(ctx, c.sub.Stream)
	if err != nil {
		return nil, standing{}, c.refuseClosed(fmt.Errorf("look up stream %s: %w", c.sub.Stream, err))
	}
	c.origin.Created = stream.CachedInfo().Created
	row, err := c.subscribe(ctx, stream.CachedInfo())
	if err != nil {
		return nil, row, err
	}
	c.origin.Backfill = row.backfill
	return stream, row, nil
}

// ensure notes the subscription, and then finds or makes the durable consumer.
func (c *consumer) ensure(ctx context.Context) (jetstream.Consumer, error) {
	stream, row, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	want := c.config(*c.inbox.node.instance.Load(), row.floor)
	want.InactiveThreshold = thresholdOf(stream.CachedInfo().Config, 0)
	durable, err := stream.Consumer(ctx, want.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if !row.isNew {
			c.log.ErrorContext(ctx, "the handler's consumer was gone and is made again; the ledger absorbs what comes twice",
				"stream", c.sub.Stream, "consumer", want.Durable, "from_seq", row.floor+1)
		}
		durable, err = stream.CreateConsumer(ctx, want)
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", want.Durable, err)
	}
	if durable, err = c.adopt(ctx, stream, durable, want); err != nil {
		return nil, err
	}
	if durable, err = c.beginAgain(ctx, stream, durable, row); err != nil {
		return nil, err
	}
	c.taken.from(durable.CachedInfo().Created)
	return durable, nil
}

// subscribe notes what the handler reads, before its consumer is made: where that
// is lost, the note says where the next one begins.
func (c *consumer) subscribe(ctx context.Context, stream *jetstream.StreamInfo) (standing, error) {
	created := stream.Created.Truncate(time.Microsecond) // as the column has it
	first := max(stream.State.FirstSeq, 1) - 1           // before what the stream still has
	floor, backfill := first, stream.State.LastSeq
	if c.sub.From == OnlyNew {
		floor, backfill = backfill, 0
	}
	var types any // of a handler that takes subjects: all
	if len(c.sub.Types) > 0 {
		types = c.sub.Types
	}
	var row standing
	err := c.inbox.pool.QueryRow(ctx, c.inbox.sql.subscribe, c.sub.Name, c.sub.Stream, created, types, floor, backfill, c.sub.filter()).
		Scan(&row.stream, &row.created, &row.types, &row.floor, &row.reached, &row.backfill, &row.isNew)
	if err != nil {
		return row, fmt.Errorf("note subscription: %w", err)
	}
	if row.stream != c.sub.Stream {
		return row, postroom.Refuse(fmt.Errorf(
			"%w: %s, and is registered for %s: give the handler another name, which gets all events anew, or delete its row of the subscription table",
			ErrOtherStream, row.stream, c.sub.Stream))
	}
	if row.created.Equal(created) {
		return row, nil
	}
	c.log.ErrorContext(ctx, "the stream was deleted and made again; the handler begins at its start",
		"stream", c.sub.Stream, "created", created, "was_created", row.created)
	if _, err := c.inbox.pool.Exec(ctx, c.inbox.sql.recreated, c.sub.Name, created, first); err != nil {
		return row, fmt.Errorf("note another stream: %w", err)
	}
	c.lostData(ctx, lostRecreated)
	c.lastRead = mark{} // of the other stream
	row.created, row.floor, row.backfill, row.isNew = created, first, 0, true
	return row, nil
}

// adopt takes a consumer that exists: it must be ours, and its filter is
// widened where this process asks for more. It is never narrowed: an older
// process may still ask for the rest.
func (c *consumer) adopt(ctx context.Context, stream jetstream.Stream, durable jetstream.Consumer, want jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	now := durable.CachedInfo().Config
	if now.Metadata[identity.InstanceKey] != want.Metadata[identity.InstanceKey] || now.Metadata[identity.HandlerKey] != c.sub.Name {
		return nil, postroom.Refuse(fmt.Errorf("%w: %s on stream %s", ErrForeignConsumer, want.Durable, c.sub.Stream))
	}
	have := filterOf(now)
	all := wildcard.Union(have, want.FilterSubjects)
	faults := drift(now, want)
	if slices.Equal(all, have) && len(faults) == 0 {
		return durable, nil
	}
	c.log.WarnContext(ctx, "the handler's consumer is not as it should be, and is changed",
		"stream", c.sub.Stream, "consumer", want.Durable, "faults", strings.Join(faults, "; "))
	now.FilterSubject, now.FilterSubjects = "", all
	now.InactiveThreshold = want.InactiveThreshold
	now.AckWait, now.MaxDeliver, now.MaxAckPending, now.BackOff, now.PauseUntil = want.AckWait, want.MaxDeliver, want.MaxAckPending, nil, nil
	durable, err := stream.UpdateConsumer(ctx, now)
	if err != nil {
		return nil, fmt.Errorf("update consumer %s: %w", want.Durable, err)
	}
	return durable, nil
}

func filterOf(cfg jetstream.ConsumerConfig) []string {
	if cfg.FilterSubject != "" {
		return []string{cfg.FilterSubject}
	}
	return cfg.FilterSubjects
}

// drift says what of a consumer is not as it should be, and would lose or stall.
func drift(have, want jetstream.ConsumerConfig) []string {
	faults := driftOfAll(have, want)
	if have.AckWait != want.AckWait {
		faults = append(faults, fmt.Sprintf("ack_wait is %s, want %s", have.AckWait, want.AckWait))
	}
	if have.InactiveThreshold > 0 && have.InactiveThreshold != want.InactiveThreshold {
		faults = append(faults, fmt.Sprintf("inactive_threshold is %s, want %s", have.InactiveThreshold, want.InactiveThreshold))
	}
	return faults
}

// driftOfAll is the part of drift that is the same whatever a process is set to.
func driftOfAll(have, want jetstream.ConsumerConfig) []string {
	var faults []string
	differ := func(differs bool, format string, args ...any) {
		if differs {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	missing := wildcard.Uncovered(want.FilterSubjects, filterOf(have))
	differ(len(missing) > 0 && len(filterOf(have)) > 0, "filter_subjects lacks %s", strings.Join(missing, ", "))
	differ(have.MaxDeliver != want.MaxDeliver, "max_deliver is %d, want %d", have.MaxDeliver, want.MaxDeliver)
	differ(have.MaxAckPending != want.MaxAckPending, "max_ack_pending is %d, want %d", have.MaxAckPending, want.MaxAckPending)
	differ(len(have.BackOff) > 0, "backoff is set")
	differ(have.PauseUntil != nil && have.PauseUntil.After(time.Now()), "it is paused until %s", have.PauseUntil)
	return faults
}

// unbounded is how often an event is delivered, and how many may wait for their
// answer.
const unbounded = -1

// refuseClosed marks an error on a closed connection: nobody opens it again.
func (c *consumer) refuseClosed(err error) error {
	if c.inbox.nc.IsClosed() {
		return postroom.Refuse(fmt.Errorf("%w: %w", nats.ErrConnectionClosed, err))
	}
	return err
}

// config returns the consumer as it should be. Attempts are not the broker's to
// count: MaxDeliver would drop an event without a word. What is pending is bounded
// by what each process has in hand. A consumer that is made a second time begins
// where the first had come to.
func (c *consumer) config(instance string, floor uint64) jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{
		Durable:        identity.Consumer(instance, c.sub.Name),
		Description:    "Postroom handler " + c.sub.Name,
		DeliverPolicy:  jetstream.DeliverAllPolicy,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        c.inbox.cfg.AckWait,
		MaxDeliver:     unbounded,
		MaxAckPending:  unbounded,
		FilterSubjects: wildcard.Union(nil, c.sub.filter()), // overlapping ones are refused
		Metadata:       map[string]string{identity.InstanceKey: instance, identity.HandlerKey: c.sub.Name},
	}
	if floor > 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, floor+1
	}
	return cfg
}
