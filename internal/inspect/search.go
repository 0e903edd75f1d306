package inspect

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/messages"
	"github.com/postroom/postroom/internal/wildcard"
	"github.com/postroom/postroom/internal/wire"
)

const (
	// searchFor limits the time of the search for one event in all streams.
	searchFor = 500 * time.Millisecond

	// searchBefore is how long before the event's log time the search begins, because the broker's
	// clock may be behind the database's clock.
	searchBefore = 2 * time.Second

	// searchBatch is how many messages one request asks for.
	searchBatch = 1000
)

// streamSearcher searches one stream for an event, from a time on.
type streamSearcher struct {
	stream   string // empty means the stream that stores the subject
	subjects []string
	since    time.Time
	source   string // empty means any source
}

// search looks for the event in streams, for half a second in all.
func (o brokerClient) search(ctx context.Context, j *EventTrace, subs []subscription) {
	quests := j.searches(subs)
	if o.nc == nil || len(quests) == 0 {
		j.Broker.Asked = o.nc != nil
		return
	}
	j.Broker.Asked = true
	js, err := o.jetStream()
	if err != nil {
		j.Broker.Fault = faultOf(err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, searchFor)
	defer cancel()
	for _, q := range quests {
		found, err := q.search(ctx, js, j.EventID)
		// A fan-out, or a copy, is later than the event itself.
		//guard:an-event-is-sought-from-the-time-of-its-id false
		if at, ok := timeOfID(j.EventID); ok && err == nil && found.Complete && at.Before(found.From) {
			q.since = at
			found, err = q.search(ctx, js, j.EventID)
		}
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrInvalidSubject):
			j.note("no stream stores %v", q.subjects)
			continue
		case err != nil && found.Examined == 0:
			j.Broker.Fault = faultOf(err)
			return
		}
		j.Streams = append(j.Streams, found)
		j.addSource(found.Source)
	}
}

// searches returns which streams to search, each from the event's log time on. If log, held and
// archive lack the event, searches uses the time in a UUIDv7 id, and returns nil for another id.
func (j *EventTrace) searches(subs []subscription) []streamSearcher {
	var all []streamSearcher
	add := func(q streamSearcher) {
		same := func(o streamSearcher) bool { return o.source == q.source && slices.Equal(o.subjects, q.subjects) }
		if !slices.ContainsFunc(all, same) {
			all = append(all, q)
		}
	}
	for _, l := range j.LogEntries {
		if l.State == Published || l.State == Pending {
			add(streamSearcher{subjects: []string{l.Subject}, since: l.LoggedAt, source: l.Source})
		}
	}
	for _, h := range slices.Concat(j.Held, j.Discarded) {
		if h.Handler != Outgoing {
			add(streamSearcher{subjects: []string{h.Subject}, since: h.LoggedAt, source: h.Source})
		}
	}
	if len(all) > 0 || len(j.LogEntries) > 0 {
		return all
	}
	since, ok := timeOfID(j.EventID)
	if !ok {
		return nil
	}
	source := ""
	if len(j.Sources) == 1 {
		source = j.Sources[0]
	}
	for _, s := range subs {
		at := slices.IndexFunc(all, func(q streamSearcher) bool { return q.stream == s.Stream })
		if at < 0 {
			all = append(all, streamSearcher{stream: s.Stream, since: since, source: source, subjects: wildcard.Union(nil, s.Subjects)})
			continue
		}
		all[at].subjects = wildcard.Union(all[at].subjects, s.Subjects)
	}
	return all
}

// timeOfID returns the time in an id that is a UUIDv7.
func timeOfID(id string) (time.Time, bool) {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return time.Time{}, false
	}
	return time.Unix(u.Time().UnixTime()).UTC(), true
}

// search reads a stream until it finds the event, reaches the end of the stream, or ctx ends.
func (q streamSearcher) search(ctx context.Context, js jetstream.JetStream, id string) (StreamSearch, error) {
	s := StreamSearch{Stream: q.stream, From: q.since.Add(-searchBefore).UTC()}
	if len(q.subjects) == 1 {
		s.Subject = q.subjects[0]
	}
	if s.Stream == "" {
		var err error
		if s.Stream, err = js.StreamNameBySubject(ctx, s.Subject); err != nil {
			return s, err
		}
	}
	stream, err := js.Stream(ctx, s.Stream)
	if err != nil {
		return s, err
	}
	from := s.From
	r, err := messages.Open(ctx, js.Conn(), stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &from, FilterSubjects: q.subjects,
	})
	if err != nil {
		return s, err
	}
	defer r.Close(ctx)
	for r.Pending() > 0 {
		batch, err := r.Next(ctx, searchBatch)
		for _, m := range batch {
			s.Examined++
			s.Through = m.Stored.UTC()
			if q.matches(m, id, &s) {
				return s, nil
			}
		}
		if err != nil || len(batch) == 0 || ctx.Err() != nil {
			return s, err
		}
	}
	s.Complete = true
	return s, nil
}

// matches reports whether a message is the event. If so, it records the message in s.
func (q streamSearcher) matches(m messages.Message, id string, s *StreamSearch) bool {
	ev, err := wire.Decode(m.Subject, m.Header, nil)
	if err != nil || ev.ID != id || q.source != "" && ev.Source != q.source {
		return false
	}
	s.Found, s.Seq, s.StoredAt, s.MessageID, s.Source, s.Subject = true, m.Seq, m.Stored.UTC(), m.Header.Get(wire.MsgID), ev.Source, m.Subject
	s.CausationID = ev.CausationID
	return true
}
