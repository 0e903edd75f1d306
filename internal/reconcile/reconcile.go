// Package reconcile compares what a log has published with what streams have.
//
// It reads the log and the streams from the beginning to the end, and changes nothing. It may run
// while events are written and published. 'postroom reconcile' uses the package, and so does a
// relay that repairs a stream.
package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/relay/broker"
)

// ErrConsumed means that a stream keeps its messages only until they are consumed. For such a
// stream, Compare cannot know whether a missing message was consumed or lost.
var ErrConsumed = errors.New("the stream does not keep messages that were consumed")

// Config says what [Compare] compares. The zero value is ready to use.
type Config struct {
	// Streams are the names of the streams.
	//
	// Defaults to the streams that the relay has published to.
	Streams []string

	// Since limits the comparison to events that were written at this time or later. Events of the
	// minute before Since may be compared too.
	//
	// Defaults to the beginning of the log.
	Since time.Time

	// Rate is the largest number of events of the log that are read in a second. A higher rate
	// slows live traffic more.
	//
	// Defaults to [DefaultRate].
	Rate float64

	// Compare calls Progress from time to time with the counts of the current stream.
	// Progress may be nil.
	Progress func(stream string, compared, messages int)
}

// DefaultRate is the default of Config.Rate: a million events in 40 seconds. On a machine with two
// processors for the comparison, the database and the broker, about four times this rate is
// possible.
const DefaultRate = 25_000

// Result says what a stream has and what it lacks.
type Result struct {
	Stream  string
	Verdict broker.Verdict // the verdict about the stream's end: it can be Intact even if messages before the end are missing
	LastSeq uint64         // the sequence up to which the stream was read

	Compared int // events of the log that the stream should have
	Messages int // messages that were read
	Unknown  int // events that the stream may have stored and then dropped: they are older than its first message or than the stream itself, or a message that was stored later may have replaced them (limit per subject, roll-up)

	// Missing are the seqs, in ascending order, of the events that the stream should have and
	// lacks. OutOfOrder are those of Missing for which the stream has a later event of the same
	// key, or had one when an earlier comparison found them missing. These events can only be published again out of order. Keyed are those of Missing that
	// have a key.
	Missing    []int64
	OutOfOrder []int64
	Keyed      []int64

	// Conflicts are the seqs, in ascending order, of events that the stream does not have, although it
	// has a message with their source and id: the message has other content. Usually another log with
	// the same source publishes to the stream, and the broker dropped the event as a duplicate. Compare
	// finds at most 1,000 of them, and none of events that were scheduled.
	Conflicts []int64

	Took time.Duration

	// Err is the reason why the stream was not compared, or nil if it was compared. It
	// matches [ErrConsumed] or [broker.ErrNoStream].
	Err error
}

// Compare compares what a log has published with what its streams have. It reads the headers of the
// streams' messages, changes nothing, and may run while events are written and published. If log
// and stream have nearly the same order, Compare needs little memory. In the worst case it needs
// about two hundred bytes for each event.
//
// An error is an outage, or says that Rate is not valid. If one stream cannot be compared, its
// Result says so.
func Compare(ctx context.Context, log eventlog.History, streams broker.Publisher, cfg Config) ([]Result, error) {
	cfg.Rate = cmp.Or(cfg.Rate, DefaultRate)
	if !(cfg.Rate > 0) { // this refuses a NaN too
		return nil, fmt.Errorf("reconcile: Rate is %g, want more than 0", cfg.Rate)
	}
	places, err := log.Positions(ctx)
	if err != nil {
		return nil, fmt.Errorf("reconcile: %w", err)
	}
	for _, name := range cfg.Streams {
		if !slices.ContainsFunc(places, func(p broker.StreamPosition) bool { return p.Stream == name }) {
			places = append(places, broker.StreamPosition{Stream: name})
		}
	}
	slices.SortFunc(places, func(a, b broker.StreamPosition) int { return cmp.Compare(a.Stream, b.Stream) })
	var all []Result
	for _, at := range places {
		if len(cfg.Streams) > 0 && !slices.Contains(cfg.Streams, at.Stream) {
			continue
		}
		found, err := cfg.stream(ctx, log, streams, at)
		if err != nil {
			return all, fmt.Errorf("reconcile: stream %s: %w", at.Stream, err)
		}
		all = append(all, found)
	}
	return all, nil
}

// stream compares one stream.
func (cfg Config) stream(ctx context.Context, log eventlog.History, streams broker.Publisher, at broker.StreamPosition) (Result, error) {
	began := time.Now()
	found := Result{Stream: at.Stream}
	c := comparison{log: log, streams: streams, since: cfg.Since, contents: true, rate: cfg.Rate}
	look := func(ctx context.Context) (broker.StreamState, error) {
		s, err := streams.Compare(ctx, at)
		if err != nil {
			return s, err
		}
		found.Verdict, found.LastSeq = s.Verdict, s.Last.Seq
		switch {
		case s.Verdict == broker.Missing:
			return s, fmt.Errorf("stream %s does not exist: %w", at.Stream, broker.ErrNoStream)
		//guard:a-stream-that-forgets-is-not-compared false
		case !s.Limits:
			return s, fmt.Errorf("stream %s: %w", at.Stream, ErrConsumed)
		}
		return s, nil
	}
	tell := func() {
		if cfg.Progress != nil {
			cfg.Progress(at.Stream, c.compared, c.messages)
		}
	}
	missing, outOfOrder, err := c.run(ctx, look, tell)
	//guard:a-stream-that-is-gone-does-not-stop-a-comparison 2 false
	if errors.Is(err, broker.ErrNoStream) || errors.Is(err, ErrConsumed) {
		found.Err = err
		return found, nil
	}
	if err != nil {
		return found, err
	}
	found.fill(&c, missing, outOfOrder, time.Since(began))
	return found, nil
}

// fill sets the fields to what a comparison found.
func (f *Result) fill(c *comparison, missing, outOfOrder []int64, took time.Duration) {
	f.Missing = append(missing, outOfOrder...)
	slices.Sort(f.Missing)
	f.OutOfOrder, f.Keyed, f.Conflicts = outOfOrder, c.keyed, c.conflicts
	f.Compared, f.Messages, f.Unknown, f.Took = c.compared, c.messages, c.unknown, took
}

// FindLost finds the events that a stream lost. Call it if the state s says that the stream lost
// events. FindLost looks for the newest checkpoint whose message the stream still has, and compares
// the events that were published after that checkpoint. If there is no such checkpoint, it compares
// all events of the log. It may run while events are written and published. An error is an outage.
func FindLost(ctx context.Context, log eventlog.History, streams broker.Publisher, s broker.StreamState) (Result, error) {
	began := time.Now()
	mark, err := lastMark(ctx, log, streams, s)
	if err != nil {
		return Result{}, err
	}
	c := comparison{log: log, streams: streams, mark: mark}
	found := Result{Stream: s.Last.Stream, Verdict: s.Verdict}
	missing, outOfOrder, err := c.run(ctx, func(ctx context.Context) (broker.StreamState, error) {
		now, err := stateNow(ctx, streams, s, mark)
		found.LastSeq = now.Last.Seq
		return now, err
	}, func() {})
	if err != nil {
		return Result{}, err
	}
	found.fill(&c, missing, outOfOrder, time.Since(began))
	return found, nil
}

// stateNow returns the state that a stream has now. It had the state s when it was found to have lost
// events, and has stored others since then.
func stateNow(ctx context.Context, streams broker.Publisher, s broker.StreamState, mark eventlog.Checkpoint) (broker.StreamState, error) {
	//guard:what-is-published-beside-a-search-is-not-missing do now, err := s, error(nil)
	now, err := streams.Compare(ctx, s.Last)
	switch {
	case err != nil:
		return now, err
	case now.Verdict == broker.Missing:
		return now, fmt.Errorf("stream %s does not exist: %w", s.Last.Stream, broker.ErrNoStream)
	case now.Verdict == broker.Recreated && mark.ID != 0:
		return now, fmt.Errorf("stream %s was made again meanwhile", s.Last.Stream)
	case now.Verdict != broker.Recreated:
		now.Verdict = s.Verdict
	}
	return now, nil
}

// lastMark returns the newest checkpoint up to which the stream is intact. If there is no such
// checkpoint, lastMark returns the zero checkpoint.
func lastMark(ctx context.Context, c eventlog.History, w broker.Publisher, s broker.StreamState) (eventlog.Checkpoint, error) {
	if s.Verdict == broker.Recreated {
		return eventlog.Checkpoint{}, nil
	}
	marks, err := c.Checkpoints(ctx, s.Last.Stream)
	if err != nil {
		return eventlog.Checkpoint{}, err
	}
	for _, mark := range marks {
		if mark.Position.Seq > s.Last.Seq {
			continue
		}
		state, err := w.Compare(ctx, mark.Position)
		if err != nil {
			return eventlog.Checkpoint{}, err
		}
		if state.Verdict == broker.Intact {
			return mark, nil
		}
	}
	return eventlog.Checkpoint{}, nil
}
