package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postroom/postroom/internal/identity"
	"github.com/postroom/postroom/internal/messages"
	"github.com/postroom/postroom/internal/wildcard"
	"github.com/postroom/postroom/internal/wire"
)

// UndecidedMessage is a message of a stream that was acknowledged, and that the handler has not
// decided according to the database.
type UndecidedMessage struct {
	Seq     uint64 `json:"seq"`
	Subject string `json:"subject"`
	Source  string `json:"source,omitempty"`
	EventID string `json:"event_id"`
}

const (
	// mostExamined is how many acknowledged messages of a handler are examined.
	mostExamined = 10_000

	// examinedPage is for how many of them one statement looks.
	examinedPage = 1000
)

// findUndecided examines the messages between the recorded floor of a handler and the floor of its
// durable consumer. All of them are acknowledged. findUndecided returns those that have no inbox row
// and should have one. It cannot tell that of messages whose attributes are in their bodies.
func (e *examination) findUndecided(ctx context.Context, s *stream, sub subscription, through uint64) (missing []UndecidedMessage, err error) {
	floor := uint64(max(sub.AckFloor, sub.SkippedThrough, 0)) //nolint:gosec // not negative
	//guard:doctor-messages-that-the-stream-removes 1 false
	if s.info.Config.Retention != jetstream.LimitsPolicy || floor >= through {
		return nil, nil
	}
	reader, err := messages.Open(ctx, e.d.nc, s.handle, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: floor + 1, FilterSubjects: wildcard.Union(nil, sub.Subjects),
	})
	if err != nil {
		return nil, err
	}
	defer reader.Close(ctx)
	for examined := 0; examined < mostExamined; {
		page, err := reader.Next(ctx, examinedPage)
		if err != nil || len(page) == 0 {
			return missing, err
		}
		examined += len(page)
		last := page[len(page)-1].Seq
		found, err := e.lacking(ctx, sub, slices.DeleteFunc(page, func(m messages.Message) bool { return m.Seq > through }))
		missing = append(missing, found...)
		if err != nil || last >= through {
			return missing, err
		}
	}
	return missing, nil
}

// lacking returns the messages that have no inbox row of the handler and should have one.
func (e *examination) lacking(ctx context.Context, sub subscription, page []messages.Message) (missing []UndecidedMessage, err error) {
	var keys []string
	var since []time.Time
	named := make(map[string]UndecidedMessage, len(page))
	for _, m := range page {
		ev, err := wire.Decode(m.Subject, m.Header, nil)
		if err != nil || wire.IsLease(m.Subject) || ev.ID == "" {
			continue
		}
		//guard:doctor-types-that-no-process-asked-for false
		if len(sub.Types) > 0 && !slices.Contains(sub.Types, ev.Type) {
			continue
		}
		written := m.Stored
		if !ev.LoggedAt.IsZero() && ev.LoggedAt.Before(written) {
			written = ev.LoggedAt
		}
		key := identity.DedupeKey(ev.Source, ev.ID)
		keys, since = append(keys, key), append(since, written)
		if _, twice := named[key]; !twice {
			named[key] = UndecidedMessage{Seq: m.Seq, Subject: m.Subject, Source: ev.Source, EventID: ev.ID}
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	rows, err := query[struct{ Key string }](ctx, e, e.d.sql.Lacking, sub.Handler, keys, since)
	if err != nil {
		return nil, fmt.Errorf("look for inbox rows: %w", err)
	}
	for _, row := range rows {
		if m, ok := named[row.Key]; ok {
			missing = append(missing, m)
			delete(named, row.Key)
		}
	}
	return missing, nil
}

// withUndecided adds to a position the messages that were acknowledged and are not decided.
func (e *examination) withUndecided(ctx context.Context, s *stream, sub subscription, at HandlerPosition) HandlerPosition {
	if at.Verdict != Intact || sub.Ordered {
		return at
	}
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	missing, err := e.findUndecided(ctx, s, sub, at.AckFloor)
	switch {
	case err != nil:
		at.Verdict, at.Text = Unknown, fmt.Sprintf("%v", err)
	case len(missing) > 0:
		at.Verdict, at.Undecided = Undecided, missing
		at.Text = fmt.Sprintf("acknowledged, but not decided: %s. A person or another program may have read from the handler's consumer, or the database lost transactions",
			countOf(len(missing), "message"))
	}
	return at
}
