package reconcile

import (
	"context"
	"slices"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/sleep"
	"github.com/postroom/postroom/relay/broker"
)

// overlap is the number of messages before a checkpoint that a comparison reads too. If the first
// acknowledgement of an event was lost, the event was recorded as published only after the
// checkpoint. But its message may be before the checkpoint.
const overlap = 10_000

// comparison compares what a log has published with what a stream has.
type comparison struct {
	log      eventlog.History
	streams  broker.Publisher
	mark     eventlog.Checkpoint
	since    time.Time // the zero time means: from the checkpoint on
	contents bool      // also find messages that have the source and id of an event, and other content
	rate     float64   // how many events may be read in a second; 0 means no limit

	compared int // events that the stream should have
	unknown  int // events that the stream may have dropped: they are older than its first message or than the stream, or replaced
	messages int // messages that were read

	keyed     []int64 // the seqs of the missing events that have a key
	conflicts []int64 // the seqs of events whose message has other content
}

// run returns, in ascending order, the seqs of the events that the stream should have and lacks.
// The slice outOfOrder has those for which the stream has a later event of their key, and the slice
// missing the others. The method first reads which events are published, and then calls the
// function look to read the stream's state. So events published during the comparison do not count
// as missing. The method calls the function tell when the counts have changed.
func (c *comparison) run(ctx context.Context, look func(ctx context.Context) (broker.StreamState, error), tell func()) (missing, outOfOrder []int64, err error) {
	sources, err := c.log.Sources(ctx)
	if err != nil {
		return nil, nil, err
	}
	log, err := c.log.Entries(ctx, c.mark, c.since, !c.contents)
	if err != nil {
		return nil, nil, err
	}
	standing, err := look(ctx)
	if err != nil {
		return nil, nil, err
	}
	first, err := log(ctx)
	if err != nil || len(first) == 0 {
		return nil, nil, err
	}
	stream, stop, err := c.streams.ReadStored(ctx, standing.Last.Stream, c.span(first, standing.Last.Seq))
	if err != nil {
		return nil, nil, err
	}
	defer stop()
	//guard:what-was-published-after-a-checkpoint-was-not-dropped false
	if c.mark.ID != 0 && standing.First <= c.mark.Position.Seq+1 {
		standing.First = 1 // it dropped no message that came after the checkpoint
	}
	d := newDifference(standing, sources)
	d.contents = c.contents
	missing, outOfOrder, err = d.run(ctx, rateLimited(prepend(first, log), c.rate), stream, func() {
		c.compared, c.unknown, c.messages = d.compared, d.unknown, d.messages
		tell()
	})
	c.compared, c.unknown, c.keyed = d.compared, d.unknown, d.keyed
	if err == nil {
		c.conflicts, err = c.conflicting(ctx, standing.Last.Stream, d.suspects)
	}
	return missing, outOfOrder, err
}

// conflicting reads the messages of suspects in full, and returns the seqs of the events of which no
// message has the content, in ascending order. A message that is gone by now shows nothing.
func (c *comparison) conflicting(ctx context.Context, stream string, suspects map[identity]suspect) (seqs []int64, err error) {
	for _, s := range suspects {
		other, own := false, false
		for _, seq := range s.messages {
			digest, err := c.streams.StoredDigest(ctx, stream, seq, s.subject)
			if err != nil {
				return nil, err
			}
			//guard:reconcile-compares-digests true
			same := digest != nil && string(digest) == s.digest
			own, other = own || same, other || digest != nil
		}
		if other && !own {
			seqs = append(seqs, s.seq)
		}
	}
	slices.Sort(seqs)
	return seqs, nil
}

// span returns the part of the stream that may have the events to compare. The slice first has the
// log's first page of these events. Events of later pages were written after these events. But they
// may have been published before these, if these were scheduled. So span uses CreatedAt, because
// LoggedAt may be the time for which an event was scheduled.
func (c *comparison) span(first []eventlog.HistoryEntry, last uint64) broker.SeqRange {
	if seq := c.mark.Position.Seq; c.mark.ID != 0 {
		return broker.SeqRange{From: max(seq, overlap) - overlap + 1, To: last}
	}
	oldest := slices.MinFunc(first, func(a, b eventlog.HistoryEntry) int { return a.CreatedAt.Compare(b.CreatedAt) })
	//guard:reading-begins-before-scheduled-events 1.0.1 = @1.LoggedAt
	return broker.SeqRange{Since: oldest.CreatedAt.Add(-clockSkew), To: last}
}

// prepend returns a reader of one page, the slice first, and then of the pages of the reader rest.
func prepend[T any](first []T, rest reader[T]) reader[T] {
	read := false
	return func(ctx context.Context) ([]T, error) {
		if !read {
			read = true
			return first, nil
		}
		return rest(ctx)
	}
}

// rateLimited returns a reader that reads at most the given number of items in a second. If the
// rate is 0, there is no limit.
func rateLimited[T any](next reader[T], rate float64) reader[T] {
	if rate == 0 {
		return next
	}
	began, read := time.Now(), 0
	return func(ctx context.Context) ([]T, error) {
		page, err := next(ctx)
		read += len(page)
		due := began.Add(time.Duration(float64(read) / rate * float64(time.Second)))
		if err == nil && !sleep.For(ctx, time.Until(due)) {
			err = context.Cause(ctx)
		}
		return page, err
	}
}
