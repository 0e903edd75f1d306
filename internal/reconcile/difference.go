package reconcile

import (
	"context"
	"crypto/sha256"
	"hash/maphash"
	"math"
	"slices"
	"time"

	"github.com/postroom/postroom/internal/eventlog"
	"github.com/postroom/postroom/internal/wildcard"
	"github.com/postroom/postroom/relay/broker"
)

// clockSkew is the largest expected difference between the clocks of the database and the
// broker.
const clockSkew = time.Minute

// maxSubjects is the number of subjects for which coverageOf remembers whether the stream
// takes them.
const maxSubjects = 10_000

// identity is a digest of an event's source and id. Among two hundred million events, the chance
// that two events have the same digest is less than one in 10^21.
type identity [16]byte

func identify(source, id string) identity {
	sum := sha256.Sum256([]byte(source + "#" + id)) // neither contains a '#'
	return identity(sum[:16])
}

// difference finds the events that a log has published and a stream does not have. It reads the log
// and the stream from the beginning to the end, and remembers the events that it has found in only
// one of them so far. There are few of these, because log and stream have nearly the same order.
type difference struct {
	sources  []string
	contents bool // also find messages with other content
	coverage func(e eventlog.HistoryEntry) (takes, sure bool)

	log    map[identity]logEvent
	stream map[identity][]copyTime

	// The map suspects has events whose messages were all logged at another time than the event.
	// Another log may have written these messages. Or the event was replayed as new. At most maxSuspects
	// events are remembered.
	suspects map[identity]suspect

	// The maps waiting and last have a key only while the map log has events of the key. The map
	// waiting has their number. The map last has the highest seq among the key's events found in
	// the stream meanwhile. An event in the map log is out of order if the map last has a higher
	// seq. The log is read in the order of its seqs. So when a later event of the key is found, the
	// map log has the earlier event already, and the map last gets the seq of the later one.
	seed    maphash.Seed
	waiting map[uint64]int
	last    map[uint64]int64

	// If a message can replace earlier ones of its subject, the map newest has for each subject when its
	// newest message was stored, in microseconds. Messages of other logs and programs count too. Otherwise
	// the map is nil. The stream changes the subjects of messages if transforms is set.
	newest     map[uint64]int64
	transforms bool

	// An intact stream may have been created after an event, and an earlier stream of the event's subject
	// may have the event. The time created is when an intact stream was created, and oldest is when the
	// oldest event was logged that was found in the stream: it may have waited for the stream. Both are
	// in microseconds. If the stream lost its end or was created again, created is before all events.
	created, oldest int64

	compared int // events that the stream should have
	unknown  int // events that the stream may have dropped: they are older than its first message or than the stream, or replaced
	messages int // messages that were read

	keyed []int64 // the missing events that have a key; the method missing sets it
}

func newDifference(standing broker.StreamState, sources []string) *difference {
	d := &difference{
		sources: sources, coverage: coverageOf(standing),
		log: make(map[identity]logEvent), stream: make(map[identity][]copyTime), suspects: make(map[identity]suspect), seed: maphash.MakeSeed(), waiting: make(map[uint64]int), last: make(map[uint64]int64),
	}
	if standing.Verdict != broker.Intact {
		standing.Last.Created = time.Time{}
	}
	d.created, d.oldest = standing.Last.Created.UnixMicro(), math.MaxInt64
	if standing.Replaces {
		d.newest, d.transforms = make(map[uint64]int64), standing.Transforms
	}
	return d
}

// logEvent is an event of the log that has not been found in the stream yet.
type logEvent struct {
	seq      int64
	key      uint64 // hash of the key; 0 if the event has no key
	place    uint64 // hash of the subject, if a later message of the subject can replace this event
	expected bool   // the stream should have the event
	late     bool   // it was published out of order before
	content
}

// content is what tells an event from another one with the same source and id.
type content struct {
	loggedAt int64  // in microseconds
	digest   string // empty if the content is not compared, and so is the subject
	subject  string
}

// copyTime says where a message of an event is, and when its event was logged.
type copyTime struct {
	seq      uint64
	loggedAt int64 // in microseconds
}

// suspect is an event, and messages that may be of another event with the same source and id.
type suspect struct {
	logEvent

	messages []uint64 // their sequences
}

const (
	// maxSuspects is how many events a comparison remembers as suspect. The first ones show that two
	// logs share a source.
	maxSuspects = 1000

	// maxCopies is how many messages of a suspect are read in full, each with one request.
	maxCopies = 10
)

// judge notes an event as suspect if none of the messages was logged at the time of the event.
func (d *difference) judge(name identity, e logEvent, copies ...copyTime) {
	own := slices.ContainsFunc(copies, func(c copyTime) bool { return c.loggedAt == e.loggedAt })
	if e.digest == "" || own || len(d.suspects) >= maxSuspects {
		return
	}
	s := suspect{logEvent: e}
	for _, c := range copies[:min(len(copies), maxCopies)] {
		s.messages = append(s.messages, c.seq)
	}
	d.suspects[name] = s
}

// judgeAgain notes one more message of a suspect.
func (d *difference) judgeAgain(name identity, s suspect, at copyTime) {
	switch {
	//guard:an-event-with-its-own-message-is-no-suspect false
	case s.loggedAt == at.loggedAt:
		delete(d.suspects, name)
	case len(s.messages) < maxCopies:
		s.messages = append(s.messages, at.seq)
		d.suspects[name] = s
	}
}

// coverageOf returns a function that reports whether a stream takes an event, and whether the
// stream certainly should have the event. A stream should have all events if it never dropped any,
// or if it was created again. Otherwise it should have the events that were written more than
// clockSkew after FirstTime, the time of the first message that it still has.
func coverageOf(s broker.StreamState) func(e eventlog.HistoryEntry) (takes, sure bool) {
	subjects := make(map[string]bool)
	//guard:a-stream-made-anew-has-it-all 2 false
	whole := s.First <= 1 || s.Verdict == broker.Recreated
	return func(e eventlog.HistoryEntry) (takes, sure bool) {
		takes, known := subjects[e.Subject]
		if !known {
			if len(subjects) > maxSubjects { // the subjects may contain ids: start again
				clear(subjects)
			}
			takes = len(wildcard.Uncovered([]string{e.Subject}, s.Subjects)) == 0
			subjects[e.Subject] = takes
		}
		return takes, whole || !s.FirstTime.IsZero() && e.LoggedAt.After(s.FirstTime.Add(clockSkew))
	}
}

// reader returns the next page of items, and an empty page at the end.
type reader[T any] func(ctx context.Context) ([]T, error)

// run reads the log and the stream to their ends, and calls the function tell after each page. It
// returns the seqs of the events that the stream lacks, in the two slices of the method missing.
func (d *difference) run(ctx context.Context, log reader[eventlog.HistoryEntry], stream reader[broker.StoredMessage], tell func()) (missing, outOfOrder []int64, err error) {
	logEnded, streamEnded := false, false
	for !logEnded || !streamEnded {
		// Read from the side that has fewer unmatched events: the other side is ahead.
		if !logEnded && (streamEnded || len(d.log) <= len(d.stream)) {
			page, err := log(ctx)
			if err != nil {
				return nil, nil, err
			}
			logEnded = len(page) == 0
			d.addEntries(page)
		} else {
			page, err := stream(ctx)
			if err != nil {
				return nil, nil, err
			}
			streamEnded = len(page) == 0
			d.addStored(page)
		}
		tell()
	}
	missing, outOfOrder = d.missing()
	return missing, outOfOrder, nil
}

// missing returns the events that the stream lacks, by ascending seq. The events in inOrder can be
// published again in the order of their keys. The events in outOfOrder cannot, because the stream
// has later events of their keys.
func (d *difference) missing() (inOrder, outOfOrder []int64) {
	for _, e := range d.log {
		switch {
		case !e.expected:
			continue
		//guard:what-was-replaced-is-not-missing false
		case d.mayBeReplaced(e) || d.mayBeElsewhere(e):
			d.compared--
			d.unknown++
			continue
		case e.key != 0 && (e.late || d.last[e.key] > e.seq):
			outOfOrder = append(outOfOrder, e.seq)
		default:
			inOrder = append(inOrder, e.seq)
		}
		if e.key != 0 {
			d.keyed = append(d.keyed, e.seq)
		}
	}
	slices.Sort(inOrder)
	slices.Sort(outOfOrder)
	slices.Sort(d.keyed)
	return inOrder, outOfOrder
}

// mayBeReplaced reports whether a later message may have replaced an event that the stream lacks. A
// comparison cannot tell whether the event was replaced or lost, and to publish it again could replace
// the newer message. That message need not have a higher seq: it may be of a scheduled event, of another
// log, or of an event whose subject the stream changed to the same one.
func (d *difference) mayBeReplaced(e logEvent) bool {
	newest, some := d.newest[e.place]
	//guard:what-was-stored-earlier-replaced-nothing 2 true
	later := some && newest >= e.loggedAt-clockSkew.Microseconds()
	//guard:what-another-subject-replaced-is-not-missing 1 remove
	return d.transforms || later
}

// mayBeElsewhere reports whether an event that the stream lacks was logged before the stream was
// created, and before all events that the stream has. Then an earlier stream of its subject may have it.
func (d *difference) mayBeElsewhere(e logEvent) bool {
	//guard:the-events-of-before-a-stream-are-not-missing false
	early := e.loggedAt < d.created
	//guard:what-waited-for-its-stream-may-be-missing 2 true
	return early && e.loggedAt < d.oldest
}

// found notes that the stream has an event.
func (d *difference) found(e logEvent) {
	d.oldest = min(d.oldest, e.loggedAt)
	if e.key != 0 && d.waiting[e.key] > 0 {
		d.last[e.key] = max(d.last[e.key], e.seq)
	}
}

// addWaiting adds an event of the log that is not found in the stream yet. The method matched
// removes an event that is found.
func (d *difference) addWaiting(name identity, e logEvent) {
	d.log[name] = e
	if e.key != 0 {
		d.waiting[e.key]++
	}
}

func (d *difference) matched(name identity, e logEvent) {
	delete(d.log, name)
	if e.key != 0 {
		if d.waiting[e.key]--; d.waiting[e.key] == 0 {
			delete(d.waiting, e.key)
			delete(d.last, e.key)
		}
	}
	d.found(e)
}

func (d *difference) addEntries(page []eventlog.HistoryEntry) {
	for _, e := range page {
		takes, sure := d.coverage(e)
		if !takes {
			continue
		}
		//guard:what-is-not-published-is-not-missing remove
		sure = sure && e.Published
		switch {
		case sure:
			d.compared++
		case e.Published:
			d.unknown++
		}
		name, one := identify(e.Source, e.ID), logEvent{seq: e.Seq, expected: sure, late: e.Late, content: content{loggedAt: e.LoggedAt.UnixMicro()}}
		if e.Key != "" {
			one.key = max(maphash.String(d.seed, e.Key), 1)
		}
		if d.newest != nil {
			one.place = maphash.String(d.seed, e.Subject)
		}
		if e.Published && d.contents {
			one.digest, one.subject = string(e.Digest), e.Subject
		}
		if copies, there := d.stream[name]; there {
			delete(d.stream, name)
			d.found(one)
			d.judge(name, one, copies...)
			continue
		}
		d.addWaiting(name, one)
	}
}

func (d *difference) addStored(page []broker.StoredMessage) {
	d.messages += len(page)
	for _, m := range page {
		if d.newest != nil {
			place := maphash.String(d.seed, m.Subject)
			d.newest[place] = max(d.newest[place], m.StoredAt.UnixMicro())
		}
		//guard:messages-of-others-are-not-remembered 2 false
		if m.ID == "" || !slices.Contains(d.sources, m.Source) {
			continue // the message comes from another log
		}
		name := identify(m.Source, m.ID)
		at := copyTime{m.Seq, m.LoggedAt.UnixMicro()}
		if one, there := d.log[name]; there {
			d.matched(name, one)
			d.judge(name, one, at)
			continue
		}
		if s, there := d.suspects[name]; there {
			d.judgeAgain(name, s, at)
			continue
		}
		d.stream[name] = append(d.stream[name], at)
	}
}
